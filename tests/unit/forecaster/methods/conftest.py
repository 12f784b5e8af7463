"""One thread: the suites share their machine."""

from __future__ import annotations

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    with threadpool_limits(1):
        yield
