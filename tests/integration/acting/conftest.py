"""One real control plane for all tests of a run: starting it takes seconds, building it minutes."""

import pytest


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    from tests.peers.kube.cluster import Cluster

    with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running
