"""headway report: a group's evidence in one file."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli import sources
from headway.cli.options import Config, writable
from headway.cli.output import Json, emit_json, emit_table, say

if TYPE_CHECKING:
    from balancer.plans.base import PlanStore
    from balancer.policy import ScalingPolicy
    from forecaster.series import ArrivalSeries
    from forecaster.stores.base import SeriesStore
    from headway.configuration.settings import Settings
    from headway.reports.report import Did

EXAMPLE = "headway report --group worldcup --input data/worldcup98_1min.csv.gz --capacity 150 --days 2"
STOPPED = "no report was written"
PAGE = 5000


def command(
    group: Annotated[str, typer.Option(help="The group; its section in headway.toml says SLO, limits and price.")],
    input: Annotated[Path | None, typer.Option("--input", help="Imported history instead of the recorded.")] = None,
    series: sources.SeriesName = None,
    days: Annotated[float | None, typer.Option(min=1, help="Days to play; 14, or what there is, by default.")] = None,
    capacity: Annotated[float | None, typer.Option(help="Records/s of one member; else configured or learned.")] = None,
    start_time: Annotated[str | None, typer.Option(help="From a member's request to its work.")] = None,
    price: Annotated[float | None, typer.Option(min=0, help="Of a member-hour, in your currency.")] = None,
    policies: Annotated[str, typer.Option(help="Names by commas, or all.")] = "all",
    out: Annotated[
        Path | None,
        typer.Option("--out", "--html", help="The HTML file; headway-report-GROUP.html by default.", callback=writable),
    ] = None,
    timezone: Annotated[str | None, typer.Option(help="IANA zone; the group's by default.")] = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Write a group's evidence into one self-contained file.

    The last two weeks of its history are played again: what the group did, what Headway would have done beside
    reactive rules, late records, member-hours, rescales and money, how good the forecast was at each lead, and where
    it was wrong and why. A second file with the same name and .json holds the figures. Works on recorded history, and
    on a trace file before Headway has ever seen the group.
    """
    from dataclasses import replace

    from headway.configuration.settings import load
    from headway.errors import HeadwayError
    from headway.reports.evidence_page import write_page
    from headway.reports.report import make_report
    from headway.reports.simulation import POLICIES
    from headway.work.children import one_child

    file = out or Path(f"headway-report-{group.replace('/', '_')}.html")
    beside = file.with_suffix(".json")
    for place in (file, beside):
        writable(place)
    names = list(POLICIES) if policies == "all" else [n.strip() for n in policies.split(",") if n.strip()]
    unknown = [n for n in names if n not in POLICIES]
    if unknown or "headway" not in names:
        wrong = f"no policy {', '.join(unknown)}" if unknown else "headway must be among them"
        raise typer.BadParameter(f"{wrong}; there are {', '.join(POLICIES)}", param_hint="--policies")
    settings = load(config)
    policy = _policy(settings, group, input is not None)
    given: dict[str, Any] = {} if capacity is None else {"capacity_per_member": capacity}
    if start_time is not None:
        given["lead_time"] = sources.duration(start_time, "--start-time")
    if price is not None:
        given["price_per_member_hour"] = price
    try:
        policy = replace(policy, **given)
    except ValueError as refused:
        raise HeadwayError(str(refused)) from refused
    with one_child() as rivals:
        more: dict[str, Any] = {"days": days, "policies": names, "say": say, "beside": rivals}
        if input is not None:
            zone = timezone or (settings.grid(group).timezone if settings.group(group) is not None else "UTC")
            history = sources.arrivals_of_file(input, series, None, "zipf:1.0", 0, zone)
            report = make_report(group, history, policy, **more)
        else:
            report = _recorded(settings, group, policy, more)
    document = report.document()
    write_page(file, report)
    from headway.cli.output import to_json

    beside.write_text(to_json(document) + "\n", encoding="utf-8")
    say(f"written: {file}, {beside}")
    if json:
        emit_json({**document, "html": str(file), "file": str(beside)})
    else:
        _print(document)


