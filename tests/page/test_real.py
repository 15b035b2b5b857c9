"""The page on the real server with the demo model."""

from playwright.sync_api import expect


def test_the_demo_answers(visits, lily_url):
    visit = visits(lily_url)
    expect(visit.page.locator("#model-dot")).to_have_class("dot ready")
    panel = visit.settings()
    panel.get_by_label("Temperature").fill("0")
    panel.get_by_label("Max tokens").fill("200")
    visit.page.keyboard.press("Escape")
    visit.page.get_by_role("button", name="Think", exact=True).click()
    visit.ask("What are you?")
    expect(visit.answers).to_have_count(1)
    visit.finished()
    assert visit.last.locator(".markdown").last.inner_text().strip()
    expect(visit.last.locator(".stats")).to_contain_text("tok/s")
    expect(visit.page.get_by_role("meter", name="Context used")).to_be_visible()
    visit.ask_and_wait("What is 2 + 3?")
    assert not visit.page.get_by_role("alert").filter(has_text="refused").count()


def test_the_demo_is_stopped(visits, lily_url):
    visit = visits(lily_url)
    visit.ask("Tell me everything about yourself, at length.")
    visit.page.get_by_role("button", name="Stop", exact=True).click()
    visit.finished()
    expect(visit.last).to_contain_text("Stopped.")
    visit.ask_and_wait("What is 1 + 1?")
    assert visit.stored()[0]["messages"][3]["finish"] in ("stop", "length")


def test_the_servers_own_refusal_is_shown(visits, lily_url):
    visit = visits(lily_url)
    visit.allow("400")
    panel = visit.settings()
    panel.get_by_label("Tools as JSON").fill('[{"type": "retrieval"}]')
    visit.page.keyboard.press("Escape")
    alert = visit.ask_and_wait("hello").get_by_role("alert")
    expect(alert).to_contain_text("The server refused the request (400)")
    expect(alert).to_contain_text("tools")
