"""The page around the conversation: what is kept, keys, sizes, colours."""

import json

from conftest import DESKTOP, PHONE
from playwright.sync_api import expect
from scripted import answer, thought

SAMPLE = """## Three things to know

A **hash map** finds a key in *constant* time; see [the book](https://doc.rust-lang.org/book/).

1. Hash the key with `hasher.finish()`
2. Take the remainder
   - collisions go to the next bucket
3. Compare the keys

```rust
/// Counts the words of a text.
fn count(text: &str) -> HashMap<&str, usize> {
    let mut counts = HashMap::new();
    for word in text.split_whitespace() {
        *counts.entry(word).or_insert(0) += 1; // one more
    }
    counts
}
```

| Operation | Average | Worst |
|:--|:-:|--:|
| insert | O(1) | O(n) |
| a_very_long_identifier_that_does_not_fit_on_a_phone_at_all | O(1) | O(n) |

> Keep the load below 0.9. https://example.org/a/very/long/address/that/has/no/place/to/break/at/all/in/this/line
"""


def fits(visit):
    wide = visit.page.evaluate("""() => [...document.querySelectorAll("#shell *, #settings *, #toasts *")]
        .filter((node) => !node.closest("pre, .table, #sidebar:not(.open)") && node.checkVisibility() && node.getBoundingClientRect().right > innerWidth + 1)
        .map((node) => node.outerHTML.slice(0, 80))""")
    assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth") and wide == [], wide


# What is kept.


def test_a_reload_keeps_conversations_and_the_open_one(visit):
    visit.ask_and_wait("first question")
    visit.page.get_by_role("button", name="New chat").first.click()
    visit.ask_and_wait("second question")
    visit.page.reload()
    expect(visit.page.locator(".turn.user")).to_have_text("second question")
    expect(visit.last.locator(".stats")).to_contain_text("42.5 tok/s")
    expect(visit.page.locator("#chat-list .title")).to_have_text(["second question", "first question"])


def test_a_reload_in_the_middle_keeps_what_came(visit, server):
    server.scripts = [answer("Half an", *[0.05, "."] * 300), answer("x")]
    visit.ask("go")
    expect(visit.last).to_contain_text("Half an")
    visit.page.reload()
    expect(visit.last).to_contain_text("Half an")
    expect(visit.last).to_contain_text("Stopped.")
    assert server.left.wait(5), "the server still writes"


def test_a_reload_keeps_the_draft(visit):
    visit.input.fill("half a thou")
    visit.page.reload()
    expect(visit.input).to_have_value("half a thou")


def test_rename_search_delete_and_undo(visit):
    for question in ["apples", "pears"]:
        visit.page.get_by_role("button", name="New chat").first.click()
        visit.ask_and_wait(question)
    titles = visit.page.locator("#chat-list .title")
    titles.first.hover()
    visit.page.get_by_role("button", name="Rename pears").click()
    visit.page.get_by_role("textbox", name="Title").fill("Bartlett")
    visit.page.keyboard.press("Enter")
    expect(titles).to_have_text(["Bartlett", "apples"])
    search = visit.page.get_by_role("searchbox")
    search.fill("PEARS")
    expect(titles).to_have_text(["Bartlett"])
    search.fill("zebra")
    expect(visit.page.get_by_text("Nothing found.")).to_be_visible()
    search.press("Escape")
    expect(titles).to_have_count(2)
    titles.last.hover()
    visit.page.get_by_role("button", name="Delete apples").click()
    expect(titles).to_have_text(["Bartlett"])
    visit.page.get_by_role("button", name="Undo").click()
    expect(titles).to_have_count(2)
    assert {chat["title"] for chat in visit.stored()} == {"Bartlett", "apples"}


def test_export_and_import_carry_everything(visits, server, tmp_path):
    server.scripts = [answer(thought("Hm."), "Ä **bold** answer.")]
    visit = visits()
    visit.ask_and_wait("a question")
    panel = visit.settings()
    with visit.page.expect_download() as download:
        panel.get_by_role("button", name="Export all").click()
    file = tmp_path / "export.json"
    download.value.save_as(file)
    assert json.loads(file.read_text())["format"] == "lily-conversations"
    other = visits()
    with other.page.expect_file_chooser() as chooser:
        other.settings().get_by_role("button", name="Import").click()
    chooser.value.set_files(file)
    expect(other.last.locator("strong")).to_have_text("bold")
    [mine], [theirs] = visit.stored(), other.stored()
    assert mine.pop("id") != theirs.pop("id")
    assert mine == theirs