def _policy(settings: Settings, group: str, imported: bool) -> ScalingPolicy:
    from balancer.policy import ScalingPolicy
    from headway.errors import UnknownGroup

    if settings.group(group) is not None:
        return settings.policy(group)
    if imported:
        say(f"no [groups.{group}] in the settings: defaults hold for SLO, limits and start time")
        return ScalingPolicy(cap_at_partitions=False)
    raise UnknownGroup(group, settings.nearest(group))


def _recorded(settings: Settings, group: str, policy: ScalingPolicy, more: dict[str, Any]) -> Any:
    from dataclasses import replace

    from balancer.control import CAPACITY
    from balancer.prescaling import spans
    from forecaster.topics import GroupId
    from headway.errors import HeadwayError
    from headway.operation.audit import Audit
    from headway.operation.operations import Operations
    from headway.reports.report import make_report
    from headway.wiring import open_forecasts, open_plans, open_series, store_url

    own = settings.group(group)
    topics = own.topics if own is not None else ()
    if not topics:
        raise HeadwayError(f"group {group} names no topics; say topics = [...] in its settings")
    with store_url(settings) as url:
        store, plans = open_series(settings, url), open_plans(settings, url)
        try:
            recorded = sources.Recorded(store, open_forecasts(settings, store), settings.store_place)
            history = _joined([recorded.history(topic) for topic in topics])
            kept = plans.learned(GroupId(group), CAPACITY)
            if policy.capacity_per_member is None and kept and kept.get("records_per_s"):
                policy = replace(policy, capacity_per_member=float(kept["records_per_s"]))
            rules = Operations(plans, Audit()).rules(group)
            windows = [(s.start, s.end, s.rule.text) for s in spans(rules, history.start, history.end)]

            def did(start: datetime, end: datetime) -> Did | str:
                return _did(store, plans, group, topics, policy.slo, start, end)

            return make_report(group, history, policy, did=did, windows=windows, **more)
        finally:
            plans.close()
            store.close()


def _joined(histories: list[ArrivalSeries]) -> ArrivalSeries:
    from forecaster.joining import joined_history
    from headway.errors import HeadwayError

    try:
        return joined_history(histories)
    except ValueError as odd:
        raise HeadwayError(f"the topics' histories do not fit together: {odd}") from odd


def _did(
    store: SeriesStore,
    plans: PlanStore,
    group: str,
    topics: tuple[str, ...],
    slo: timedelta,
    start: datetime,
    end: datetime,
) -> Did | str:
    from forecaster.topics import GroupId
    from headway.reports.report import did_of, late_share_of

    points: list[tuple[datetime, int]] = []
    since = start
    while True:
        page = plans.decisions(GroupId(group), since, PAGE)
        points += [(d.at, int(d.inputs["working"])) for d in page if d.at < end and d.inputs.get("working")]
        if len(page) < PAGE or page[-1].at >= end:
            break
        since = page[-1].at + timedelta(microseconds=1)
    return did_of(points, end, late_share_of(store, topics, group, slo, start, end))


def _print(document: dict[str, Any]) -> None:
    from headway.reports.evidence_page import percent, verdict

    rows: list[list[object]] = []
    did = document["did"]
    if did is not None:
        late = None if did["late_share"] is None else percent(did["late_share"])
        rows.append(["(the group itself)", late, None, round(did["hours"], 1), None, did["cost"]])
    for name, f in document["policies"].items():
        rows.append(
            [name, percent(f["late_share"]), f["p99_s"], round(f["hours"], 1), f["rescales_per_day"], f["cost"]]
        )
    emit_table(["policy", "late", "p99 s", "hours", "rescales/day", "cost"], rows)
    typer.echo(verdict(document))
    for hour in document["wrong"][:3]:
        typer.echo(f"{hour['from']}: {hour['records_beyond']:,} records beyond capacity: {hour['cause']}")
