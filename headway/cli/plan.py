"""headway plan: the plan from now to the horizon, of a group or of a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli import sources
from headway.cli.output import Json, emit_json, emit_table, say
from headway.configuration.durations import instant

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from balancer.plan import ScalingPlan
    from balancer.policy import ScalingPolicy
    from forecaster.forecast import ForecastResult
    from forecaster.series import ArrivalSeries

EXAMPLE = "headway plan --input data/nyc_taxi_30min.csv.gz --capacity 0.5"


def command(
    group: Annotated[str | None, typer.Option(help="A configured group: its published plan.")] = None,
    live: Annotated[bool, typer.Option("--live", help="Plan the group anew from what is seen now.")] = False,
    input: sources.InputFile = None,
    capacity: Annotated[float | None, typer.Option(help="Records/s that one member sustains.")] = None,
    partitions: sources.Partitions = None,
    skew: sources.Skew = "zipf:1.0",
    seed: sources.Seed = 0,
    series: sources.SeriesName = None,
    at: Annotated[str | None, typer.Option(help="Plan as of this instant; the end of the trace by default.")] = None,
    replicas: Annotated[int | None, typer.Option(help="Members requested now; what the rate needs by default.")] = None,
    start_time: Annotated[str, typer.Option(help="From a member's request to its work.")] = "120s",
    slo: Annotated[str, typer.Option(help="A record is late beyond this latency.")] = "60s",
    min_replicas: Annotated[int, typer.Option(min=0)] = 1,
    max_replicas: Annotated[int, typer.Option(min=1)] = 64,
    timezone: sources.Timezone = "UTC",
    missing: sources.Missing = None,
    config: sources.ConfigFile = None,
    json: Json = False,
) -> None:
    """Plan members from now to the horizon.

    Of a group, the plan that was published last, or with --live the one that a tick would make now, which is neither
    published nor acted on. From a file, what the control tick would publish at the end of the
    trace, with the safe default knobs.
    """
    if (group is None) == (input is None):
        raise typer.BadParameter("say either --group GROUP or --input FILE", param_hint="--input")
    if live and group is None:
        raise typer.BadParameter("--live plans a configured group; say --group", param_hint="--live")
    if group is not None:
        document = _of_group(group, live, config)
        emit_json(document) if json else _print_document(document)
        return
    from datetime import timedelta

    from balancer.policy import AssignmentKind, ScalingPolicy
    from headway.errors import HeadwayError

    if capacity is None:
        raise typer.BadParameter("a trace needs --capacity, records/s of one member", param_hint="--capacity")
    assert input is not None
    history = sources.arrivals_of_file(input, series, partitions, skew, seed, timezone, missing)
    partitioned = partitions is not None or len(history.partitions) > 1
    now = history.end if at is None else sources.instant(at, "--at")
    if not history.start < now <= history.end:
        raise HeadwayError(
            f"--at {instant(now)} lies outside the trace, {instant(history.start)} to {instant(history.end)}"
        )
    policy = ScalingPolicy(
        capacity_per_member=capacity,
        lead_time=timedelta(seconds=sources.duration(start_time, "--start-time").total_seconds()),
        slo=timedelta(seconds=sources.duration(slo, "--slo").total_seconds()),
        min_replicas=min_replicas,
        max_replicas=max_replicas,
        cap_at_partitions=partitioned,
        assignment=AssignmentKind.PLANNED if partitioned else AssignmentKind.SCALE_ONLY,
    )
    made = plan_of_trace(history, now, policy, replicas, timezone)
    if json:
        from headway.status.wire import plan_document

        emit_json(plan_document(made))
    else:
        _print(made)


def plan_of_trace(
    history: ArrivalSeries, now: datetime, policy: ScalingPolicy, replicas: int | None, timezone: str
) -> ScalingPlan:
    """Return the plan that the control tick would make at ``now`` from what the trace holds before it."""
    import math

    from balancer.group import GroupSnapshot, Member, PartitionState
    from balancer.planner import plan
    from forecaster.forecast import NoForecast
    from forecaster.topics import GroupId, TopicPartition
    from headway.reports.simulation import arrivals_of, ridge_forecaster

    trace, _ = arrivals_of(history.until(now), policy.cap_at_partitions)
    minutes = trace.minutes()
    total = minutes.sum(axis=0)
    rates = minutes[:, -1] / 60
    assert policy.capacity_per_member is not None
    need = math.ceil(float(rates.sum()) / (policy.target_utilization * policy.capacity_per_member) - 1e-9)
    most = min(policy.max_replicas, rates.size) if policy.cap_at_partitions else policy.max_replicas
    current = min(max(need, policy.min_replicas), most) if replicas is None else replicas
    names = [TopicPartition(history.topic, p) for p in history.partitions]
    snapshot = GroupSnapshot(
        GroupId(history.topic),
        now,
        current,
        tuple(Member(f"m-{i}") for i in range(current)),
        {name: PartitionState(0, rate) for name, rate in zip(names, rates.tolist(), strict=True)},
    )
    batch = ridge_forecaster(total)(total.size, total.size + 1)
    if batch is None:
        forecast: ForecastResult = NoForecast(
            history.topic, now, f"{total.size / 1440:.1f} days of history, 4 are needed"
        )
    else:
        recent = minutes[:, -60:].sum(axis=1)
        shares = recent / recent.sum() if recent.sum() > 0 else recent * 0 + 1 / recent.size
        forecast = batch.at(total.size, now, shares, history.topic)
    return plan(snapshot, forecast, policy, now, timezone=timezone).plan


def _of_group(group: str, live: bool, config: Path | None) -> dict[str, Any]:
    """Return a group's plan, and of a planned group who holds and gets what, which is there before any plan is."""
    from balancer.policy import AssignmentKind
    from headway.configuration.settings import load
    from headway.consumers.handover_document import handover_document
    from headway.consumers.moving import open_leases
    from headway.errors import HeadwayError, UnknownGroup

    settings = load(config)
    if settings.group(group) is None:
        raise UnknownGroup(group, settings.nearest(group))
    if settings.policy(group).assignment is not AssignmentKind.PLANNED:
        return _live(group, config) if live else _published(group, config)
    try:
        document = _live(group, config) if live else _published(group, config)
    except HeadwayError as none:
        document = {"group": group, "version": None, "steps": [], "bound_by": None, "reasons": [str(none)]}
    leases = open_leases(settings, group)
    try:
        return {**document, **handover_document(leases)}
    finally:
        leases.close()


