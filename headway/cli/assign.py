"""headway assign: partitions to consumers, once or as a sequence."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.options import writable
from headway.cli.output import Json, bar, emit_json, emit_table

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from balancer.packing.sequence import SequenceResult

EXAMPLE = "headway assign --loads data/walk_loads.csv --capacity 100 --algorithm keep,mwf,bfd"


def command(
    loads: Annotated[Path, typer.Option(help="CSV row,partition,load; each row starts from the last.")],
    capacity: Annotated[float, typer.Option(help="Records/s that one consumer sustains.")],
    current: Annotated[Path | None, typer.Option(help="CSV partition,consumer: who owns what before.")] = None,
    algorithm: Annotated[str, typer.Option(help="One, or several by commas: keep, keep_star, mwf, bfd, ….")] = "keep",
    assignments: Annotated[
        Path | None, typer.Option(help="Write row,partition,consumer here.", callback=writable)
    ] = None,
    consumers: Annotated[int | None, typer.Option(help="Exactly so many; keep, range, roundrobin, ….", min=1)] = None,
    exact: Annotated[bool, typer.Option("--exact", help="Prove the fewest consumers of each row (slow).")] = False,
    seed: Annotated[int, typer.Option(help="Order in which nf, ff, wf and bf see the partitions.")] = 0,
    json: Json = False,
) -> None:
    """Assign partitions to consumers, once or as a sequence.

    Without --consumers an algorithm takes as many as it needs: keep (ours), keep_star, and the published rivals nf, ff,
    wf, bf, nfd, ffd, wfd, bfd, mwf, mbf, mwfp, mbfp. With --consumers N: keep, and Kafka's own range, roundrobin,
    sticky, uniform.
    """
    import numpy as np

    from balancer.packing.sequence import cardinal_bin_scores, known_algorithms, run_sequence
    from headway.configuration.loads_file import consumer_names, read_loads, read_owners, write_assignments
    from headway.errors import HeadwayError

    if not 0 < capacity < float("inf"):
        raise HeadwayError(f"--capacity {capacity:g} must be a positive number of records/s")
    names = list(dict.fromkeys(n.strip() for n in algorithm.split(",") if n.strip()))
    known = known_algorithms(consumers)
    unknown = [n for n in names if n not in known]
    if unknown or not names:
        with_count = " with --consumers" if consumers is not None else ""
        raise typer.BadParameter(
            f"no algorithm {', '.join(unknown) or 'named'}{with_count}; there are {', '.join(known)}",
            param_hint="--algorithm",
        )
    if assignments is not None and len(names) > 1:
        raise typer.BadParameter("writes one algorithm's assignments; name one", param_hint="--assignments")
    file = read_loads(loads)
    owner, people = (None, []) if current is None else read_owners(current, file.partitions)
    results: dict[str, SequenceResult] = {}
    with bar("assign", len(names)) as progress:
        for name in names:
            results[name] = run_sequence(name, file.loads, capacity, owner, members=consumers, seed=seed)
            progress.advance(note=name)
    first = results[names[0]]
    if assignments is not None:
        highest = int(first.owner.max(initial=-1)) + 1
        write_assignments(assignments, file, first.owner, consumer_names(people, highest))
    hot = [p for p, load in zip(file.partitions, np.nanmax(file.loads, axis=0), strict=True) if load > capacity]
    optimum = [_optimum(row, capacity) for row in file.loads] if exact else None
    scores = cardinal_bin_scores({name: r.consumers for name, r in results.items()})
    if json:
        document: dict[str, Any] = {"algorithm": names[0], "rows": list(file.rows), **_figures(first)}
        document |= {"hot": hot, "capacity": capacity}
        if optimum is not None:
            document["optimum"] = optimum
        if len(names) > 1:
            document["algorithms"] = {n: {**_figures(r), "cbs": scores[n]} for n, r in results.items()}
        emit_json(document)
        return
    header = ["algorithm", "consumers", "lower bound", "R-score", "moved", "busiest", "CBS"]
    emit_table(header, [[n, *_means(r).values(), scores[n]] for n, r in results.items()])
    if optimum is not None and None not in optimum:
        emit_table(["optimum"], [[float(np.mean(np.array(optimum, dtype=float)))]])
    if hot:
        emit_table(["hot: above one consumer's capacity"], [[p] for p in hot])


def _figures(result: SequenceResult) -> dict[str, Any]:
    return {
        "consumers": result.consumers.tolist(),
        "rscore": result.rscore.tolist(),
        "lower_bound": result.lower_bound.tolist(),
        "moved": result.moved.tolist(),
        "busiest": result.busiest.tolist(),
        "means": _means(result),
    }


def _means(result: SequenceResult) -> dict[str, float]:
    return {
        "consumers": float(result.consumers.mean()),
        "lower_bound": float(result.lower_bound.mean()),
        "rscore": float(result.rscore.mean()),
        "moved": float(result.moved.mean()),
        "busiest": float(result.busiest.mean()),
    }


def _optimum(row: NDArray[np.float64], capacity: float) -> int | None:
    import numpy as np

    from balancer.packing.exact import fewest_bins

    try:
        return fewest_bins(row[~np.isnan(row)], capacity)
    except TimeoutError:
        return None