def test_deleting_all_asks_first(visit):
    visit.ask_and_wait()
    panel = visit.settings()
    panel.get_by_role("button", name="Delete all").click()
    assert len(visit.stored()) == 1
    panel.get_by_role("button", name="Delete", exact=True).click()
    expect(visit.page.get_by_text("No conversations yet.")).to_be_visible()
    assert visit.stored() == []


def test_a_full_storage_is_told_and_ends_when_room_is_made(visit):
    visit.ask_and_wait("small")
    visit.page.evaluate("localStorage['filler'] = 'x'.repeat(1000)")
    visit.page.evaluate("""() => { let n = 5_000_000; while (n >= 10) { try { localStorage["filler"] += "x".repeat(n); } catch { n = Math.floor(n / 2); } } }""")
    visit.ask_and_wait("does not fit")
    alert = visit.page.locator("#notices").get_by_role("alert")
    expect(alert).to_contain_text("storage for this page is full")
    expect(alert.get_by_role("button", name="Export all")).to_be_visible()
    expect(visit.last).to_contain_text("Hello.")
    visit.page.evaluate("delete localStorage['filler']")
    visit.ask_and_wait("fits again")
    expect(alert).to_have_count(0)
    assert len(visit.stored()[0]["messages"]) == 6


def test_two_tabs_agree(visit):
    visit.ask_and_wait("from the first tab")
    second = visit.open()
    expect(second.locator("#chat-list .title")).to_have_text("from the first tab")
    second.locator("#chat-list .title").click()
    second.locator("#input").fill("from the second")
    second.keyboard.press("Enter")
    expect(visit.page.locator(".turn.user")).to_have_text(["from the first tab", "from the second"])


# Keys and names.


def test_everything_works_by_keyboard(visit, server):
    press = visit.page.keyboard.press
    expect(visit.input).to_be_focused()
    visit.page.keyboard.type("line one")
    press("Shift+Enter")
    visit.page.keyboard.type("line two")
    press("Enter")
    visit.finished()
    assert server.requests[0]["messages"][0]["content"] == "line one\nline two"
    # From the field forward and back; what has the focus is seen.
    press("Tab")
    expect(visit.page.get_by_role("button", name="Think", exact=True)).to_be_focused()
    outline = visit.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    press("Space")
    expect(visit.page.get_by_role("button", name="Think", exact=True)).to_have_attribute("aria-pressed", "false")
    press("Tab")
    press("Enter")
    expect(visit.page.get_by_role("dialog")).to_be_visible()
    press("Escape")
    expect(visit.page.get_by_role("dialog")).to_be_hidden()
    press("/")
    expect(visit.input).to_be_focused()
    visit.page.keyboard.type("/")
    expect(visit.input).to_have_value("/")


def test_escape_stops(visit, server):
    server.scripts = [answer("a", *[0.05] * 200)]
    visit.ask("go")
    expect(visit.last).to_contain_text("a")
    visit.page.keyboard.press("Escape")
    visit.finished()
    expect(visit.last).to_contain_text("Stopped.")


def test_the_list_is_walked_with_arrows(visit):
    for question in ["one", "two"]:
        visit.page.get_by_role("button", name="New chat").first.click()
        visit.ask_and_wait(question)
    visit.page.get_by_role("searchbox").focus()
    visit.page.keyboard.press("ArrowDown")
    visit.page.keyboard.press("ArrowDown")
    visit.page.keyboard.press("Enter")
    expect(visit.page.locator(".turn.user")).to_have_text("one")


def test_an_input_method_can_use_enter(visit, server):
    visit.input.fill("にほん")
    visit.input.dispatch_event("keydown", {"key": "Enter", "isComposing": True, "bubbles": True})
    assert server.requests == []


def test_every_control_has_a_name_and_changes_are_announced(visit):
    visit.ask_and_wait()
    expect(visit.page.locator("#live")).to_have_text("Answer: Hello.")
    visit.settings()
    nameless = visit.page.evaluate("""() => [...document.querySelectorAll("button, input:not([type=file]), textarea")]
        .filter((node) => !(node.getAttribute("aria-label") || node.textContent.trim() || node.labels?.length)).map((node) => node.outerHTML)""")
    assert nameless == []
    for role, name in [("navigation", "Conversations"), ("log", "Conversation"), ("dialog", "Settings")]:
        expect(visit.page.locator(f"nav, [role={role}], dialog").and_(visit.page.get_by_role(role, name=name, include_hidden=True))).to_have_count(1)