def _published(group: str, config: Path | None) -> dict[str, Any]:
    """Return the plan that a group's leader published last."""
    from forecaster.topics import GroupId
    from headway.configuration.settings import load
    from headway.errors import HeadwayError, UnknownGroup
    from headway.status.wire import plan_document
    from headway.wiring import open_plans, store_url

    settings = load(config)
    if settings.group(group) is None:
        raise UnknownGroup(group, settings.nearest(group))
    with store_url(settings) as url:
        plans = open_plans(settings, url)
        try:
            latest = plans.latest(GroupId(group))
        finally:
            plans.close()
    if latest is None:
        raise HeadwayError(f"group {group} has no plan yet; headway serve makes one a minute")
    return plan_document(latest[1], latest[0])


def _live(group: str, config: Path | None) -> dict[str, Any]:
    """Return the plan that a tick would make now of a group."""
    from contextlib import ExitStack

    from balancer.actuators.board import ScalerBoard
    from headway.assembly import assemble
    from headway.configuration.settings import load
    from headway.errors import HeadwayError, UnknownGroup
    from headway.wiring import open_application

    settings = load(config)
    if group not in settings.named_groups:
        raise UnknownGroup(group, settings.nearest(group))
    with ExitStack() as stack:
        app = stack.enter_context(open_application(settings))
        jobs = assemble(app, stack, ScalerBoard(), only=group)
        forecast = jobs.run_now("forecast", group)
        if not forecast.ok:
            raise HeadwayError(forecast.detail)
        app.look(group)
        assert app.what_if is not None
        return dict(app.what_if(group, {}, app.clock()))


def _print(made: ScalingPlan) -> None:
    from balancer.hotspots import in_lines

    emit_table(
        ["from", "replicas", "records/s", "moves"],
        [[instant(s.start), s.replicas, s.demand, len(s.moves)] for s in made.steps],
    )
    if made.alternatives:
        typer.echo("")
        emit_table(
            ["choice", "replicas", "paid hours", "changes", "their price, hours", "expected late"],
            [
                [a.choice, a.replicas, a.paid_hours, a.rescales, a.rescale_hours, a.late_records]
                for a in made.alternatives
            ],
        )
    bound = made.bound_by
    say(f"bound by {bound.kind.value}" + (f" {bound.id}" if bound.id else ""))
    for reason in made.reasons:
        say(f"  {reason}")
    hot = in_lines(made.proposals)
    if len(hot) > 1:
        say(f"{len(hot)} partitions take a large share of one member, or more than that:")
    for line in hot:
        say(f"  {line}")


def _print_document(document: dict[str, Any]) -> None:
    if document["version"] is not None:
        say(f"plan {document['version']} of {document['group']}, made at {document['made_at']}")
    emit_table(["from", "replicas", "records/s"], [[s["from"], s["replicas"], s["demand"]] for s in document["steps"]])
    for reason in document["reasons"]:
        say(f"  {reason}")
    if "handover" in document:
        _print_handover(document["handover"], document["handover_why"])


def _print_handover(handover: dict[str, Any] | None, why: str | None) -> None:
    if handover is None:
        say(f"who holds what is not known: {why}")
        return
    if handover["released"]:
        say("released: the group is given back to its ordinary protocol")
    typer.echo("")
    columns = ["partition", "state", "owner", "next", "planned", "epoch"]
    emit_table(columns, [[row[c] for c in columns] for row in handover["partitions"]])
    for reason in handover["reasons"]:
        say(f"  {reason}")
    typer.echo("")
    columns = ["instance", "state", "partitions", "rate", "capacity", "busy", "pod"]
    emit_table(columns, [[row[c] for c in columns] for row in handover["workers"]])
    if handover["moves"]:
        typer.echo("")
        columns = ["at", "partition", "from", "to", "state", "seconds", "detail"]
        emit_table(columns, [[row[c] for c in columns] for row in handover["moves"][:20]])
