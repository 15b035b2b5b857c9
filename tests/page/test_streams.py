"""Streams that break, refuse, wait or go on for long."""

import re
import threading

import pytest
from playwright.sync_api import expect
from scripted import END, HANG_UP, answer, error, last, text, thought


def test_a_lost_connection_keeps_what_came_and_offers_another_try(visit, server):
    visit.allow("ERR_|Failed to load")
    server.scripts = [[text("Half an ans"), 0.1, HANG_UP], answer("Whole.")]
    broken = visit.ask_and_wait()
    expect(broken).to_contain_text("Half an ans")
    expect(broken.get_by_role("alert")).to_contain_text("The connection broke off")
    assert visit.stored()[0]["messages"][1]["content"] == "Half an ans"
    broken.get_by_role("button", name="Try again").click()
    expect(visit.last).to_contain_text("Whole.")
    expect(visit.answers).to_have_count(1)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ([text("Half"), END], "The connection broke off"),
        ([text("Half"), {"error": {"message": "the forward pass failed"}}, END], "the forward pass failed"),
        ([text("Half"), b"data: {nonsense\n\n", END], "something unreadable"),
        ([text("Half"), b"data: null\n\n", END], "something unreadable"),
    ],
)
def test_a_stream_that_ends_badly_is_no_complete_answer(visit, server, script, message):
    server.scripts = [script]
    broken = visit.ask_and_wait()
    expect(broken.locator(".markdown")).to_have_text("Half")
    expect(broken.get_by_role("alert")).to_contain_text(message)


def test_odd_events_and_split_bytes_are_taken(visit, server):
    whole = b'data: {"choices":[{"index":0,"delta":{"content":"\xc3\xa4\xf0\x9f\x8c\xb8"}}]}\r\n\r\n'
    odd = [b": keep-alive\n\n", b"event: x\nid: 1\n\n", b'data: {"choices": 5}\n\n', b'data: {"choices":[{"delta":{"content":7,"tool_calls":[{"index":-1},null,{"index":1e9}]}}]}\n\n']
    split = [step for i in range(len(whole)) for step in (whole[i : i + 1], 0.002)]
    server.scripts = [[*odd, *split, *last()]]
    expect(visit.ask_and_wait().locator(".markdown")).to_have_text("ä🌸")


@pytest.mark.parametrize(
    ("script", "title", "detail"),
    [
        (error(400, "`temperature` is 7, but must be from 0 to 2"), "The server refused the request (400)", "`temperature` is 7"),
        (error(400, b'{"error":{"message":"too long","code":"context_length_exceeded"}}'), "too long for the model", "too long"),
        (error(429, "the queue is full", retry_after="3"), "The server is busy", "Try again in 3 s"),
        (error(500, "boom"), "The server failed (500)", "boom"),
        (error(502, b"Bad Gateway"), "The server failed (502)", "Bad Gateway"),
        (error(200, b"{}"), "The server sent no stream", "instead"),
    ],
)
def test_errors_are_told_in_words(visit, server, script, title, detail):
    visit.allow("the server responded with a status of")
    server.scripts = [script]
    alert = visit.ask_and_wait().get_by_role("alert")
    expect(alert).to_contain_text(title)
    expect(alert).to_contain_text(detail)


def test_a_server_that_is_gone_is_told_in_words(visit):
    visit.allow("Failed to load|ERR_")
    visit.page.route("**/v1/**", lambda route: route.abort("connectionrefused"))
    expect(visit.ask_and_wait().get_by_role("alert")).to_contain_text("The server cannot be reached")
    expect(visit.page.locator("#model-name")).to_have_text("no server")
    visit.page.unroute("**/v1/**")
    expect(visit.page.locator("#model-name")).to_have_text("scripted-model", timeout=10_000)


