"""The page in a real Chromium: what it says, whether everybody can use it, and whether it stays smooth."""

import time
from datetime import timedelta

import pytest

from balancer.plan import Bound, PlannedStep, ScalingPlan
from forecaster.topics import GroupId
from headway.work.jobs import Jobs
from tests.integration.page import scene

pytestmark = pytest.mark.browser
READY = "#stack[data-ready]"
SERIES = """async () => {
  const { series, calls } = await import('/page/group.js'), { get } = await import('/page/api.js');
  const g = (await get('/v1/overview')).groups.find((g) => g.group === 'orders');
  const view = { hours: 24, heat: 'arrivals' }, read = {};
  for (const [name, path] of Object.entries(calls(g, view).fast)) read[name] = await get(path);
  read.delay = { resolution_s: 60, points: ['07:00', '07:01', '07:02', '07:03'].map((t, i) =>
    ({ at: `2026-01-05T${t}:00Z`, p99_s: i === 2 ? null : i })) };
  const s = series(g, read, view), at = (t) => new Date(t).toISOString().slice(11, 16);
  const inside = ({ left, right }, { x, y }) => y.filter((_, i) => x[i] > left && x[i] < right);
  const lines = { arrivals: ['truth'], members: ['working', 'requested', 'capacity'], lag: ['lag'], delay: ['delay'] };
  return Object.entries(lines).map(([panel, names]) => [
    panel, s.holes[panel].map((h) => [at(h.left), at(h.right)]),
    names.map((n) => [
      s[n].y.some(Number.isFinite), s.holes[panel].flatMap((h) => inside(h, s[n])).every(Number.isNaN)])]);
}"""
"""Of each panel: spans that are not known, and of each of its lines whether it is known at all and never in them."""


def until(page, expression, seconds=120):
    """Wait until an expression holds, or a function of ours says so.

    It is asked from here: the page's own policy forbids the scripts made of text by which Playwright would wait in it.
    """
    limit = time.monotonic() + seconds
    while not (expression() if callable(expression) else page.evaluate(expression)):
        assert time.monotonic() < limit, expression
        page.wait_for_timeout(50)


def violations(page, within=None):
    """Return what breaks the rules in the page, or in a part of it; or None."""
    from axe_playwright_python.sync_playwright import Axe

    results = Axe().run(page, context=within)
    return results.generate_report() if results.violations_count else None


def texts(page, selector):
    return " ".join(page.locator(selector).inner_text().split())


def test_the_overview_puts_first_who_needs_a_person(shared_address, opened):
    page = opened(f"{shared_address}/")
    rows = page.locator("#groups tbody tr[data-group]")
    assert [rows.nth(i).get_attribute("data-group") for i in range(4)] == [
        "fraud-check", "orders", "billing", "clickstream",
    ]  # fmt: skip
    first, second, last = (
        texts(page, f"#groups tr[data-group='{g}']") for g in ("fraud-check", "orders", "clickstream")
    )
    assert "attention" in first and "members stay as they are until it does" in first
    assert "acting now" in second and "5 / 6 / 6" in second and "6 → 9 members at 09:05" in second
    assert "no forecast yet: 4 of 48 hours are recorded; possible from Wed 7 Jan 04:40" in last
    assert "Late records" in texts(page, "#figures") and "the reactive rule" in texts(page, "#figures")
    assert page.title() == "▲ 1 of 4 need attention · Headway"


