"""Who holds and gets which partition of a planned group, and how its workers are, as its lease store has it."""

from __future__ import annotations

from typing import Any

from balancer.leases.base import GroupView, LeaseState, LeaseStore, LeaseStoreError, MoveRequest
from headway.status.wire import Document


def handover_document(leases: LeaseStore) -> Document:
    """Return ``handover``: the published assignment with its epoch, partitions, workers and last moves.

    It is None where the store does not tell; ``handover_why`` then says why.
    """
    try:
        kept, view, moves = leases.plan(), leases.view(), move_documents(leases)
    except LeaseStoreError as error:
        return {"handover": None, "handover_why": str(error)}
    epoch, plan = kept if kept is not None else (None, {})
    handover = {
        "epoch": epoch,
        "reasons": list(plan.get("reasons") or ()),
        "released": view.released,
        "partitions": _partitions(view, plan.get("assignment") or {}),
        "workers": _workers(view),
        "moves": moves,
    }
    return {"handover": handover, "handover_why": None}


def _partitions(view: GroupView, wanted: dict[str, Any]) -> list[Document]:
    rows = []
    for tp, lease in sorted(view.leases.items()):
        owner = None if lease.owner is None or lease.state is LeaseState.FREE else lease.owner.instance
        rows.append(
            {
                "partition": str(tp),
                "state": lease.state.value,
                "owner": owner,
                "next": None if lease.next is None else lease.next.instance,
                "planned": wanted.get(str(tp)),
                "epoch": lease.epoch,
            }
        )
    return rows


def _workers(view: GroupView) -> list[Document]:
    return [
        {
            "instance": instance,
            "state": _state(worker.live, worker.draining, worker.initialised and worker.ready),
            "partitions": len(view.owned(instance)),
            "rate": worker.heartbeat.get("rate"),
            "capacity": worker.heartbeat.get("capacity"),
            "busy": worker.heartbeat.get("busy"),
            "pod": worker.profile.pod or None,
        }
        for instance, worker in sorted(view.workers.items())
    ]


def _state(is_live: bool, is_draining: bool, is_ready: bool) -> str:
    if not is_live:
        return "gone"
    if is_draining:
        return "draining"
    return "ready" if is_ready else "starting"


def move_documents(leases: LeaseStore) -> list[Document]:
    """Return the moves that a store remembers, the latest first."""
    return [move_document(row) for row in reversed(leases.moves())]


def move_document(row: MoveRequest) -> Document:
    """Return one move as JSON; ``seconds`` is null while it is under way."""
    return {
        "id": row.id,
        "kind": "move",
        "partition": str(row.partition),
        "from": row.source,
        "to": row.target,
        "state": row.state,
        "at": row.at,
        "seconds": row.seconds,
        "epoch": row.epoch,
        "detail": row.detail,
    }