# Sizes and colours.


def test_on_a_phone_the_list_is_a_drawer_and_nothing_is_cut(visits, server):
    server.scripts = [answer(thought("Short."), SAMPLE)]
    visit = visits(viewport=PHONE, is_mobile=True, has_touch=True, device_scale_factor=2)
    fits(visit)
    visit.picture("phone-start")
    visit.ask_and_wait("Explain how a hash map works, with an example in Rust.")
    fits(visit)
    visit.picture("phone-chat")
    drawer = visit.page.get_by_role("navigation", name="Conversations")
    expect(drawer).to_be_hidden()
    visit.page.get_by_role("button", name="Conversations").tap()
    expect(drawer).to_be_visible()
    visit.page.wait_for_timeout(300)
    visit.picture("phone-drawer")
    visit.page.locator(".scrim").tap(position={"x": 340, "y": 300})
    expect(drawer).to_be_hidden()
    visit.page.get_by_role("button", name="Conversations").tap()
    visit.settings()
    visit.page.wait_for_timeout(300)
    fits(visit)
    visit.picture("phone-settings")


def background(visit):
    return visit.page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).reduce((sum, n) => sum + Number(n), 0) / 3")


def test_colours_follow_the_system_and_the_switch(visits, server):
    server.scripts = [answer(thought("Short."), SAMPLE)]
    dark = visits(color_scheme="dark")
    assert background(dark) < 60
    dark.picture("desktop-dark-start")
    dark.ask_and_wait("Explain how a hash map works, with an example in Rust.")
    dark.picture("desktop-dark-chat")
    dark.page.get_by_role("button", name="Colours of the system").click()
    assert background(dark) > 200
    dark.page.reload()
    assert background(dark) > 200
    light = visits()
    assert background(light) > 200
    light.picture("desktop-light-start")
    light.ask_and_wait("Explain how a hash map works, with an example in Rust.")
    light.picture("desktop-light-chat")
    light.settings()
    light.page.wait_for_timeout(300)
    light.picture("desktop-light-settings")


CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (color) => { canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const light = (color) => rgb(color).slice(0, 3).map((v) => v / 255).map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const opaque = (node) => { for (; node; node = node.parentElement) { const c = getComputedStyle(node).backgroundColor; if (!/, 0\\)$|0\\.\\d+\\)$/.test(c)) return c; } return "white"; };
  const poor = [];
  for (const node of document.querySelectorAll("#shell *, #settings *")) {
    if (!node.checkVisibility({ opacityProperty: true }) || ![...node.childNodes].some((c) => c.nodeType === 3 && c.data.trim())) continue;
    const [a, b] = [light(getComputedStyle(node).color), light(opaque(node))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) poor.push(`${node.className || node.tagName} “${node.textContent.slice(0, 30)}” ${ratio.toFixed(2)}`);
  }
  return [...new Set(poor)];
}"""


def test_text_can_be_read(visits, server):
    server.scripts = [answer(thought("Short."), SAMPLE)]
    for scheme in ["light", "dark"]:
        visit = visits(color_scheme=scheme)
        visit.ask_and_wait()
        # Not while the thing to be seen still fades in.
        visit.page.wait_for_timeout(300)
        assert (poor := visit.page.evaluate(CONTRAST)) == [], poor
        visit.settings()
        visit.page.wait_for_timeout(300)
        assert (poor := visit.page.evaluate(CONTRAST)) == [], poor


def test_nothing_moves_for_those_who_want_no_motion(visits, server):
    server.scripts = [answer(0.5, "slow")]
    visit = visits(reduced_motion="reduce")
    visit.ask("go")
    expect(visit.page.locator(".turn.waiting")).to_be_visible()
    assert visit.page.evaluate("document.getAnimations().length") == 0
    visit.finished()


def test_a_window_that_becomes_narrow_keeps_working(visit):
    visit.ask_and_wait()
    for size in [PHONE, {"width": 760, "height": 400}, DESKTOP]:
        visit.page.set_viewport_size(size)
        fits(visit)
        expect(visit.input).to_be_in_viewport()