def test_one_group_shows_every_panel_with_its_source(shared_address, opened):
    page = opened(f"{shared_address}/#group=orders&hours=24&expected=1h", wait=READY)
    for chart in ("arrivals", "members", "delay", "lag", "heat"):
        assert page.locator(f"#chart-{chart} .bk-Figure").count() == 1, chart
    assert "Partition 7 outgrows one member from Mon 5 Jan" in texts(page, "#hot")
    assert "orders-0" in texts(page, "#owners") and "orders-0 → orders-2 planned" in texts(page, "#moves")
    assert "start takes 118 s" in texts(page, "#timeline") and "Members" in texts(page, "#plan")
    assert "Error by lead time" in texts(page, "#quality") and "Worst hours" in texts(page, "#quality")
    assert "winter sale" in texts(page, "#windows") and "(Europe/Berlin) for 2 h" in texts(page, "#windows")
    assert "prescale add" in texts(page, "#entries") and "duration 2 h, at least 9" in texts(page, "#entries")
    assert "from Mon 5 Jan 12:00, to Mon 5 Jan 14:00" in texts(page, "#entries"), "the group's zone"
    assert "Europe/Berlin (CET), now 08:40" in texts(page, "#zone")
    facts = texts(page, "#facts")
    assert "Gate ● open the forecast may act: error 6.1 % over the last day" in facts
    assert "Bound by partition orders:7 from Monday 11:40" in facts and "takes 500 records/s" in facts
    assert "Age of inputs arrivals 12 s · forecast 41 s · plan 0 s · snapshot 3.0 s" in facts
    assert "plans are carried out: members are added and removed" in texts(page, "#mode-means")
    calls = page.locator("[data-calls] a").evaluate_all("links => links.map(a => a.getAttribute('href'))")
    assert len(calls) >= 14 and all(href.startswith("/v1/") for href in calls)
    panels = "els => els.map(e => e.querySelector('[data-calls]')?.innerText.slice(0, 9))"
    said = page.locator("#panels figure, #panels section").evaluate_all(panels)
    assert len(said) == 15 and set(said) == {"GET /v1/g", "GET /v1/p", "GET /v1/a", "GET /v1/j", "POST /v1/"}, said


def test_assignment_has_the_arrows_of_the_last_change_and_the_hour_of_saturation(shared_address, opened):
    page = opened(f"{shared_address}/#group=orders&hours=24", wait=READY)
    assert page.locator("#owners .arrow.moved").count() == 2 and page.locator("#owners .arrow.planned").count() == 1
    said = page.locator("#owners .arrows").get_attribute("aria-label")
    assert "orders:3 is planned to move from orders-0 to orders-2" in said
    assert "Arrows: the last change, 08:32 (2 partitions); dashed: planned (1 partition)" in texts(page, "#owners")
    assert "times the mean" in texts(page, "#owners") and "▲ 121 %" in texts(page, "#hot")
    assert "outgrows a member" in texts(page, "#heat-key")
    page.locator("#owners summary").click()
    assert "orders-0" in texts(page, "#owners table") and "orders:7" in texts(page, "#owners table")
    page.locator("#stack").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowUp", "ArrowLeft"):
        page.keyboard.press(key)
    said = texts(page, "#readout")
    assert "partition 7" in said and "of a member" in said, said
    assert page.locator("#hot time").first.get_attribute("title") == "2026-01-05 10:20 UTC", "UTC on hover"


def test_evidence_names_what_rules_would_have_cost(shared_address, opened):
    page = opened(f"{shared_address}/#group=orders&hours=24", wait=READY)
    said = texts(page, "#quality .box table")
    assert "Cost, at 0.12 a member-hour" in said and "the reactive rule" in said and "static peak, 8 members" in said
    assert "0 of 109 M" in said and "12 of 24" in said
    assert "Members were seen for 23 h of them" in texts(page, "#quality .box")


def test_a_decision_opens_to_its_reasons_and_inputs(shared_address, opened):
    page = opened(f"{shared_address}/#group=orders&hours=24", wait=READY)
    page.locator("#timeline summary").nth(1).click()
    page.wait_for_selector("#timeline details[open] .full li")
    full = texts(page, "#timeline details[open] .full")
    assert "within the day's budget" in full and "headway replay-decision" in full and "Acted 4 → 6 members" in full


def test_a_decision_has_an_address_says_what_came_of_it_and_is_computed_again(shared_address, opened):
    at = "2026-01-05T07:40:00Z"
    page = opened(f"{shared_address}/#group=orders&hours=24&decision={at}", wait=READY)
    page.wait_for_selector(f"#timeline details[data-at='{at}'][open] .full table")
    full = texts(page, "#timeline details[open] .full")
    assert "Choice Members Paid hours" in full and "stay, chosen 6" in full
    assert "Verified it worked: after 41 s each of them works." in full
    page.locator("#timeline .replay").click()
    page.wait_for_selector("#timeline [role=status]:has-text('The same answer: 6 members.')")
    assert violations(page) is None
    page.locator("#timeline details[open] summary").click()
    until(page, "!location.hash.includes('decision')")
    page.locator("#timeline summary").nth(2).click()
    until(page, "location.hash.includes('decision=2026-01-05T07%3A10')")
    page.wait_for_selector("#timeline details[open] .full .replay")
    page.locator("#timeline details[open] .replay").click()
    page.wait_for_selector("#timeline [role=status]:has-text('are no longer kept')")
    opened.expected(409)


