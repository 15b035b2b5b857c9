"""What a user does: ask, read, stop, repeat, change, delete."""

import re
import threading

from playwright.sync_api import expect
from scripted import answer, call, last, text, thought


def test_an_answer_streams_and_says_how_fast_it_was(visit, server):
    gate = threading.Event()
    server.scripts = [[text("Hello "), text("**wor"), gate, text("ld**.")] + last()]
    visit.ask("hi")
    expect(visit.last).to_contain_text("Hello **wor")
    gate.set()
    visit.finished()
    expect(visit.last.locator("strong")).to_have_text("world")
    expect(visit.last.locator(".stats")).to_contain_text("30 tokens · 42.5 tok/s")
    meter = visit.page.get_by_role("meter", name="Context used")
    expect(meter).to_have_attribute("aria-valuenow", "150")
    expect(meter).to_have_attribute("aria-valuemax", "1000")


def test_speed_is_counted_while_the_answer_comes(visit, server):
    gate = threading.Event()
    steps = [step for _ in range(30) for step in (text("word "), 0.02)]
    server.scripts = [[*steps, gate, *last()]]
    visit.ask("hi")
    expect(visit.page.locator("#speed")).to_have_text(re.compile(r"^[\d.]+ tok/s$"))
    gate.set()
    visit.finished()
    expect(visit.page.locator("#speed")).to_have_text("")


def test_the_request_has_the_history_and_what_the_settings_say(visit, server):
    server.scripts = [answer(thought("Hm."), "One.")]
    visit.ask_and_wait("first")
    panel = visit.settings()
    panel.get_by_label("For this conversation").fill("Be brief.")
    for name, value in [("Temperature", "0.5"), ("Top p", "0.9"), ("Top k", "20"), ("Max tokens", "64"), ("Seed", "7"), ("Thinking budget", "50")]:
        panel.get_by_label(name).fill(value)
    visit.page.keyboard.press("Escape")
    visit.ask_and_wait("second")
    first, second = server.requests
    assert first["messages"] == [{"role": "user", "content": "first"}]
    assert first["stream"] is True and first["stream_options"] == {"include_usage": True}
    assert first["chat_template_kwargs"] == {"enable_thinking": True}
    assert "temperature" not in first and "thinking_budget" not in first
    assert first["model"] == "scripted-model"
    assert second["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "One.", "reasoning_content": "Hm."},
        {"role": "user", "content": "second"},
    ]
    wanted = {"temperature": 0.5, "top_p": 0.9, "top_k": 20, "max_completion_tokens": 64, "seed": 7, "thinking_budget": 50}
    assert {name: second[name] for name in wanted} == wanted


def test_a_value_that_makes_no_sense_is_explained_and_not_sent(visit, server):
    panel = visit.settings()
    field = panel.get_by_label("Temperature")
    field.fill("7")
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(panel.get_by_text("a number from 0 to 2")).to_be_visible()
    panel.get_by_label("Tools as JSON").fill("{")
    expect(panel.get_by_text("no JSON")).to_be_visible()
    visit.page.keyboard.press("Escape")
    visit.ask_and_wait()
    assert "temperature" not in server.requests[0] and "tools" not in server.requests[0]


def test_thinking_can_be_switched_off(visit, server):
    visit.page.get_by_role("button", name="Think", exact=True).click()
    visit.ask_and_wait()
    assert server.requests[0]["chat_template_kwargs"] == {"enable_thinking": False}


def test_thinking_is_folded_and_opens(visit, server):
    gate = threading.Event()
    server.scripts = [[thought("Let me *see*."), gate, text("42")] + last()]
    visit.ask("question")
    details = visit.last.locator("details.thinking")
    expect(details.locator(".preview")).to_have_text("Let me *see*.")
    gate.set()
    visit.finished()
    expect(details.locator("summary")).to_contain_text("Thought")
    assert details.get_attribute("open") is None
    details.locator("summary").click()
    expect(details.locator("em")).to_have_text("see")
    # Whoever likes it open finds the next one open.
    visit.ask_and_wait("again")
    expect(visit.last.locator("details.thinking em")).to_be_visible()


