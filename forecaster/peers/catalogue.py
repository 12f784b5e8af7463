"""The peers that can be asked for by name, and what brings one that is not installed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from forecaster.errors import InputRefused
from forecaster.methods.base import Method
from forecaster.methods.catalogue import METHODS, make_method


@dataclass(frozen=True, slots=True)
class Peer:
    """Where a peer's adapter is, what it needs, and how it is made."""

    module: str
    libraries: tuple[str, ...]
    make: Callable[[Any], Method]


def _statsforecast(model: str) -> Peer:
    return Peer("statsforecast", ("statsforecast",), lambda module: module.StatsForecastPeer(model))


PEERS: dict[str, Peer] = {
    "statsforecast_mstl": _statsforecast("mstl"),
    "statsforecast_ets": _statsforecast("ets"),
    "statsforecast_theta": _statsforecast("theta"),
    "statsforecast_arima": _statsforecast("arima"),
    "statsmodels_stl": Peer("statsmodels", ("statsmodels",), lambda module: module.StlArima()),
    "mlforecast_lightgbm": Peer("mlforecast", ("mlforecast", "lightgbm"), lambda module: module.LightGbmPeer()),
    "prophet": Peer("prophet", ("prophet",), lambda module: module.ProphetPeer()),
}
"""Name → peer; statsmodels comes with Headway, the others with the extra ``peers``."""


def make_method_or_peer(name: str) -> Method:
    """Return a fresh method of ours, or a peer.

    Raises
    ------
    InputRefused
        If there is none of that name (the message names the nearest), or its library is not installed (the message
        names the extra).

    Examples
    --------
    >>> make_method_or_peer("grid").name, make_method_or_peer("statsmodels_stl").name
    ('grid', 'statsmodels_stl')
    """
    peer = PEERS.get(name)
    if peer is None:
        near = get_close_matches(name, PEERS, n=1)
        if name in METHODS or not near or get_close_matches(name, METHODS, n=1):
            return make_method(name)
        raise InputRefused(f"no method or peer {name!r}; did you mean {near[0]!r}? there are {', '.join(PEERS)}")
    for library in peer.libraries:
        if find_spec(library) is None:
            raise InputRefused(f"{name} needs {library}, not installed; pip install 'headway[peers]' brings it")
    return peer.make(import_module(f"forecaster.peers.{peer.module}"))
