"""One browser for all tests of the page, and the scene served beside it."""

import pytest

from tests.integration.page import scene

ROWS = "#groups tbody tr[data-group]"


@pytest.fixture(scope="session")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=scene.CHROMIUM, args=scene.FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def application():
    return scene.build()


@pytest.fixture
def address(application):
    with scene.served(application) as url:
        yield url


@pytest.fixture(scope="session")
def shared_address():
    """Provide a scene that no test changes."""
    with scene.served(scene.build()) as url:
        yield url


class Opened:
    """Opens pages; everything that one complains about fails the test, unless it is said to be expected."""

    def __init__(self, browser):
        self.browser, self.contexts, self.complaints, self.foreign = browser, [], [], []

    def __call__(self, url, *, theme="light", width=1280, height=900, wait=ROWS, script=True, before=None):
        context = self.browser.new_context(
            color_scheme=theme,
            viewport={"width": width, "height": height},
            reduced_motion="reduce",
            timezone_id="UTC",
            locale="en-GB",
            java_script_enabled=script,
        )
        self.contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(120_000)
        page.on("console", lambda m: self.complaints.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda e: self.complaints.append(str(e)))
        origin = url.split("/", 3)[2]
        page.on(
            "request", lambda r: None if origin in r.url or r.url.startswith("data:") else self.foreign.append(r.url)
        )
        if before is not None:
            page.add_init_script(before)
        page.goto(url, wait_until="domcontentloaded")
        page.wait_for_selector(wait)
        return page

    def expected(self, status):
        """Take back what the browser itself says of answers with this status; there must have been one."""
        before = len(self.complaints)
        self.complaints = [text for text in self.complaints if f"status of {status}" not in text]
        assert len(self.complaints) < before


@pytest.fixture
def opened(browser):
    """Return a function that opens a page."""
    pages = Opened(browser)
    yield pages
    for context in pages.contexts:
        context.close()
    assert pages.complaints == []
    assert pages.foreign == [], "works offline"
