"""Real Redis, Kafka and Kubernetes behind proxies, and KEDA's polls, each down, slow or wrong while `serve` runs.

The load is constant, so every fall of a number is an error's doing. One process lives through all cases: it must never
end, never scale in, and be whole again two ticks after each fault, without a restart. The whole table of faults and
pairs, by a fake clock, is in ``tests/unit/headway/test_faults.py``.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import confluent_kafka as ck
import grpc
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from balancer.actuators.keda import externalscaler_pb2 as pb
from balancer.actuators.keda import externalscaler_pb2_grpc as rpc
from forecaster.stores.embedded_process import find_binary
from tests.chaos.proxy import Door, Proxy
from tests.peers.kafka import Kafka, free_ports
from tests.peers.kube.cluster import deployment
from tests.peers.redis import Server
from tests.peers.service import serving

pytestmark = [pytest.mark.kubernetes, pytest.mark.kafka, pytest.mark.slow]

SCALE = "/apis/apps/v1/namespaces/default/deployments/steady/scale"
ACT_S, STEP_S, SLOW_S = 2, 2, 10
TICKS_TO_HEAL = 2
"""Of the ticks of a group that begin after a fault is over, so many at most until one is good. They are counted: how
long one takes is the clients' own time limits and the machine's."""
CONFIG = """
state = "{folder}/state"
[store]
url = "redis://127.0.0.1:{store}/0"
[kafka]
bootstrap_servers = "{kafka}"
[models]
path = "{folder}/models"
[scaler]
port = {scaler}
max_age = "60s"
[jobs]
act_every = "{act}s"
"""
GROUP = """
[groups.{name}]
topics = ["steady"]
step = "{step}s"
mode = "act"
capacity_per_member = 10.0
start_time = "4s"
max_replicas = 20
cap_at_partitions = false
scale_down_dwell = "4s"
actuator = {actuator}
"""


class Liar:
    """A server that answers everything with nonsense."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                one, _ = self._server.accept()
                threading.Thread(target=self._lie, args=(one,), daemon=True).start()

    def _lie(self, one: socket.socket) -> None:
        with contextlib.suppress(OSError), one:
            while one.recv(65536):
                one.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}\r\n-ERR nonsense\r\n")

    def close(self) -> None:
        self._server.close()


class Way:
    """The way to one system: a proxy that can be cut, frozen, or led to a liar."""

    def __init__(self, proxy: Proxy | Door, liar: Liar) -> None:
        self._proxy, self._liar = proxy, liar
        self._ends = [proxy] if isinstance(proxy, Proxy) else proxy._proxies
        self._honest = [end.target for end in self._ends]

    def spoil(self, how: str) -> None:
        if how == "slow":
            self._proxy.freeze()
            return
        for end in self._ends:
            end.target = self._liar.port if how == "wrong" else end.target
            end.cut()
            if how == "wrong":
                end.heal()

    def heal(self) -> None:
        for end, honest in zip(self._ends, self._honest, strict=True):
            if end.target != honest:
                end.target = honest
                end.cut()
        self._proxy.heal()


class Polls:
    """KEDA as a client: polls all the time, and keeps every number that it was given."""

    def __init__(self, port: int) -> None:
        self.numbers: list[float] = []
        self.how = "well"
        self._stop = threading.Event()
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self._stub = rpc.ExternalScalerStub(self._channel)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def poll(self, group: str = "polled") -> float:
        ref = pb.ScaledObjectRef(name="so", namespace="default", scalerMetadata={"group": group})
        assert len(self._stub.GetMetricSpec(ref, timeout=5).metricSpecs) == 1  # static, whatever else is the case
        asked = pb.GetMetricsRequest(scaledObjectRef=ref, metricName="headway-replicas")
        (value,) = self._stub.GetMetrics(asked, timeout=5).metricValues
        return float(value.metricValueFloat or value.metricValue)

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            if self.how == "down":
                continue
            try:
                number = self.poll("no-such-group" if self.how == "wrong" else "polled")
            except grpc.RpcError as refused:
                assert refused.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.NOT_FOUND), refused
            else:
                self.numbers.append(number)

    def close(self) -> None:
        self._stop.set()
        self._thread.join(10)
        self._channel.close()


class Traffic:
    """Records at a constant rate, consumed at once by both groups."""

    def __init__(self, kafka: Kafka, rate: float) -> None:
        self._kafka, self._rate, self._stop = kafka, rate, threading.Event()
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("steady", 4, 1)])["steady"].result(20)
        self._threads = [threading.Thread(target=self._produce, daemon=True)]
        self._threads += [threading.Thread(target=self._consume, args=(g,), daemon=True) for g in ("direct", "polled")]
        for thread in self._threads:
            thread.start()

    def _produce(self) -> None:
        client = ck.Producer({"bootstrap.servers": self._kafka.bootstrap, "linger.ms": 2, "log_level": 0})
        began, sent = time.monotonic(), 0
        while not self._stop.wait(0.01):
            while sent < (time.monotonic() - began) * self._rate:
                client.produce("steady", b"x", partition=sent % 4)
                sent += 1
            client.poll(0)
        client.flush(10)

    def _consume(self, group: str) -> None:
        settings = {"group.id": group, "auto.offset.reset": "earliest", "auto.commit.interval.ms": 200, "log_level": 0}
        consumer = ck.Consumer({"bootstrap.servers": self._kafka.bootstrap, **settings})
        consumer.subscribe(["steady"])
        while not self._stop.is_set():
            consumer.consume(500, 0.1)
        consumer.close()

    def close(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(15)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Kafka]:
    with Kafka(tmp_path / "kafka", doors=1) as running:
        yield running