def test_a_decision_shows_what_its_alternatives_would_have_cost(shared_address, opened):
    page = opened(f"{shared_address}/#group=orders&hours=24", wait=READY)
    costs = [
        ("one_less", 5, 130.5, 0.0, 9100.0),
        ("hold", 6, 131.0, 0.5, 12.0),
        ("chosen", 6, 131.0, 0.5, 12.0),
        ("one_more", 7, 152.0, 0.5, 0.0),
    ]
    names = ("choice", "replicas", "paid_hours", "rescale_hours", "late_records")  # as Alternative has them

    def with_alternatives(route):
        answer = route.fetch()
        body = answer.json()
        for decision in body["decisions"]:
            decision["alternatives"] = [dict(zip(names, c, strict=True)) for c in costs]
            decision["replicas"] = 6
        route.fulfill(response=answer, json=body)

    page.route("**/decisions?*", with_alternatives)
    page.locator("#timeline summary").nth(1).click()
    page.wait_for_selector("#timeline details[open] .full table")
    rows = page.locator("#timeline details[open] .full tbody tr").all_inner_texts()
    first = [" ".join(row.split()[:-4]) for row in rows]
    assert first == ["one less 5", "stay, chosen 6", "one more 7"]
    assert "9,100" in rows[0] and "152" in rows[2]


def test_keys_move_the_cursor_and_the_readout_says_what_stands_there(shared_address, opened):
    page = opened(f"{shared_address}/#group=orders&hours=24&expected=1h", wait=READY)
    page.locator("#stack").focus()
    page.keyboard.press("ArrowLeft")
    said = texts(page, "#readout")
    assert "arrived" in said and "expected" in said and "working" in said and "UTC" in said
    for _ in range(4):
        page.keyboard.press("Shift+ArrowRight")
    assert "forecast" in texts(page, "#readout") and "planned" in texts(page, "#readout")
    page.keyboard.press("+")
    until(page, "/zoom=[0-9]+-[0-9]+/.test(location.hash)")
    same = opened(page.url, wait=READY)
    ticks = "document.querySelector('#stack[data-ready]') && location.hash"
    assert same.evaluate(ticks) == page.evaluate("location.hash"), "a link to what is zoomed to is that"
    page.keyboard.press("0")
    until(page, "!location.hash.includes('zoom')")
    page.keyboard.press("Escape")
    page.wait_for_selector("#overview:not([hidden])")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.textContent") == "fraud-check"


def test_a_gap_is_said_to_be_unknown_and_every_chart_has_its_table(shared_address, opened):
    page = opened(f"{shared_address}/#group=orders&hours=24", wait=READY)
    page.locator("#stack").focus()
    for _ in range(7):
        page.keyboard.press("Shift+ArrowLeft")
    assert "nothing was recorded then" in texts(page, "#readout")
    for panel in ("arrivals", "members", "delay", "lag", "heat"):
        page.locator(f"details[data-panel={panel}] summary").click()
        page.wait_for_selector(f"details[data-panel={panel}] table tbody tr")
    assert violations(page, "#stack") is None


def test_no_line_runs_through_what_is_not_known_and_it_is_hatched(shared_address, opened):
    page = opened(f"{shared_address}/#group=orders&hours=24", wait=READY)
    drawn = page.evaluate(SERIES)
    unseen = [["20:00", "21:00"]]
    assert drawn == [
        ["arrivals", unseen, [[True, True]]],
        ["members", unseen, [[True, True]] * 3],
        ["lag", unseen, [[True, True]]],
        ["delay", [["07:40", "06:59"], ["07:01", "07:02"]], [[True, True]]],  # nothing before its first point either
    ]


def test_what_if_answers_with_cost_and_lateness_and_changes_nothing(address, application, opened):
    before = application.board.get("orders").plan
    page = opened(f"{address}/#group=orders&hours=24", wait=READY)
    page.locator("#whatif-load").focus()
    for _ in range(20):
        page.keyboard.press("ArrowRight")
    page.wait_for_selector("#whatif-body .answer table")
    answer = texts(page, "#whatif-body .answer")
    assert "member-hours more" in answer and "Expected beyond capacity" in answer and "Cost, at 0.12" in answer
    assert page.locator("#whatif .p-as").count() == page.locator("#whatif .p-then").count() == 1
    said = page.locator("#whatif svg").get_attribute("aria-label")
    assert said.startswith("members: as it is 9 from Mon 5 Jan 08:40") and "what if" in said
    assert violations(page) is None
    assert application.board.get("orders").plan is before


