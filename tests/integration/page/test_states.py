"""Every state of the page is designed: first paint, empty, loading, stale, failed, gone, narrow, large, on paper."""

import pytest

from balancer.plans.memory import MemoryPlanStore
from forecaster.stores.memory import MemorySeriesStore
from headway.application import Application
from headway.configuration.settings import Settings
from headway.operation.audit import Audit
from headway.operation.operations import Operations
from headway.status.board import Board
from headway.status.metrics import Metrics
from tests.integration.page import scene
from tests.integration.page.test_page import READY, texts, until, violations

pytestmark = pytest.mark.browser
ROWS = "#groups tbody tr[data-group]"
GROUP = "#group=orders&hours=24"
MOVED = """new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) window.moved = (window.moved ?? 0) + entry.value;
}).observe({ type: 'layout-shift', buffered: true });"""
"""Adds up how far what was painted has moved."""


def test_the_overview_is_read_without_any_script(shared_address, opened):
    page = opened(f"{shared_address}/", script=False, wait="#groups tbody tr.row-attention")
    said = texts(page, "#groups tbody")
    assert "attention" in said and "6 → 9 members at 09:05, for 3,220 records/s" in said
    assert texts(page, "#summary") == "1 of 4 need attention"
    assert "member-hours" in texts(page, "#figures").lower() and "12 s" in texts(page, "#figures")


@pytest.mark.parametrize("width", [1280, 360])
def test_scripts_draw_over_the_first_paint_and_nothing_moves(shared_address, opened, width):
    page = opened(f"{shared_address}/", width=width, before=MOVED)
    page.wait_for_selector("#link:has-text('live')")
    assert page.evaluate("window.moved ?? 0") <= 0.02
    heights = "els => els.map(e => Math.round(e.getBoundingClientRect().height))"
    drawn = page.locator("#groups tbody tr").evaluate_all(heights)
    first = opened(f"{shared_address}/", width=width, script=False, wait="#groups tbody tr.row-attention")
    painted = first.locator("#groups tbody tr").evaluate_all(heights)
    assert [abs(a - b) <= 3 for a, b in zip(painted, drawn, strict=True)] == [True] * 4, (painted, drawn)


def test_a_server_without_groups_says_what_to_do(opened):
    plans, audit = MemoryPlanStore(clock=lambda: scene.NOW), Audit()
    application = Application(
        Settings(), MemorySeriesStore(clock=lambda: scene.NOW), plans, Board(), Operations(plans, audit), Metrics(),
        clock=lambda: scene.NOW,
    )  # fmt: skip
    with scene.served(application) as url:
        page = opened(f"{url}/", wait="#groups .empty code")
        assert "headway init lists the groups of your cluster" in texts(page, "#groups")
        assert texts(page, "#summary") == "no groups" and "no group yet" in texts(page, "#figures")
        assert violations(page) is None
        page.close()


def test_what_is_not_up_to_date_says_since_when_why_and_what_to_do(address, application, opened):
    page = opened(f"{address}/")
    page.wait_for_selector("#link:has-text('live')")
    page.route("**/v1/overview", lambda route: route.fulfill(status=200, body="not JSON"))
    application.board.update("orders", "plan", lambda view: None, scene.NOW)
    page.wait_for_selector("#stale:not([hidden])", timeout=120_000)
    said = texts(page, "#stale")
    assert "Not up to date since" in said and "is no JSON" in said and "last answer" in said and "headway serve" in said
    assert texts(page, "#link") == "▲ not up to date" and page.locator(ROWS).count() == 4
    assert violations(page) is None
    page.unroute("**/v1/overview")
    application.board.update("orders", "plan", lambda view: None, scene.NOW)
    page.wait_for_selector("#stale", state="hidden", timeout=120_000)


