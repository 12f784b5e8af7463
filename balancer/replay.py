"""A decision's inputs, kept whole: so that it can be computed again, and is the same. Pure.

What the planner reads of a forecast is a small part of it: the topic's total at every level, the partitions at the one
level that sizes members, and their middle at the first step. :func:`abridged` keeps just that: totals in single
precision, partitions in 16 bits, rounded up. The tick plans from the abridged forecast, so that what is kept is what
was used, bit for bit; keeping it takes a millisecond.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from balancer.bounding import UNROUTED, Routing
from balancer.group import GroupProtocol, GroupSnapshot, Member, PartitionState
from balancer.hotspots import HotKey
from balancer.knobs import Knobs
from balancer.memory import PlannerMemory
from balancer.plan import ScalingPlan
from balancer.planner import Planned, plan
from balancer.policy import AssignmentKind, ScalingPolicy
from balancer.prescaling import Rule, rule_from_json, rule_to_json
from forecaster.forecast import Forecast, ForecastResult, NoForecast, Rung
from forecaster.topics import GroupId, TopicPartition

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Inputs:
    """Everything that one call of :func:`balancer.planner.plan` was given."""

    snapshot: GroupSnapshot
    forecast: ForecastResult | None
    policy: ScalingPolicy
    now: datetime
    knobs: Knobs
    memory: PlannerMemory
    rules: Sequence[Rule] = ()
    timezone: str = "UTC"
    routing: Routing = UNROUTED


def abridged(forecast: Forecast, near_level: float) -> Forecast:
    """Return a forecast that holds what the planner reads, and nothing else of the partitions.

    Examples
    --------
    >>> from datetime import UTC
    >>> rates = np.array([[[1.0, 2.1, 3.0], [1.5, 2.2, 4.0]]])
    >>> start, step = datetime(2026, 1, 5, tzinfo=UTC), timedelta(minutes=1)
    >>> f = Forecast("orders", start, step, (0,), (0.5, 0.9, 0.99), rates, rates[0], "blend", Rung.OWN_MODEL)
    >>> abridged(f, 0.99).rates.round(3).tolist()
    [[[0.0, 2.1, 3.0], [0.0, 0.0, 4.0]]]
    >>> (abridged(abridged(f, 0.99), 0.99).rates == abridged(f, 0.99).rates).all()
    np.True_
    """
    near = forecast.nearest_level(near_level)
    middle = len(forecast.levels) // 2
    counts, scales = _sixteen(forecast.rates[:, :, near])
    first = _single(forecast.rates[:, 0, middle]).astype(np.float64)
    return _of_parts(forecast, forecast.total.astype("<f4").astype(np.float64), counts * scales[:, None], first, near)


def _sixteen(values: NDArray[np.float64]) -> tuple[NDArray[np.uint16], NDArray[np.float64]]:
    """Return each row in 16 bits, rounded up, and its scale: a power of two, so that doing it again changes nothing."""
    highest = values.max(axis=1, initial=0.0)
    scales = np.exp2(np.ceil(np.log2(np.where(highest > 0, highest, 65535.0) / 65535.0)))
    return np.ceil(values / scales[:, None]).astype("<u2"), scales


def _single(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return single precision, never above the value: a median must not climb over a higher quantile."""
    near = values.astype("<f4")
    down: NDArray[np.float32] = np.where(near > values, np.nextafter(near, np.float32(0)), near).astype("<f4")
    return down


def _of_parts(
    like: Forecast, total: NDArray[np.float64], near: NDArray[np.float64], middle: NDArray[np.float64], level: int
) -> Forecast:
    rates = np.zeros((*near.shape, len(like.levels)))
    rates[:, :, level:] = near[:, :, None]
    above = len(like.levels) // 2
    rates[:, 0, above:] = np.maximum(rates[:, 0, above:], middle[:, None])
    return dataclasses.replace(like, rates=rates, total=np.maximum.accumulate(total, axis=1))