def test_a_key_is_asked_for_kept_and_sent(visits, server):
    server.key = "secret-key"
    visit = visits()
    visit.allow("401")
    expect(visit.page.locator("#model-name")).to_have_text("locked")
    alert = visit.ask_and_wait().get_by_role("alert")
    expect(alert).to_contain_text("This server asks for an API key")
    alert.get_by_label("API key").fill("secret-key")
    alert.get_by_role("button", name="Use key").click()
    expect(visit.last).to_contain_text("Hello.")
    assert server.request_headers[-1]["authorization"] == "Bearer secret-key"
    visit.page.reload()
    expect(visit.page.locator("#model-name")).to_have_text("scripted-model")
    panel = visit.settings()
    panel.get_by_label("Key", exact=True).fill("")
    assert visit.page.evaluate("localStorage['lily.key']") is None


def test_no_key_is_sent_where_none_is_set(visit, server):
    visit.ask_and_wait()
    assert "authorization" not in {name.lower() for name in server.request_headers[0]}
    assert "cookie" not in {name.lower() for name in server.request_headers[0]}


def test_a_cut_answer_says_so(visit, server):
    server.scripts = [answer("Too lo", finish="length")]
    expect(visit.ask_and_wait()).to_contain_text("Cut off")


def test_an_empty_answer_says_so(visit, server):
    server.scripts = [answer()]
    expect(visit.ask_and_wait()).to_contain_text("without an answer")


def test_a_very_long_answer_stays_usable_and_settled_blocks_are_not_made_again(visit, server):
    gate = threading.Event()
    paragraphs = [f"Paragraph {i} with **some** `marks` and a [link](https://example.org/{i}).\n\n" for i in range(1_500)]
    code = ["```rust\n"] + [f"let x{i} = {i};\n" for i in range(3_000)] + ["```\n"]
    server.scripts = [[text(paragraphs[0]), text("# H\n\n"), gate, *map(text, paragraphs[1:]), *map(text, code), text("done")] + last()]
    visit.ask("long")
    expect(visit.last.locator("h2")).to_be_visible()
    visit.last.locator(".markdown p").first.evaluate("(node) => { node.dataset.mark = 1; }")
    visit.page.evaluate("""() => {
      window.longest = 0;
      new PerformanceObserver((list) => { for (const e of list.getEntries()) window.longest = Math.max(window.longest, e.duration); }).observe({ type: "longtask" });
    }""")
    gate.set()
    expect(visit.page.get_by_role("button", name="Send", exact=True)).to_be_visible(timeout=60_000)
    expect(visit.last.locator(".markdown > p").last).to_have_text("done")
    assert visit.last.locator("p[data-mark]").count() == 1
    # Generous: two shared cores. Rendering all again at each token would take minutes.
    assert visit.page.evaluate("window.longest") < 2_000


def fill_screen(server, gate):
    server.scripts = [[*[text(f"Line {i}.\n\n") for i in range(60)], 0.3, gate, *[step for i in range(60, 90) for step in (text(f"Line {i}.\n\n"), 0.01)], *last()]]


def from_end(visit):
    return visit.page.evaluate("() => { const s = document.getElementById('scroller'); return s.scrollHeight - s.clientHeight - s.scrollTop; }")


def test_the_view_follows_the_end(visit, server):
    gate = threading.Event()
    fill_screen(server, gate)
    visit.ask("go")
    expect(visit.last).to_contain_text("Line 59.")
    gate.set()
    visit.finished()
    assert from_end(visit) < 3


def test_the_view_stays_where_the_user_scrolled(visit, server):
    gate = threading.Event()
    fill_screen(server, gate)
    visit.ask("go")
    expect(visit.last).to_contain_text("Line 59.")
    visit.page.mouse.move(700, 300)
    visit.page.mouse.wheel(0, -600)
    expect(visit.page.get_by_role("button", name="Go to the end")).to_be_visible()
    top = visit.page.evaluate("document.getElementById('scroller').scrollTop")
    gate.set()
    visit.finished()
    assert abs(visit.page.evaluate("document.getElementById('scroller').scrollTop") - top) < 3
    visit.page.get_by_role("button", name="Go to the end").click()
    assert from_end(visit) < 3


def test_thinking_that_breaks_off_is_kept(visit, server):
    server.scripts = [[thought("deep"), {"error": {"message": "out of memory"}}, END]]
    broken = visit.ask_and_wait()
    expect(broken.locator("summary")).to_have_text(re.compile("Thought"))
    expect(broken.get_by_role("alert")).to_contain_text("out of memory")