def test_tool_calls_are_shown_and_answered(visit, server):
    pieces = [call("get_weather", '{"city":'), call(None, '"Oslo"}')]
    del pieces[1]["choices"][0]["delta"]["tool_calls"][0]["function"]["name"]
    server.scripts = [answer(*pieces, finish="tool_calls"), answer("It is 7 degrees.")]
    visit.ask_and_wait("weather?")
    expect(visit.last.locator(".call-name")).to_have_text("get_weather")
    expect(visit.last.locator(".call code")).to_have_text('{\n  "city": "Oslo"\n}')
    visit.last.get_by_label("Result of get_weather").fill("7 C")
    visit.last.get_by_role("button", name="Send results").click()
    expect(visit.answers).to_have_count(2)
    visit.finished()
    expect(visit.last).to_contain_text("It is 7 degrees.")
    assistant, tool = server.requests[1]["messages"][1:]
    assert assistant["tool_calls"][0]["function"] == {"name": "get_weather", "arguments": '{"city":"Oslo"}'}
    assert tool == {"role": "tool", "tool_call_id": "call_0", "content": "7 C"}


def test_stop_ends_the_request_and_keeps_what_came(visit, server):
    server.scripts = [[text("Once upon"), *[0.05, text(" a")] * 400]]
    visit.ask("a story")
    expect(visit.last).to_contain_text("Once upon")
    visit.page.get_by_role("button", name="Stop", exact=True).click()
    visit.finished()
    expect(visit.last).to_contain_text("Stopped.")
    assert server.left.wait(5), "the server still writes"
    assert visit.stored()[0]["messages"][1]["content"].startswith("Once upon")


def test_regenerate_replaces_the_answer(visit, server):
    server.scripts = [answer("First."), answer("Second.")]
    visit.ask_and_wait()
    visit.last.hover()
    visit.last.get_by_role("button", name="Regenerate from here").click()
    expect(visit.last).to_contain_text("Second.")
    visit.finished()
    expect(visit.answers).to_have_count(1)
    assert server.requests[0]["messages"] == server.requests[1]["messages"]


def test_editing_cuts_what_follows(visit, server):
    server.scripts = [answer("A."), answer("B."), answer("C.")]
    visit.ask_and_wait("one")
    visit.ask_and_wait("two")
    user = visit.page.locator(".turn.user").first
    user.hover()
    user.get_by_role("button", name="Edit message").click()
    field = visit.page.get_by_role("textbox", name="Edit message")
    expect(field).to_be_focused()
    field.fill("one, better")
    field.press("Enter")
    expect(visit.last).to_contain_text("C.")
    visit.finished()
    expect(visit.answers).to_have_count(1)
    assert server.requests[2]["messages"] == [{"role": "user", "content": "one, better"}]


def test_editing_can_branch_instead(visit, server):
    visit.ask_and_wait("one")
    user = visit.page.locator(".turn.user").first
    user.hover()
    user.get_by_role("button", name="Edit message").click()
    visit.page.get_by_role("textbox", name="Edit message").fill("another one")
    visit.page.get_by_role("button", name="Send as a branch").click()
    visit.finished()
    titles = visit.page.locator("#chat-list .title")
    expect(titles).to_have_text(["one (branch)", "one"])
    titles.last.click()
    expect(visit.page.locator(".turn.user")).to_have_text("one")


def test_deleting_a_message_takes_its_answer_and_can_be_undone(visit, server):
    visit.ask_and_wait("one")
    visit.ask_and_wait("two")
    user = visit.page.locator(".turn.user").first
    user.hover()
    user.get_by_role("button", name="Delete message and its answer").click()
    expect(visit.page.locator(".turn.user")).to_have_text(["two"])
    expect(visit.answers).to_have_count(1)
    visit.page.get_by_role("button", name="Undo").click()
    expect(visit.page.locator(".turn.user")).to_have_text(["one", "two"])


