"""Whatever a model, a server or a file says stays text. `Visit.close` checks that nothing ran."""

import json
import urllib.request

import pytest
from playwright.sync_api import expect
from scripted import answer, call, error, thought

RUN = "window.__pwned=1"
PAYLOADS = [
    f"<script>{RUN}</script>",
    f"<img src=x onerror='{RUN}'>",
    f"<svg onload='{RUN}'><script>{RUN}</script></svg>",
    f"<iframe srcdoc='<script>parent.{RUN}</script>'></iframe>",
    f"</pre></code></article><script>{RUN}</script>",
    f"<details open ontoggle='{RUN}'>x</details>",
    f"<a href='javascript:{RUN}'>click</a>",
    f"<style>*{{display:none}}</style><link rel=stylesheet href=https://evil.example/x.css>",
    f"<math><mtext><table><mglyph><style><img src=x onerror={RUN}>",
]
LINKS = [
    f"[a](javascript:{RUN})",
    f"[a](JaVaScRiPt:{RUN})",
    f"[a](&#106;avascript:{RUN})",
    f"[a](java\tscript:{RUN})",
    f"[a](<java\nscript:{RUN}>)",
    f"[a](\x01javascript:{RUN})",
    f"[a](data:text/html,<script>{RUN}</script>)",
    f"[a](vbscript:{RUN})",
    f"[a](blob:x) [b](file:///etc/passwd) [c](/v1/models) [d](//evil.example)",
    f"<javascript:{RUN}>",
    f"![a](https://evil.example/pixel.png)",
    f"[![a](https://evil.example/pixel.png)](javascript:{RUN})",
    f"[a](https://ok.example/\"onmouseover=\"{RUN})",
    f"[a](https://ok.example 'title\" onclick={RUN}')",
]
ALLOWED = "article, section, details, summary, div, span, p, pre, code, button, svg, use, a, br, em, strong, del, ul, ol, li, input, textarea, label, " \
    "table, thead, tbody, tr, th, td, blockquote, hr, h2, h3, h4, h5, h6"


def harmless(visit):
    """Nothing but the elements that the page makes itself, and links that lead to where links may."""
    found = visit.page.evaluate(
        """(allowed) => {
          const all = [...document.querySelectorAll("#transcript *, #chat-list *, #notices *, #toasts *")];
          const handlers = all.filter((node) => [...node.attributes].some((a) => a.name.startsWith("on")));
          const strange = all.filter((node) => !node.matches(allowed));
          const links = all.filter((node) => node.href?.baseVal === undefined && node.hasAttribute("href") && !/^(https?|mailto):/.test(node.href));
          return [...handlers, ...strange, ...links].map((node) => node.outerHTML.slice(0, 100));
        }""",
        ALLOWED,
    )
    assert found == [], found


@pytest.mark.parametrize("form", ["{}", "`{}`", "```\n{}\n```", "- {}\n", "> {}", "| {} | b |\n|---|---|\n| {} | c |", "# {}", "**{}**", "[{}](https://ok.example)"])
def test_markup_in_an_answer_is_text(visit, server, form):
    server.scripts = [answer("\n\n".join(form.replace("{}", payload) for payload in PAYLOADS))]
    last = visit.ask_and_wait()
    expect(last).to_contain_text("<script>")
    harmless(visit)


def test_links_lead_only_where_links_may(visit, server):
    server.scripts = [answer("\n\n".join(LINKS))]
    last = visit.ask_and_wait()
    for link in last.get_by_role("link").all():
        link.click(modifiers=["Alt"], trial=True)
    hosts = last.locator("a").evaluate_all("(all) => all.map((a) => new URL(a.href).host)")
    assert set(hosts) <= {"evil.example", "ok.example"}, hosts
    harmless(visit)


def test_a_language_of_code_is_text(visit, server):
    server.scripts = [answer("\n".join(f"```{p.replace(' ', '/')} x\ncode\n```" for p in PAYLOADS))]
    last = visit.ask_and_wait()
    expect(last.locator(".code")).to_have_count(len(PAYLOADS))
    harmless(visit)


def test_reasoning_tool_names_and_arguments_are_text(visit, server):
    everything = "\n\n".join(PAYLOADS + LINKS)
    calls = [call(payload, json.dumps({payload: payload}), i) for i, payload in enumerate(PAYLOADS)]
    calls.append(call("broken", PAYLOADS[0], len(PAYLOADS)))
    server.scripts = [answer(thought(everything), *calls, finish="tool_calls")]
    last = visit.ask_and_wait()
    expect(last.locator(".call")).to_have_count(len(PAYLOADS) + 1)
    last.locator("summary").click()
    expect(last.locator(".thinking .markdown")).to_contain_text("<script>")
    harmless(visit)


@pytest.mark.parametrize("body", [PAYLOADS[0], PAYLOADS[1].encode(), b"<html><script>window.__pwned=1</script>", b"\xff\x00", b"", b'{"error": {"message": {"a": 1}}}', b"[]", b"null"])
def test_error_messages_are_text(visit, server, body):
    visit.allow("400")
    server.scripts = [error(400, body)]
    last = visit.ask_and_wait()
    expect(last.get_by_role("alert")).to_contain_text("The server refused the request (400)")
    harmless(visit)


