"""Where training and backtests run: this process, its cores, or a Dask or Ray cluster that the user has.

joblib's own backends do the work; nothing here schedules. Every mapper takes tasks as they are needed and gives
results in order, so that memory stays bounded by the tasks under way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import islice
from typing import Any, Literal, TypeVar

from forecaster.backtest import Mapper
from headway.errors import HeadwayError

Backend = Literal["loky", "dask", "ray"]

_T = TypeVar("_T")
_R = TypeVar("_R")


class BackendRefused(HeadwayError):
    """A backend that is not installed, or a cluster that does not answer."""


@contextmanager
def mapper(backend: Backend = "loky", jobs: int = 1, address: str | None = None) -> Iterator[Mapper]:
    """Open a mapper.

    Parameters
    ----------
    backend
        ``loky``: processes of this machine; ``dask`` or ``ray``: a cluster.
    jobs
        Tasks at once; with ``loky`` and 1 everything runs in this process.
    address
        Of the cluster's scheduler (``tcp://host:8786``, ``ray://host:10001`` or ``auto``); without it a local one
        with ``jobs`` workers is started and ended again.

    Raises
    ------
    BackendRefused
        If the backend is not installed or the cluster does not answer; names the remedy.

    Examples
    --------
    >>> with mapper() as run:
    ...     list(run(abs, [-1, 2]))
    [1, 2]
    """
    if backend == "loky" and address is not None:
        raise BackendRefused("--address belongs to --backend dask or ray; loky runs on this machine")
    if backend == "loky" and jobs == 1:
        yield map
        return
    opened = {"loky": _loky, "dask": _dask, "ray": _ray}[backend]
    with opened(jobs, address):
        yield _joblib_map(jobs, backend)


def _joblib_map(jobs: int, backend: Backend) -> Mapper:
    import joblib

    def run(function: Callable[[_T], _R], tasks: Iterable[_T], /) -> Iterable[_R]:
        if backend == "ray":
            return rounds(function, iter(tasks))
        # a generator on both sides: tasks are made when a worker is free, results are taken as they come
        parallel = joblib.Parallel(n_jobs=jobs, return_as="generator", pre_dispatch="2*n_jobs", batch_size=1)
        return parallel(joblib.delayed(function)(task) for task in tasks)  # type: ignore[no-any-return]

    def rounds(function: Callable[[_T], _R], tasks: Iterator[_T]) -> Iterator[_R]:
        # Ray's backend cannot hand results out one by one: rounds keep memory bounded and progress visible
        while batch := list(islice(tasks, 2 * jobs)):
            yield from joblib.Parallel(n_jobs=jobs, batch_size=1)(joblib.delayed(function)(task) for task in batch)

    return run


@contextmanager
def _loky(jobs: int, _: str | None) -> Iterator[None]:
    import joblib

    with joblib.parallel_config("loky", n_jobs=jobs, inner_max_num_threads=1):
        yield


@contextmanager
def _dask(jobs: int, address: str | None) -> Iterator[None]:
    import joblib

    try:
        distributed: Any = import_module("distributed")
    except ModuleNotFoundError as exc:
        raise BackendRefused("dask is not installed; pip install 'headway[dask]' brings it") from exc
    cluster: Any = None
    if address is None:
        cluster = distributed.LocalCluster(
            n_workers=jobs, threads_per_worker=1, dashboard_address=None, host="127.0.0.1"
        )
    try:
        try:
            client = distributed.Client(cluster or address, timeout=10)
        except (OSError, ValueError) as exc:
            raise BackendRefused(f"no Dask scheduler answers at {address}: {exc}") from exc
        with client, joblib.parallel_config("dask", n_jobs=jobs):
            yield
    finally:
        if cluster is not None:
            cluster.close()


@contextmanager
def _ray(jobs: int, address: str | None) -> Iterator[None]:
    import joblib

    try:
        ray: Any = import_module("ray")
        import_module("ray.util.joblib").register_ray()
    except ModuleNotFoundError as exc:
        raise BackendRefused("ray is not installed; pip install 'headway[ray]' brings it") from exc
    options: dict[str, Any] = {"address": address} if address else {"num_cpus": jobs, "include_dashboard": False}
    try:
        ray.init(log_to_driver=False, logging_level=logging.ERROR, **options)
    except Exception as exc:  # ray raises plain exceptions when a node does not come up
        place = f"no Ray cluster answers at {address}" if address else "a local Ray cluster does not start"
        raise BackendRefused(f"{place}: {exc}") from exc
    try:
        with joblib.parallel_config("ray", n_jobs=jobs):
            yield
    finally:
        ray.shutdown()