def test_a_message_without_answer_can_be_answered(visit, server):
    visit.ask_and_wait("one")
    visit.last.hover()
    visit.last.get_by_role("button", name="Delete answer").click()
    visit.page.get_by_role("button", name="Answer this").click()
    visit.finished()
    expect(visit.last).to_contain_text("Hello.")


def test_another_conversation_can_be_read_while_one_is_answered(visit, server):
    visit.ask_and_wait("calm")
    gate = threading.Event()
    server.scripts = [[text("begin"), gate, text(" end")] + last()]
    visit.page.get_by_role("button", name="New chat").first.click()
    visit.ask("busy")
    expect(visit.last).to_contain_text("begin")
    visit.page.locator("#chat-list").get_by_role("button", name="calm", exact=True).click()
    expect(visit.last).to_contain_text("Hello.")
    expect(visit.page.get_by_role("img", name="answering")).to_have_count(1)
    gate.set()
    expect(visit.page.get_by_role("img", name="answering")).to_have_count(0)
    visit.page.locator("#chat-list").get_by_role("button", name="busy", exact=True).click()
    expect(visit.last).to_contain_text("begin end")


def test_markdown_has_the_usual_parts(visit, server):
    source = """# Title

Text with *em*, **strong**, ~~old~~, `code`, snake_case_name and <https://example.org/a>.

1. one
2. two
   - inner
3. three

- [x] done

| a | b |
|---|--:|
| 1 | 2 |

> quoted

```python
print("hi")  # greet
```

---
end"""
    server.scripts = [[*[text(source[i : i + 3]) for i in range(0, len(source), 3)], *last()]]
    markdown = visit.ask_and_wait().locator(".markdown").last
    expect(markdown.locator("h2")).to_have_text("Title")
    for selector, content in [("em", "em"), ("strong", "strong"), ("del", "old"), ("p code", "code"), ("td.to-right", "2"), ("blockquote", "quoted")]:
        expect(markdown.locator(selector)).to_have_text(content)
    expect(markdown.locator("ol > li")).to_have_count(3)
    expect(markdown.locator("ol ul li")).to_have_text("inner")
    expect(markdown.locator("input:checked")).to_have_count(1)
    expect(markdown.locator("hr")).to_have_count(1)
    expect(markdown.locator("pre")).to_have_text('print("hi")  # greet')
    expect(markdown.locator(".t-comment")).to_have_text("# greet")
    expect(markdown).to_contain_text("snake_case_name")
    link = markdown.get_by_role("link")
    expect(link).to_have_attribute("href", "https://example.org/a")
    expect(link).to_have_attribute("rel", "noopener noreferrer")
    markdown.get_by_role("button", name="Copy code").click()
    expect(visit.page.locator("#live")).to_have_text("Copied")
    assert visit.page.evaluate("navigator.clipboard.readText()") == 'print("hi")  # greet'


def test_a_text_in_pieces_looks_like_the_text_at_once(visit, server):
    source = open(__file__, encoding="utf-8").read()
    source = "para\n-foo\n\n" + source[:6000] + "\n```js\nlet a = `1`;\n``\n```\n\n* a\n* b\n\n  more\n* c\n" + "| a | b |\n| - | - |\n| c | d |\n"
    sizes = [1, 2, 5, 11, 3, 40]
    pieces, at, i = [], 0, 0
    while at < len(source):
        pieces.append(text(source[at : at + sizes[i % 6]]))
        at += sizes[i % 6]
        i += 1
        if i % 40 == 0:
            pieces.append(0.02)
    server.scripts = [pieces + last(), answer(source)]
    grown = visit.ask_and_wait().locator(".markdown").last.evaluate("(node) => node.outerHTML")
    whole = visit.ask_and_wait().locator(".markdown").last.evaluate("(node) => node.outerHTML")
    assert grown == whole
