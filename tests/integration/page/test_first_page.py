"""The first page in a real Chromium: what it shows, what it complains about, and whether everybody can use it."""

import threading
from datetime import timedelta

import numpy as np
import pytest
import uvicorn

from forecaster.stores.base import Cells, SeriesKey
from headway.api.server import create_app
from tests.unit.headway.conftest import NOW, a_forecast, a_plan, a_snapshot, application, settings

pytestmark = pytest.mark.browser
__all__ = ["application", "settings"]  # fixtures

CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--no-first-run", "--disable-quic",
]  # fmt: skip


@pytest.fixture
def address(application):
    steps = 600
    first = int(NOW.timestamp()) // 60 - steps
    wave = (600 + 300 * np.sin(np.arange(steps) / 60)).astype(np.int64)
    known = np.ones((2, steps), dtype=bool)
    known[:, 200:220] = False
    cells = Cells(first, np.where(known, np.stack([wave, wave // 2]), 0), known)
    application.store.backfill(SeriesKey("orders", "arrivals"), cells)

    def fill(view):
        view.plan, view.snapshot, view.forecasts = a_plan(), a_snapshot(), {"orders": a_forecast()}

    for kind in ("plan", "snapshot", "forecast"):
        application.board.update("orders", kind, fill, NOW)
    config = uvicorn.Config(
        create_app(application), host="127.0.0.1", port=0, log_level="warning", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        thread.join(0.02)
        assert thread.is_alive(), "the server ended"
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(10)


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(params=["light", "dark"])
def page(browser, request):
    context = browser.new_context(color_scheme=request.param, viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.complaints = []
    page.on("console", lambda m: page.complaints.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda e: page.complaints.append(str(e)))
    page.asked = []
    page.on("request", lambda r: page.asked.append(r.url))
    yield page
    context.close()


def test_the_page_shows_arrivals_forecast_and_members_without_a_complaint(page, address):
    page.goto(f"{address}/", wait_until="domcontentloaded")
    page.wait_for_selector("#groups tbody tr:has-text('orders')", timeout=20_000)
    row = page.locator("#groups tbody tr:has-text('orders')").inner_text()
    assert "1 / 2 / 3" in row.replace("\xa0", " ")
    page.locator("#groups tbody tr:has-text('orders') a").first.click()
    page.wait_for_selector("#group:not([hidden]) canvas, #group:not([hidden]) .bk-Figure", timeout=20_000)
    assert page.complaints == []
    assert all(url.startswith((address, "data:")) for url in page.asked), "works offline"


def test_a_narrow_screen_does_not_scroll_sideways(page, address):
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(f"{address}/", wait_until="domcontentloaded")
    page.wait_for_selector("#groups tbody tr:has-text('orders')", timeout=20_000)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_the_overview_breaks_no_accessibility_rule(page, address):
    from axe_playwright_python.sync_playwright import Axe

    page.goto(f"{address}/", wait_until="domcontentloaded")
    page.wait_for_selector("#groups tbody tr:has-text('orders')", timeout=20_000)
    results = Axe().run(page)
    assert results.violations_count == 0, results.generate_report()


def test_a_later_plan_arrives_by_itself(page, address, application):
    page.goto(f"{address}/", wait_until="domcontentloaded")
    page.wait_for_selector("#groups tbody tr:has-text('1 / 2 / 3')", timeout=20_000)
    later = NOW + timedelta(seconds=15)
    application.board.update("orders", "plan", lambda view: setattr(view, "plan", a_plan(replicas=4)), later)
    page.wait_for_selector("#groups tbody tr:has-text('1 / 2 / 4')", timeout=20_000)
