"""Browser, servers and what the tests say about the page."""

import pathlib
import re

import pytest
from playwright.sync_api import expect, sync_playwright
from scripted import ScriptedServer

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PICTURES = ROOT / "target" / "page-screenshots"
DESKTOP = {"width": 1280, "height": 820}
PHONE = {"width": 360, "height": 740}

#: Set where a payload runs; no test ever expects it.
CANARY = "window.__pwned"


def pytest_addoption(parser):
    parser.addoption("--lily-url", required=True, help="address of a running `lily serve`")
    parser.addoption("--chromium", required=True, help="path of the browser")


@pytest.fixture(scope="session")
def lily_url(request):
    return request.config.getoption("--lily-url")


@pytest.fixture(scope="session")
def browser(request):
    with sync_playwright() as playwright:
        # CI runs as root in a container, where Chromium's own sandbox cannot start.
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        browser = playwright.chromium.launch(executable_path=request.config.getoption("--chromium"), args=arguments)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def scripted_session(lily_url):
    server = ScriptedServer(lily_url)
    yield server
    server.close()


@pytest.fixture
def server(scripted_session):
    scripted_session.reset()
    return scripted_session


class Visit:
    """A browser profile on one server, and the page in it. Watches what no page may do."""

    def __init__(self, browser, url, **options):
        options = {"viewport": DESKTOP, "locale": "en-US", "color_scheme": "light", **options}
        self.url = url
        self.context = browser.new_context(**options)
        self.context.set_default_timeout(10_000)
        self.context.grant_permissions(["clipboard-read", "clipboard-write"])
        self.faults = []
        self.expected = []
        self.requested = []
        self.page = self.open()

    def open(self):
        page = self.context.new_page()
        page.on("console", lambda message: message.type in ("error", "warning") and self.faults.append(message.text))
        page.on("pageerror", lambda error: self.faults.append(f"uncaught: {error}"))
        page.on("dialog", lambda dialog: (self.faults.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: self.requested.append(request.url))
        page.goto(self.url + "/")
        return page

    def allow(self, pattern):
        """The browser itself reports failed requests; a test that provokes them says so."""
        self.expected.append(pattern)

    def close(self):
        ran = [page.evaluate(f"typeof {CANARY}") for page in self.context.pages if page.url.startswith(self.url)]
        self.context.close()
        assert all(kind == "undefined" for kind in ran), "a payload ran"
        faults = [fault for fault in self.faults if not any(re.search(pattern, fault) for pattern in self.expected)]
        assert not faults, faults
        strays = [url for url in self.requested if not url.startswith(self.url + "/") and not url.startswith(("data:", "blob:"))]
        assert not strays, f"requests left the origin: {strays}"

    # What a user does and sees.

    @property
    def input(self):
        return self.page.get_by_role("textbox", name="Message", exact=True)

    @property
    def answers(self):
        return self.page.locator(".turn.answer")

    @property
    def last(self):
        return self.answers.last

    def ask(self, message):
        self.input.fill(message)
        self.input.press("Enter")

    def finished(self):
        expect(self.page.get_by_role("button", name="Send", exact=True)).to_be_visible(timeout=20_000)
        expect(self.last).to_have_attribute("aria-busy", "false")

    def ask_and_wait(self, message="hello"):
        count = self.answers.count()
        self.ask(message)
        expect(self.answers).to_have_count(count + 1)
        self.finished()
        return self.last

    def settings(self):
        self.page.get_by_role("button", name="Settings", exact=True).click()
        return self.page.get_by_role("dialog", name="Settings")

    def stored(self):
        """The conversations as the browser keeps them."""
        script = """() => Object.keys(localStorage).filter((k) => k.startsWith("lily.chat."))
            .map((k) => JSON.parse(localStorage[k])).sort((a, b) => b.updated - a.updated)"""
        return self.page.evaluate(script)

    def picture(self, name):
        PICTURES.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=PICTURES / f"{name}.png")


@pytest.fixture
def visits(browser, server):
    """Makes visits and checks them at the end."""
    made = []

    def visit(url=None, **options):
        made.append(Visit(browser, url or server.url, **options))
        return made[-1]

    yield visit
    for one in made:
        one.close()


@pytest.fixture
def visit(visits):
    return visits()
