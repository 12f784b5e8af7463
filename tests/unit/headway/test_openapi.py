"""Whatever is sent, nothing answers 5xx: schemathesis over our own OpenAPI document."""

from __future__ import annotations

import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error

from headway.api.server import create_app
from headway.application import Application
from headway.configuration.settings import Settings
from headway.operation.audit import Audit
from headway.operation.operations import Operations
from headway.status.board import Board
from headway.status.metrics import Metrics
from tests.unit.headway.conftest import NOW, a_forecast, a_plan, a_snapshot


def _application() -> Application:
    from balancer.plans.memory import MemoryPlanStore
    from forecaster.stores.memory import MemorySeriesStore

    chosen = Settings(groups={"orders": {"topics": ["orders"]}}, api={"writes_per_minute": 1_000_000}, cluster="main")
    plans, audit, board = MemoryPlanStore(clock=lambda: NOW), Audit(), Board()
    board.add("orders", ("orders",))

    def fill(view):
        view.forecasts["orders"], view.plan, view.snapshot = a_forecast(), a_plan(), a_snapshot()

    board.update("orders", "plan", fill, NOW)
    store = MemorySeriesStore(clock=lambda: NOW)
    app = Application(
        chosen, store, plans, board, Operations(plans, audit), Metrics(), lambda: NOW, audit_entries=audit.entries
    )
    app.ready, app.what_if = True, lambda group, changes, now: {"replicas": 3}
    return app


schema = schemathesis.openapi.from_asgi("/openapi.json", create_app(_application())).exclude(path="/v1/events")


@schema.parametrize()
@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_nothing_is_a_server_error(case):
    group = {"group": "orders"} if "group" in (case.path_parameters or {}) else {}
    case.path_parameters = {**(case.path_parameters or {}), **group}
    case.call_and_validate(checks=(not_a_server_error,))