def forecast_name(body: bytes) -> str:
    """Return a name for the bytes of a forecast by what they hold: the same name is the same numbers."""
    return "forecast:" + hashlib.sha256(body).hexdigest()[:24]


def forecast_bytes(forecast: Forecast, near_level: float) -> bytes:
    """Return the bytes of an abridged forecast, which :func:`forecast_of` reads: a line of JSON, then the numbers."""
    level = forecast.nearest_level(near_level)
    counts, scales = _sixteen(forecast.rates[:, :, level])
    head = {
        "topic": forecast.topic,
        "origin": forecast.origin.isoformat(),
        "step_s": forecast.step.total_seconds(),
        "topics": forecast.topics if forecast.topics is None else list(forecast.topics),
        "partitions": list(forecast.partitions),
        "levels": list(forecast.levels),
        "method": forecast.method,
        "rung": forecast.rung.value,
        "reasons": list(forecast.reasons),
        "near": level,
        "steps": forecast.steps,
        "scales": scales.tolist(),
    }
    middle = _single(forecast.rates[:, 0, len(forecast.levels) // 2])
    numbers = forecast.total.astype("<f4").tobytes() + middle.tobytes() + counts.tobytes()
    return json.dumps(head, separators=(",", ":"), allow_nan=False).encode() + b"\n" + numbers


def forecast_of(body: bytes) -> Forecast:
    """Return the forecast that :func:`forecast_bytes` wrote."""
    line, _, numbers = body.partition(b"\n")
    head = json.loads(line)
    rows, steps, levels = len(head["partitions"]), head["steps"], len(head["levels"])
    total = np.frombuffer(numbers, "<f4", steps * levels).reshape(steps, levels)
    middle = np.frombuffer(numbers, "<f4", rows, 4 * steps * levels)
    counts = np.frombuffer(numbers, "<u2", rows * steps, 4 * (steps * levels + rows)).reshape(rows, steps)
    like = Forecast(
        head["topic"],
        datetime.fromisoformat(head["origin"]),
        timedelta(seconds=head["step_s"]),
        tuple(head["partitions"]),
        tuple(head["levels"]),
        np.zeros((rows, steps, levels)),
        np.zeros((steps, levels)),
        head["method"],
        Rung(head["rung"]),
        tuple(head["reasons"]),
        None if head.get("topics") is None else tuple(head["topics"]),
    )
    near = counts * np.array(head["scales"])[:, None]
    return _of_parts(like, total.astype(np.float64), near, middle.astype(np.float64), head["near"])


def inputs_bytes(inputs: Inputs, forecast_name: str | None) -> bytes:
    """Return all inputs but the forecast's numbers, which are kept once under their own name."""
    snapshot, forecast = inputs.snapshot, inputs.forecast
    document = {
        "now": inputs.now.isoformat(),
        "snapshot": _snapshot_to_json(snapshot),
        "forecast": forecast_name,
        "no_forecast": None
        if not isinstance(forecast, NoForecast)
        else [
            forecast.topic,
            forecast.origin.isoformat(),
            forecast.reason,
            None if forecast.possible_from is None else forecast.possible_from.isoformat(),
        ],
        "policy": _policy_to_json(inputs.policy),
        "knobs": inputs.knobs.to_json(),
        "memory": inputs.memory.to_json(),
        "rules": [rule_to_json(rule) for rule in inputs.rules],
        "timezone": inputs.timezone,
        "routing": {
            "topics": sorted(inputs.routing.topics),
            "keys": [[str(k.partition), k.key, k.rate, k.share] for k in inputs.routing.keys],
        },
    }
    return zlib.compress(json.dumps(document, separators=(",", ":"), allow_nan=False).encode(), 1)


def forecast_name_of(body: bytes) -> str | None:
    """Return the name under which the numbers of the forecast are kept; None if there was none."""
    name: str | None = json.loads(zlib.decompress(body))["forecast"]
    return name


def inputs_of(body: bytes, forecast: Forecast | None) -> Inputs:
    """Return what :func:`inputs_bytes` wrote.

    Raises
    ------
    ValueError
        If it is something else.
    """
    try:
        value = json.loads(zlib.decompress(body))
        at = datetime.fromisoformat
        result: ForecastResult | None = forecast
        if value["no_forecast"] is not None:
            topic, origin, reason, possible = value["no_forecast"]
            result = NoForecast(topic, at(origin), reason, None if possible is None else at(possible))
        return Inputs(
            _snapshot_from_json(value["snapshot"]),
            result,
            _policy_from_json(value["policy"]),
            at(value["now"]),
            Knobs.from_json(value["knobs"]),
            PlannerMemory.from_json(value["memory"]),
            tuple(rule_from_json(rule) for rule in value["rules"]),
            value["timezone"],
            _routing_from_json(value.get("routing")),
        )
    except (KeyError, TypeError, zlib.error) as error:
        raise ValueError(f"not the inputs of a decision: {error!r}") from error


def again(inputs: Inputs) -> ScalingPlan:
    """Plan from inputs, as the tick does and as a replay does."""
    return planned(inputs).plan


def planned(inputs: Inputs, *, explain: bool = True) -> Planned:
    """Plan from inputs, and return what to remember as well."""
    return plan(
        inputs.snapshot,
        inputs.forecast,
        inputs.policy,
        inputs.now,
        knobs=inputs.knobs,
        memory=inputs.memory,
        rules=inputs.rules,
        timezone=inputs.timezone,
        routing=inputs.routing,
        explain=explain,
    )


def _routing_from_json(value: Mapping[str, Any] | None) -> Routing:
    if value is None:
        return UNROUTED
    keys = [HotKey(TopicPartition.parse(tp), key, rate, share) for tp, key, rate, share in value["keys"]]
    return Routing(frozenset(value["topics"]), tuple(keys))


def _snapshot_to_json(snapshot: GroupSnapshot) -> Json:
    return {
        "group": snapshot.group,
        "at": snapshot.at.isoformat(),
        "replicas": snapshot.replicas,
        "members": [
            [m.id, [str(p) for p in m.partitions], m.capacity, m.rack, m.ready, m.draining, m.pod]
            for m in snapshot.members
        ],
        "partitions": [
            [str(tp), s.lag, s.arrival_rate, s.consumption_rate, s.why, s.is_stuck]
            for tp, s in snapshot.partitions.items()
        ],
        "protocol": snapshot.protocol.value,
        "generation": snapshot.generation,
        "racks": {str(tp): rack for tp, rack in snapshot.racks.items()},
    }


def _snapshot_from_json(value: Mapping[str, Any]) -> GroupSnapshot:
    return GroupSnapshot(
        GroupId(value["group"]),
        datetime.fromisoformat(value["at"]),
        value["replicas"],
        tuple(
            Member(id, tuple(TopicPartition.parse(p) for p in owned), *rest) for id, owned, *rest in value["members"]
        ),
        {TopicPartition.parse(tp): PartitionState(*state) for tp, *state in value["partitions"]},
        GroupProtocol(value["protocol"]),
        value["generation"],
        {TopicPartition.parse(tp): rack for tp, rack in value.get("racks", {}).items()},
    )


def _policy_to_json(policy: ScalingPolicy) -> Json:
    values: Json = {}
    for field in fields(policy):
        value = getattr(policy, field.name)
        values[field.name] = {"us": value // timedelta(microseconds=1)} if isinstance(value, timedelta) else value
    return values


def _policy_from_json(values: Mapping[str, Any]) -> ScalingPolicy:
    given: Json = {k: timedelta(microseconds=v["us"]) if isinstance(v, dict) else v for k, v in values.items()}
    return ScalingPolicy(**{**given, "assignment": AssignmentKind(given["assignment"])})