def test_a_group_of_several_topics_shows_the_charts_of_the_one_that_is_chosen(address, application, opened):
    _, forecast = scene._fill(application, "orders", "returns", 0.5, 4, gap=False)

    def more(view):
        view.topics, view.forecasts["returns"] = ("orders", "returns"), forecast
        view.gates["returns"] = (True, ("error 7 %",))

    application.board.update("orders", "forecast", more, scene.NOW)
    page = opened(f"{address}/#group=orders&hours=24", wait=READY)
    assert texts(page, "#group-topics") == "Charts of orders, returns"
    page.locator("#group-topics a").click()
    page.wait_for_selector("#group-topics strong:has-text('returns')")
    page.wait_for_selector("a[href*='name=arrivals'][href*='topic=returns']", state="attached")
    assert page.url.endswith("topic=returns")
    page.wait_for_selector("#group-topics a:has-text('orders')")
    assert violations(page) is None


def test_jobs_say_how_they_ended_and_when_they_run_next(address, application, opened):
    jobs = Jobs(application.board, application.metrics, clock=lambda: scene.NOW)
    jobs.cron("seal", "orders", "0 * * * *", "UTC", lambda: "packed 3 days")
    jobs.cron("retrain", "billing", "15 3 * * *", "UTC", lambda: "kept the model")
    jobs.on_demand("plan", "orders", lambda: "no plan")
    jobs.run_now("seal", "orders")
    application.jobs = jobs
    page = opened(f"{address}/#group=orders&hours=24", wait=READY)
    said = texts(page, "#schedule")
    assert "seal 08:40" in said and "packed 3 days" in said and "not yet" in said
    assert "retrain" not in said, "of another group"
    assert violations(page) is None


def test_a_mode_is_changed_only_after_a_word_on_what_that_means(address, application, opened):
    page = opened(f"{address}/#group=orders&hours=24", wait=READY)
    page.locator("#modes input[value=recommend]").check(force=True)
    page.wait_for_selector("#confirm-dialog[open]")
    assert "nothing is changed" in texts(page, "#confirm-text")
    page.locator("#confirm-dialog button[value=no]").click()
    until(page, "document.querySelector('#modes input[value=act]').checked")
    assert application.board.get("orders").mode == "act"
    page.locator("#modes input[value=recommend]").check(force=True)
    page.locator("#confirm-dialog button[value=yes]").click()
    until(page, "document.querySelector('#modes input[value=recommend]').checked")
    page.wait_for_selector("#entries:has-text('mode')")
    assert application.board.get("orders").mode == "recommend"


def test_a_later_plan_arrives_by_itself(address, application, opened):
    page = opened(f"{address}/")
    steps = (PlannedStep(scene.NOW, 11, 4100.0),)
    later = ScalingPlan(GroupId("orders"), scene.NOW, steps, Bound(), ("a burst came",), 6)
    application.board.update(
        "orders", "plan", lambda view: setattr(view, "plan", later), scene.NOW + timedelta(seconds=1)
    )
    said = "6 → 11 members now: a burst came"
    page.wait_for_selector(f"#groups tr[data-group='orders']:has-text('{said}')", timeout=120_000)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("where", ["", "#group=orders&hours=24&expected=1h", "#group=clickstream&hours=24"])
def test_no_accessibility_rule_is_broken(shared_address, opened, theme, where):
    page = opened(f"{shared_address}/{where}", theme=theme, wait=READY if where else "#groups tr[data-group]")
    assert violations(page) is None
    page.keyboard.press("?")
    page.wait_for_selector("#keys-dialog[open]")
    assert violations(page) is None


@pytest.mark.parametrize("where", ["", "#group=orders&hours=24"])
def test_a_narrow_screen_does_not_scroll_sideways(shared_address, opened, where):
    page = opened(f"{shared_address}/{where}", width=360, height=740, wait=READY if where else "#groups tr[data-group]")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_thousand_partitions_stay_smooth(opened):
    with scene.served(scene.build(partitions=1000)) as url:
        page = opened(f"{url}/#group=orders&hours=24&expected=1h", wait=READY)
        frames = page.evaluate(scene.FRAMES)
        page.close()
    frames.sort()
    assert len(frames) >= 30  # how smooth is what `make bench-page` measures: here only that it does not crawl
    assert frames[len(frames) // 2] <= 400, frames
