"""One browser for all tests of the page, and the scene served beside it."""

import pytest

from tests.integration.page import scene


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


@pytest.fixture(scope="module")
def shared_address():
    """Provide a scene that no test changes."""
    with scene.served(scene.build()) as url:
        yield url


@pytest.fixture
def opened(browser):
    """Return a function that opens a page; everything that it complains about fails the test."""
    contexts, complaints, foreign = [], [], []

    def open_page(url, *, theme="light", width=1280, height=900, wait="#groups tbody tr[data-group]"):
        context = browser.new_context(
            color_scheme=theme,
            viewport={"width": width, "height": height},
            reduced_motion="reduce",
            timezone_id="UTC",
            locale="en-GB",
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(30_000)
        page.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda e: complaints.append(str(e)))
        origin = url.split("/", 3)[2]
        page.on("request", lambda r: None if origin in r.url or r.url.startswith("data:") else foreign.append(r.url))
        page.goto(url, wait_until="domcontentloaded")
        page.wait_for_selector(wait)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
    assert foreign == [], "works offline"
