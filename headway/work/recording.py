"""The record job: one look at the source, written down, and said on the board of every group that it concerns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from forecaster.errors import SourceError
from forecaster.ingest.recorder import Recorder, TickReport
from forecaster.topics import GroupId
from headway.application import Application
from headway.errors import HeadwayError
from headway.status.board import GroupView


def record_job(
    app: Application,
    recorder: Recorder,
    groups: Mapping[GroupId, Sequence[str]],
    discover: Callable[[], None] = lambda: None,
) -> Callable[[], str]:
    """Return the job; it raises :class:`HeadwayError` when nothing could be read or written.

    Parameters
    ----------
    app
        Whose board hears of it. What keeps the source from answering (:class:`forecaster.errors.SourceRefused`,
        :class:`forecaster.errors.SourceUnavailable`) is a problem of every group, a topic's failures of the groups
        that read it.
    recorder
        Who looks and writes.
    groups
        Group → its topics; may grow.
    discover
        Looks for more groups, before each look at the offsets.
    """

    def job() -> str:
        discover()
        try:
            report = recorder.tick()
        except SourceError as refused:
            _all(app, groups, str(refused))
            raise HeadwayError(str(refused)) from refused
        why = report.why or report.written.why
        if why is not None:
            _all(app, groups, why)
            raise HeadwayError(why)
        for group, topics in groups.items():
            failed = _failed(report, topics)
            if failed is not None:
                app.board.problem(group, "arrivals", failed)
            elif report.answered:
                app.board.update(group, "arrivals", partial(_shown, report, topics), report.at)
        return f"{report.answered} of {report.partitions} partitions, {report.steps} steps"

    return job


def _shown(report: TickReport, topics: Sequence[str], view: GroupView) -> None:
    """Put what a tick said of a group on its view."""
    latency_s = report.latency_p99_s.get(GroupId(view.name))
    if latency_s is not None:
        view.latencies.append((report.at, latency_s))
    view.record_shares = {topic: share for topic, share in report.record_shares.items() if topic in topics}


def _all(app: Application, groups: Mapping[GroupId, Sequence[str]], why: str) -> None:
    for group in groups:
        app.board.problem(group, "arrivals", why)


def _failed(report: TickReport, topics: Sequence[str]) -> str | None:
    """Return what was not read of these topics; None if all was."""
    failures = {tp: why for tp, why in report.failures.items() if tp.topic in topics}
    if not failures:
        return None
    whys = sorted(set(failures.values()))
    return f"{len(failures)} partitions were not read: {'; '.join(whys[:3])}"