def test_a_model_name_is_text(visits, server):
    server.model["id"] = PAYLOADS[1] + "x" * 500
    visit = visits()
    expect(visit.page.locator("#model-name")).to_contain_text("<img src=x")
    assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_what_the_user_pastes_is_text_and_so_is_the_title(visit):
    visit.ask_and_wait(PAYLOADS[1])
    expect(visit.page.locator("#chat-list .title")).to_have_text(PAYLOADS[1])
    harmless(visit)


def test_imported_conversations_are_text(visit, tmp_path):
    bad = PAYLOADS[0] + PAYLOADS[1]
    turn = {"role": "assistant", "content": bad, "reasoning": bad, "calls": [{"id": bad, "name": bad, "arguments": bad}], "failure": {"kind": bad, "title": bad, "detail": bad}}
    chat = {"id": bad, "title": bad, "system": bad, "__proto__": {"x": bad}, "messages": [{"role": "user", "content": bad}, turn, {"role": "tool", "callId": bad, "content": bad}]}
    file = tmp_path / "chats.json"
    file.write_text(json.dumps({"format": "lily-conversations", "version": 1, "conversations": [chat]}))
    visit.page.locator("#import-file").set_input_files(file)
    expect(visit.page.locator(".turn.user")).to_contain_text("<script>")
    harmless(visit)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "the file is no JSON"),
        ("[]", "the file is no object"),
        ('{"format": "other"}', "`format` is not"),
        ('{"format": "lily-conversations", "version": 2}', "`version` is not 1"),
        ('{"format": "lily-conversations", "version": 1, "conversations": [{"messages": [{"role": "root"}]}]}', "messages[0].role is none of"),
        ('{"format": "lily-conversations", "version": 1, "conversations": [{"messages": [{"role": "user", "content": 5}]}]}', "messages[0].content is no text"),
    ],
)
def test_a_file_that_is_no_export_is_refused_with_a_reason(visit, tmp_path, content, problem):
    file = tmp_path / "chats.json"
    file.write_text(content)
    visit.page.locator("#import-file").set_input_files(file)
    expect(visit.page.locator(".toast")).to_contain_text(f"chats.json was not imported: {problem}")
    assert visit.stored() == []


def test_foreign_values_in_the_storage_do_no_harm(visit):
    visit.page.evaluate("""() => {
      localStorage["lily.chat.x"] = "{";
      localStorage["lily.chat.000000000000000000000000"] = JSON.stringify({ id: "1", messages: "no" });
      localStorage["lily.options"] = "[1]";
      localStorage["lily.theme"] = "constructor";
    }""")
    visit.page.reload()
    expect(visit.page.get_by_text("2 stored conversations could not be read")).to_be_visible()
    visit.ask_and_wait()


def test_the_headers_forbid_everything_else(lily_url):
    with urllib.request.urlopen(lily_url + "/", timeout=30) as response:
        headers, body = response.headers, response.read().decode()
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    for name in ["default-src", "frame-ancestors", "base-uri", "form-action"]:
        assert policy[name] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert policy["script-src"].startswith("'sha256-") and policy["style-src"].startswith("'sha256-")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["content-type"] == "text/html; charset=utf-8"
    assert "innerHTML" not in body


def test_the_policy_stops_scripts_and_requests_that_got_in_anyhow(visit):
    visit.allow("Content Security Policy|Trusted(HTML|Script)|Refused|violates")
    outcome = visit.page.evaluate("""async () => {
      const script = document.createElement("script");
      try { script.textContent = "window.__pwned = 1"; } catch {}
      document.body.append(script);
      let html = "refused";
      try { document.createElement("div").innerHTML = "<b>x</b>"; html = "taken"; } catch {}
      let fetched = "refused";
      try { await fetch("http://evil.example/"); fetched = "taken"; } catch {}
      return [html, fetched];
    }""")
    assert outcome == ["refused", "refused"]
    visit.requested = [url for url in visit.requested if "evil.example" not in url]


HOSTILE = {
    "stars": "*a **b " * 30_000,
    "closed and open": "**a*" * 40_000,
    "brackets": "[" * 100_000 + "](" * 50_000,
    "quotes": ">" * 100_000,
    "ticks": " ".join("`" * (i % 60 + 1) for i in range(6_000)),
    "lists": "\n".join(" " * (i % 40) + "- x" for i in range(4_000)),
    "addresses": "https://" + "!" * 100_000,
    "formulas": "\\(" * 60_000,
    "tables": "|a" * 45 + "|\n" + "|-" * 45 + "|\n" + ("|b" * 45 + "|\n") * 300,
    "rule-like": "- " * 60_000 + "x",
    "one line": "word " * 60_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_markdown_is_read_in_time(visit, server, name):
    server.scripts = [answer(HOSTILE[name])]
    visit.ask("go")
    visit.finished()
    expect(visit.input).to_be_editable()
    visit.picture(f"hostile-{name.replace(' ', '-')}")
