"""A store that may come later: ``headway serve`` starts without it, says why, and carries on once it can be opened."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from balancer.errors import BalancerError
from forecaster.errors import ForecasterError

AGAIN_S = 2.0
"""A store that could not be opened is not tried again before; until then its last words are repeated."""


class _Closable(Protocol):
    def close(self) -> None: ...


class Late:
    """Stands for a store: every call goes to the real one, opened when it is first needed and can be.

    Until then a call raises what the last attempt raised, which whoever calls a store is prepared for.

    Parameters
    ----------
    open_it
        Opens the store, or raises one of our own errors.
    tell
        Is told why the store cannot be opened, and None once it is.

    Examples
    --------
    >>> from forecaster.errors import StoreUnavailable
    >>> from forecaster.stores.memory import MemorySeriesStore
    >>> tries = [StoreUnavailable("redis://cache:6379: connection refused; is the server up?")]
    >>> def open_it():
    ...     if tries:
    ...         raise tries.pop()
    ...     return MemorySeriesStore()
    >>> store = Late(open_it, print, again_s=0)
    >>> try:
    ...     store.topics()
    ... except StoreUnavailable:
    ...     pass
    redis://cache:6379: connection refused; is the server up?
    >>> store.topics()
    None
    ()
    """

    def __init__(
        self, open_it: Callable[[], _Closable], tell: Callable[[str | None], None], again_s: float = AGAIN_S
    ) -> None:
        self._open, self._tell, self._again_s = open_it, tell, again_s
        self._lock = threading.Lock()
        self._store: Any = None
        self._error: Exception | None = None
        self._tried_at = 0.0

    def opened(self) -> Any:
        """Return the store.

        Raises
        ------
        ForecasterError, BalancerError
            Why it cannot be opened.
        """
        if self._store is not None:
            return self._store
        # Only the first of many callers waits for a server that does not answer.
        if self._lock.acquire(blocking=self._error is None):
            try:
                if self._store is None and (self._error is None or time.monotonic() - self._tried_at >= self._again_s):
                    self._try()
            finally:
                self._lock.release()
        if self._store is not None:
            return self._store
        assert self._error is not None
        raise self._error.with_traceback(None)

    def close(self) -> None:
        """Close the store, if it was ever opened."""
        if self._store is not None:
            self._store.close()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args, **kwargs: getattr(self.opened(), name)(*args, **kwargs)

    def _try(self) -> None:
        try:
            self._store = self._open()
        except (ForecasterError, BalancerError) as error:
            self._error, self._tried_at = error, time.monotonic()
            self._tell(" ".join(str(error).split()))
        else:
            self._tell(None)
