"""The external scaler: every call is answered from the board, in microseconds, whatever else is down."""

from __future__ import annotations

import difflib
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import grpc

from balancer.actuators.board import Posted, ScalerBoard
from balancer.actuators.keda import externalscaler_pb2 as pb
from balancer.actuators.keda import externalscaler_pb2_grpc as rpc
from balancer.errors import TargetRefused
from forecaster.topics import GroupId

METRIC = "headway-replicas"
STREAM_WAIT_S = 1.0

STREAMS = 256
"""Triggers that may wait for a push at once. Each holds a thread: one more is refused, so that polls always find one,
for KEDA sets them no deadline."""
POLLS = 32
"""Threads for everything else."""


@dataclass(frozen=True, slots=True)
class ScalerTls:
    """PEM files of the server, read at start; with ``client_ca`` only clients of that authority may call."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    def credentials(self) -> Any:
        """Read the files.

        Raises
        ------
        TargetRefused
            If one cannot be read.
        """
        try:
            pair = (self.key.read_bytes(), self.certificate.read_bytes())
            authority = None if self.client_ca is None else self.client_ca.read_bytes()
            return grpc.ssl_server_credentials([pair], authority, require_client_auth=authority is not None)
        except OSError as exc:
            raise TargetRefused(f"cannot read {exc.filename} for the scaler's TLS: {exc.strerror}") from exc


class ScalerService(rpc.ExternalScalerServicer):
    """KEDA's five calls.

    The trigger's metadata names the group (``group: orders``; the ScaledObject's own name otherwise). The metric's
    target is 1, so that its value *is* the number of replicas.

    - ``GetMetricSpec`` is static: KEDA asks it first in every poll, and its fallback never engages when it fails.
    - ``GetMetrics`` gives the posted number while it is fresh, and status UNAVAILABLE afterwards: NaN, infinity or a
      negative number would scale the target to its minimum, and an empty list would count as healthy.
    - ``StreamMetricSpec`` is left UNIMPLEMENTED, which KEDA accepts.
    """

    def __init__(self, board: ScalerBoard, now: Callable[[], datetime]) -> None:
        self._board, self._now = board, now
        self._streams = threading.Semaphore(STREAMS)

    def GetMetricSpec(self, request: Any, context: Any) -> Any:  # noqa: N802 - the protocol's name
        """Return the one static spec."""
        return pb.GetMetricSpecResponse(
            metricSpecs=[pb.MetricSpec(metricName=METRIC, targetSize=1, targetSizeFloat=1.0)]
        )

    def GetMetrics(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Return the number, in both the float and the older integer field."""
        posted = self._fresh(request.scaledObjectRef, context)
        value = pb.MetricValue(
            metricName=request.metricName or METRIC,
            metricValue=posted.replicas,
            metricValueFloat=float(posted.replicas),
        )
        return pb.GetMetricsResponse(metricValues=[value])

    def IsActive(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Say whether at least one member is planned."""
        return pb.IsActiveResponse(result=self._fresh(request, context).replicas > 0)

    def StreamIsActive(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        """Push activity as soon as it changes; silent while it is not known."""
        if not self._streams.acquire(blocking=False):
            context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{STREAMS} triggers wait for a push already; use `type: external` (polled) for this one",
            )
        try:
            yield from self._activity(_group(request), context)
        finally:
            self._streams.release()

    def _activity(self, group: GroupId, context: Any) -> Iterator[Any]:
        last = None
        for _ in self._board.changes(STREAM_WAIT_S):
            if not context.is_active():
                return
            posted = self._board.fresh(group, self._now())
            active = None if posted is None else posted.replicas > 0
            if active is not None and active != last:
                last = active
                yield pb.IsActiveResponse(result=active)

    def _fresh(self, ref: Any, context: Any) -> Posted:
        group, now = _group(ref), self._now()
        posted = self._board.fresh(group, now)
        if posted is None:
            self._refuse(group, now, context)
        return posted

    def _refuse(self, group: GroupId, now: datetime, context: Any) -> NoReturn:
        stale = self._board.posted(group)
        if stale is not None:
            age, limit = int(stale.age(now).total_seconds()), int(self._board.max_age.total_seconds())
            text = f"the last plan of group {group!r} is {age} s old (limit {limit} s)"
        else:
            near = difflib.get_close_matches(group, self._board.groups(), n=3)
            text = f"no plan for group {group!r} yet" + (f"; did you mean {', '.join(near)}?" if near else "")
        context.abort(grpc.StatusCode.UNAVAILABLE, text)
        raise AssertionError("abort raises")


def serve_scaler(
    board: ScalerBoard, now: Callable[[], datetime], address: str = "127.0.0.1:9090", tls: ScalerTls | None = None
) -> tuple[Any, int]:
    """Start the server; return it (``.stop(grace)`` ends it) and the port it listens on.

    Raises
    ------
    TargetRefused
        If the port is taken or the TLS files cannot be read.
    """
    server = grpc.server(
        futures.ThreadPoolExecutor(max_workers=STREAMS + POLLS, thread_name_prefix="scaler"),
        options=[("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", 64 * 1024)],
    )
    rpc.add_ExternalScalerServicer_to_server(ScalerService(board, now), server)
    try:
        port = server.add_secure_port(address, tls.credentials()) if tls else server.add_insecure_port(address)
    except RuntimeError as exc:
        raise TargetRefused(f"the scaler cannot listen on {address}: is the port taken? ({exc})") from exc
    server.start()
    return server, int(port)


def _group(ref: Any) -> GroupId:
    return GroupId(ref.scalerMetadata.get("group") or ref.name)
