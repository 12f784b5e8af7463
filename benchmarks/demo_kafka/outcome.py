"""What came of it: late records, delays, member-seconds and rescales of one group, from what its members wrote down."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.demo_kafka.members import ROW


@dataclass(slots=True)
class Ledger:
    """The members that were asked for, from instant to instant (monotonic seconds)."""

    changes: list[tuple[float, int]] = field(default_factory=list)

    def note(self, at: float, members: int) -> None:
        """Note what is asked for; the same number again is no change."""
        if not self.changes or self.changes[-1][1] != members:
            self.changes.append((at, members))

    def member_seconds(self, start: float, end: float) -> float:
        """Return the integral of the members asked for.

        Examples
        --------
        >>> Ledger([(0.0, 2), (10.0, 3)]).member_seconds(5.0, 12.0)
        16.0
        """
        edges = [min(max(at, start), end) for at, _ in self.changes] + [end]
        return sum(n * (edges[i + 1] - edges[i]) for i, (_, n) in enumerate(self.changes))

    def first_at(self, members: int) -> float | None:
        """Return when so many were first asked for."""
        return next((at for at, n in self.changes if n >= members), None)


def delays(folder: Path, counts: list[int]) -> NDArray[np.float64]:
    """Return seconds from writing to handling of every record that was written; infinite where it never was handled."""
    kind = np.dtype([("partition", ">i2"), ("offset", ">i8"), ("written", ">f8"), ("handled", ">f8")])
    assert kind.itemsize == ROW.size
    rows = np.concatenate([np.fromfile(path, kind) for path in sorted(folder.glob("*.rows"))])
    rows = rows[np.argsort(rows["handled"], kind="stable")]
    places = np.cumsum([0, *counts])
    found = np.full(places[-1], math.inf)
    at = places[rows["partition"].astype(int)] + rows["offset"].astype(int)
    first, where = np.unique(at, return_index=True)
    found[first] = (rows["handled"] - rows["written"])[where]
    return found


def lead_s(ledger: Ledger, needed: dict[int, float]) -> float | None:
    """Return how long before they were needed members were asked for, the median over the climb; negative: after.

    Examples
    --------
    >>> lead_s(Ledger([(0.0, 4), (10.0, 6)]), {5: 12.0, 6: 15.0})
    3.5
    """
    leads = [at - asked for n, at in needed.items() if (asked := ledger.first_at(n)) is not None]
    return float(np.median(leads)) if leads else None


def figures(
    found: NDArray[np.float64], ledger: Ledger, start: float, end: float, slo_s: float, needed: dict[int, float]
) -> dict[str, Any]:
    """Return one group's row of the table, in seconds of the wall."""
    p50, p99 = (float(np.quantile(found, q, method="higher")) for q in (0.5, 0.99))
    return {
        "records": int(found.size),
        "late": int((found > slo_s).sum()),
        "late_share": float((found > slo_s).mean()),
        "p50_s": round(p50, 3),
        "p99_s": round(p99, 3) if math.isfinite(p99) else None,
        "member_seconds": round(ledger.member_seconds(start, end), 1),
        "rescales": len(ledger.changes) - 1,
        "asked_before_need_s": None if (lead := lead_s(ledger, needed)) is None else round(lead, 2),
        "never_handled": int(np.isinf(found).sum()),
    }