def test_a_panel_that_could_not_be_read_says_so_itself_and_one_that_is_read_says_that(shared_address, opened):
    page = opened(f"{shared_address}/", wait=ROWS)
    held = []
    page.route("**/timeline?*", lambda route: held.append(route))
    why = "redis at 127.0.0.1:6379 does not answer"
    page.route("**/heatmap?*", lambda route: route.fulfill(status=503, json={"detail": why}))
    page.locator("#groups a", has_text="orders").click()
    page.wait_for_selector("#timeline:has-text('Reading …')")
    until(page, "document.querySelector('#quality').innerText === 'Reading …'")
    until(page, lambda: held)
    held[0].continue_()
    page.wait_for_selector("#partitions .lost")
    said = texts(page, "#partitions .source")
    assert f"▲ heat not read since 08:40: {why}. Asked again within 10 s." in said
    assert page.locator("#hot").is_visible() and "heat: redis" in texts(page, "#trouble")
    page.wait_for_selector(READY)
    assert violations(page) is None
    opened.expected(503)


def test_a_group_that_is_gone_is_said_and_shows_no_empty_panels(shared_address, opened):
    page = opened(f"{shared_address}/#group=nobody&hours=24", wait="#group.gone")
    said = texts(page, "#sentence")
    assert "There is no group of this name here" in said and "Watched now: fraud-check, orders" in said
    assert page.locator("#panels").is_hidden() and page.locator("#modes").is_hidden()
    assert violations(page) is None
    page.locator("#back").click()
    page.wait_for_selector(ROWS)
    page.locator("#groups a", has_text="orders").click()
    page.wait_for_selector(READY)
    assert page.locator("#panels").is_visible()


def test_a_group_without_a_forecast_says_until_when_and_is_not_alarmed(shared_address, opened):
    page = opened(f"{shared_address}/#group=clickstream&hours=24", wait=READY)
    assert "no forecast yet: 4 of 48 hours are recorded; possible from Wed 7 Jan 04:40" in texts(page, "#sentence")
    assert "○ closed" in texts(page, "#facts") and "capacity_per_member" in texts(page, "#facts")
    assert page.locator("#trouble").is_hidden() and texts(page, "#group-facts") == "topic clicks · not seen yet"
    assert "first one comes with the first plan" in texts(page, "#timeline")
    assert "headway report --group clickstream" in texts(page, "#quality")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_narrow_and_with_dialogs_open_no_accessibility_rule_is_broken(shared_address, opened, theme):
    page = opened(f"{shared_address}/{GROUP}", theme=theme, width=360, height=740, wait=READY)
    assert violations(page) is None
    page.locator("#pause").click()
    page.wait_for_selector("#confirm-dialog[open]")
    assert violations(page) is None
    page.keyboard.press("Escape")
    page.evaluate("document.getElementById('token-dialog').showModal()")
    assert violations(page) is None


def test_a_large_screen_is_used_and_motion_is_only_for_who_wants_it(shared_address, opened):
    page = opened(f"{shared_address}/{GROUP}", width=3840, height=2160, wait=READY)
    assert page.evaluate("parseFloat(getComputedStyle(document.body).fontSize)") > 20
    assert page.evaluate("document.getElementById('stack').clientWidth") > 0.75 * 3840
    left = "id => document.querySelector(id).getBoundingClientRect().left"
    assert abs(page.evaluate(left, ".top h1") - page.evaluate(left, "#group-title")) <= 2, "one left edge"
    assert page.evaluate("document.documentElement.scrollWidth") <= 3840
    behaviour = "getComputedStyle(document.documentElement).scrollBehavior"
    assert page.evaluate(behaviour) == "auto", "reduced motion is asked for"
    page.emulate_media(reduced_motion="no-preference")
    assert page.evaluate(behaviour) == "smooth"


@pytest.mark.parametrize(("where", "width"), [("", 1280), (GROUP, 1280), (GROUP, 1920)])
def test_it_prints_to_one_page(shared_address, opened, where, width):
    page = opened(f"{shared_address}/{where}", width=width, wait=READY if where else ROWS)
    assert page.pdf(print_background=True, prefer_css_page_size=True).count(b"/Type /Page\n") == 1