CASES = (
    {"redis": "down"},
    {"redis": "wrong", "keda": "down"},
    {"kafka": "wrong", "kubernetes": "down"},
    {"kubernetes": "wrong", "keda": "wrong"},
    {"redis": "slow", "kafka": "down"},
    {"kafka": "slow", "kubernetes": "slow"},
)


def test_no_fault_and_no_pair_of_faults_scales_in_ends_the_process_or_lasts(tmp_path, cluster, broker):
    cluster("POST", "/apis/apps/v1/namespaces/default/deployments", deployment("steady", 1))
    with contextlib.ExitStack() as stack:
        liar = Liar()
        stack.callback(liar.close)
        store = stack.enter_context(Server(find_binary(), tmp_path / "store"))
        door, redis_door = Door(broker.doors[0]), Proxy(store.port)
        kube_door = Proxy(int(cluster.server.rpartition(":")[2]))
        for proxy in (door, redis_door, kube_door):
            stack.callback(proxy.close)
        ways = {"kafka": Way(door, liar), "redis": Way(redis_door, liar), "kubernetes": Way(kube_door, liar)}
        config = json.loads(cluster.kubeconfig.read_text())
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{kube_door.port}"
        (tmp_path / "kubeconfig").write_text(json.dumps(config))
        (scaler,) = free_ports(1)
        text = CONFIG.format(folder=tmp_path, store=redis_door.port, kafka=door.bootstrap, scaler=scaler, act=ACT_S)
        scaled = '{ kind = "kubernetes", name = "steady" }'
        for name, actuator in (("direct", scaled), ("polled", '{ kind = "keda" }')):
            text += GROUP.format(name=name, step=STEP_S, actuator=actuator)
        (tmp_path / "headway.toml").write_text(text)
        traffic = Traffic(broker, 63.0)
        stack.callback(traffic.close)
        service = stack.enter_context(serving(tmp_path, KUBECONFIG=str(tmp_path / "kubeconfig")))
        service.ready()

        def replicas() -> int:
            return int(cluster("GET", SCALE)["spec"].get("replicas", 0))

        runs: dict[str, dict[datetime, bool]] = {}

        def whole(since: datetime | None = None) -> bool:
            """Whether each group's last tick was good, and began after an instant."""
            for job in service.ask("/v1/jobs")[1]["jobs"]:
                if job["job"] == "act" and job["last"] is not None:
                    began = datetime.fromisoformat(job["last"]["started"])
                    runs.setdefault(job["group"], {})[began] = job["last"]["ok"]
            groups = service.ask("/v1/groups")[1]["groups"]
            if any(g["hold"] or set(g["problems"]) - {"forecast"} for g in groups):
                return False
            last = [max(runs.get(g["group"], {}).items(), default=None) for g in groups]
            return all(run is not None and run[1] and (since is None or run[0] > since) for run in last)

        polls = Polls(scaler)
        stack.callback(polls.close)
        try:
            service.wait_for(lambda: whole() and replicas() >= 7 and polls.numbers and polls.numbers[-1] >= 7, 90)
        except AssertionError as late:
            raise AssertionError(f"{service.ask('/v1/groups')} {replicas()} {polls.numbers[-3:]}") from late
        time.sleep(3 * ACT_S)
        before, posted, failed = replicas(), polls.numbers[-1], {}
        polls.numbers.clear()
        for case in CASES:
            for system, how in case.items():
                if system == "keda":
                    polls.how = how
                else:
                    ways[system].spoil(how)
            end = time.monotonic() + (SLOW_S if "slow" in case.values() else 2 * ACT_S)
            while time.monotonic() < end:
                assert replicas() >= before, (case, service.said())
                assert service.ask("/healthz")[0] == 200
                time.sleep(0.2)
            for way in ways.values():
                way.heal()
            polls.how = "well"
            healed = datetime.now(UTC)
            service.wait_for(lambda: whole(healed), 90)  # noqa: B023 - called before the next case
            failed[str(case)] = max(sum(not ok for at, ok in of.items() if at > healed) for of in runs.values())
        assert replicas() >= before
        assert polls.numbers
        assert min(polls.numbers) >= posted
        assert service.process.poll() is None
        assert "Traceback" not in service.said()
        assert max(failed.values()) <= TICKS_TO_HEAL - 1, failed
