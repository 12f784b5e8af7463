"""Answers of the external metrics API, apart from sockets and TLS."""

from datetime import UTC, datetime, timedelta

import pytest

from balancer.actuators.board import ScalerBoard
from balancer.actuators.external_metrics import METRIC, ROOT, ExternalMetricsServer
from forecaster.topics import GroupId

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
PATH = f"{ROOT}/namespaces/default/{METRIC}?labelSelector=group%3Dorders"
AGGREGATOR = "front-proxy-client"


@pytest.fixture
def api():
    server = ExternalMetricsServer.__new__(ExternalMetricsServer)  # the answers need no socket
    server._board, server._now, server._names = ScalerBoard(timedelta(minutes=5)), lambda: NOON, {AGGREGATOR}
    return server


def test_a_fresh_number_with_its_own_instant(api):
    api._board.scale(GroupId("orders"), 7, NOON - timedelta(seconds=20))
    code, document = api.answer(PATH, AGGREGATOR)
    assert code == 200
    (item,) = document["items"]
    assert (item["value"], item["timestamp"]) == ("7", "2026-01-05T11:59:40Z")


@pytest.mark.parametrize("posted_before", [None, timedelta(minutes=6)])
def test_without_a_fresh_number_the_answer_is_an_error_never_an_empty_list(api, posted_before):
    if posted_before is not None:
        api._board.scale(GroupId("orders"), 7, NOON - posted_before)
    code, document = api.answer(PATH, AGGREGATOR)
    assert code == 503
    assert "items" not in document


@pytest.mark.parametrize("name", [None, "kubernetes-admin"])
def test_another_certificate_is_refused(api, name):
    assert api.answer(PATH, name)[0] == 403


def test_discovery_lists_the_one_metric(api):
    code, document = api.answer(ROOT, AGGREGATOR)
    assert code == 200
    assert [r["name"] for r in document["resources"]] == [METRIC]


@pytest.mark.parametrize("path", [f"{ROOT}/namespaces/default/other", f"{ROOT}/namespaces/default/{METRIC}", "/apis"])
def test_what_is_not_there_is_404(api, path):
    assert api.answer(path, AGGREGATOR)[0] == 404
