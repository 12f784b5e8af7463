"""KEDA's contract, spoken over a real gRPC channel."""

import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancer.actuators.board import Posted, ScalerBoard
from balancer.actuators.keda import externalscaler_pb2 as pb
from balancer.actuators.keda import externalscaler_pb2_grpc as rpc
from balancer.actuators.keda.server import METRIC, STREAMS, ScalerTls, serve_scaler
from balancer.errors import TargetRefused
from forecaster.topics import GroupId
from tests.peers.certificates import certificates

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
ORDERS = GroupId("orders")
REF = pb.ScaledObjectRef(name="consumer", namespace="default", scalerMetadata={"group": "orders"})
ROOT = Path(__file__).resolve().parents[2]


class Bed:
    def __init__(self):
        self.now = NOON
        self.board = ScalerBoard(timedelta(minutes=5))
        self.server, port = serve_scaler(self.board, lambda: self.now, "127.0.0.1:0")
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self.stub = rpc.ExternalScalerStub(self.channel)

    def metrics(self, name=METRIC, ref=REF):
        answer = self.stub.GetMetrics(pb.GetMetricsRequest(scaledObjectRef=ref, metricName=name), timeout=60)
        (value,) = answer.metricValues
        return value

    def close(self):
        self.channel.close()
        self.board.close()
        self.server.stop(0).wait()


@pytest.fixture(scope="module")
def shared():
    bed = Bed()
    yield bed
    bed.close()


@pytest.fixture
def bed(shared):
    shared.now = NOON
    for group in shared.board.groups():
        shared.board.withdraw(group)
    return shared


def test_c2_c13_the_spec_is_static_and_needs_nothing(bed):
    for ref in (REF, pb.ScaledObjectRef(name="unknown"), pb.ScaledObjectRef()):
        (spec,) = bed.stub.GetMetricSpec(ref, timeout=60).metricSpecs
        assert (spec.metricName, spec.targetSize, spec.targetSizeFloat) == (METRIC, 1, 1.0)


def test_c14_polls_are_answered_however_many_triggers_wait_for_a_push(bed):
    bed.board.scale(ORDERS, 7, NOON)
    streams = [bed.stub.StreamIsActive(REF, timeout=120) for _ in range(STREAMS + 1)]
    held = streams[:STREAMS]
    assert all(next(stream).result for stream in held)
    with pytest.raises(grpc.RpcError) as refused:
        next(streams[-1])
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert bed.metrics().metricValue == 7
    for stream in held:
        stream.cancel()


@given(replicas=st.integers(0, 10**15))
def test_c9_both_fields_hold_the_number(shared, replicas):
    shared.now = NOON
    shared.board.scale(ORDERS, replicas, NOON)
    value = shared.metrics()
    assert (value.metricValue, value.metricValueFloat) == (replicas, float(replicas))


@pytest.mark.parametrize("name", [METRIC, f"s0-{METRIC}", f"s11-{METRIC}"])
def test_c7_the_name_is_answered_as_it_was_asked(bed, name):
    bed.board.scale(ORDERS, 7, NOON)
    assert bed.metrics(name).metricName == name


def test_c1_c11_the_last_number_stays_until_its_age_limit(bed):
    bed.board.scale(ORDERS, 7, NOON)
    bed.now = NOON + timedelta(minutes=5)
    assert bed.metrics().metricValue == 7
    bed.now += timedelta(seconds=1)
    with pytest.raises(grpc.RpcError) as refused:
        bed.metrics()
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "301 s old (limit 300 s)" in refused.value.details()


@pytest.mark.parametrize("call", ["GetMetrics", "IsActive"])
def test_c12_without_a_plan_there_is_no_number_at_all(bed, call):
    bed.board.scale(GroupId("orders-eu"), 3, NOON)
    request = pb.GetMetricsRequest(scaledObjectRef=REF, metricName=METRIC) if call == "GetMetrics" else REF
    with pytest.raises(grpc.RpcError) as refused:
        getattr(bed.stub, call)(request, timeout=60)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "did you mean orders-eu" in refused.value.details()


def test_c9_c12_a_number_that_would_scale_to_the_minimum_never_reaches_the_board(bed):
    bed.board.scale(ORDERS, 7, NOON)
    for bad in (-1, 9_200_000_000_000_000):
        with pytest.raises(TargetRefused):
            bed.board.scale(ORDERS, bad, NOON)
    assert bed.metrics().metricValue == 7


def test_zero_members_is_inactive_and_one_is_active(bed):
    bed.board.scale(ORDERS, 0, NOON)
    assert bed.stub.IsActive(REF, timeout=60).result is False
    assert bed.metrics().metricValue == 0
    bed.board.scale(ORDERS, 1, NOON)
    assert bed.stub.IsActive(REF, timeout=60).result is True


def test_the_scaled_objects_name_is_the_group_when_none_is_given(bed):
    bed.board.scale(GroupId("consumer"), 4, NOON)
    assert bed.metrics(ref=pb.ScaledObjectRef(name="consumer")).metricValue == 4


def test_push_wakes_as_soon_as_activity_changes(bed):
    stream = bed.stub.StreamIsActive(REF, timeout=30)
    got, first, second = [], threading.Event(), threading.Event()

    def follow():
        try:
            for answer in stream:
                got.append(answer.result)
                (second if len(got) > 1 else first).set()
        except grpc.RpcError as ended:
            assert ended.code() is grpc.StatusCode.CANCELLED

    thread = threading.Thread(target=follow)
    thread.start()
    bed.board.scale(ORDERS, 0, NOON)
    assert first.wait(60)
    bed.board.scale(ORDERS, 2, NOON)
    assert second.wait(60)
    stream.cancel()
    thread.join(60)
    assert got == [False, True]


def test_c6_a_streamed_spec_is_not_offered_rather_than_empty(bed):
    with pytest.raises(grpc.RpcError) as refused:
        next(bed.stub.StreamMetricSpec(REF, timeout=60))
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_b26_after_a_restart_the_number_comes_back_with_its_true_age(bed):
    bed.board.restore(ORDERS, Posted(7, NOON - timedelta(minutes=4)))
    assert bed.metrics().metricValue == 7
    bed.board.restore(ORDERS, Posted(3, NOON - timedelta(minutes=9)))  # older: the newer one stays
    assert bed.metrics().metricValue == 7


def test_a_clock_that_went_back_makes_a_number_new_and_not_unknown(bed):
    bed.board.scale(ORDERS, 7, NOON)
    bed.now = NOON - timedelta(hours=1)
    assert bed.metrics().metricValue == 7


def test_a_taken_port_is_a_clear_refusal(bed):
    server, port = serve_scaler(bed.board, lambda: NOON, "127.0.0.1:0")
    with pytest.raises(TargetRefused, match="port taken"):
        serve_scaler(bed.board, lambda: NOON, f"127.0.0.1:{port}")
    server.stop(0).wait()


def test_mutual_tls_lets_in_only_clients_of_the_authority(tmp_path):
    ca, certificate, key = certificates(tmp_path, "ours")
    _, foreign_certificate, foreign_key = certificates(tmp_path, "theirs")
    board = ScalerBoard()
    board.scale(ORDERS, 7, NOON)
    server, port = serve_scaler(board, lambda: NOON, "localhost:0", ScalerTls(certificate, key, ca))
    answers = []
    for chain, secret in ((certificate, key), (foreign_certificate, foreign_key)):
        credentials = grpc.ssl_channel_credentials(ca.read_bytes(), secret.read_bytes(), chain.read_bytes())
        with grpc.secure_channel(f"localhost:{port}", credentials) as channel:
            try:
                answers.append(rpc.ExternalScalerStub(channel).IsActive(REF, timeout=60).result)
            except grpc.RpcError as refused:
                answers.append(refused.code())
    server.stop(0).wait()
    assert answers == [True, grpc.StatusCode.UNAVAILABLE]


def test_tls_without_an_authority_asks_nobody_for_a_certificate(tmp_path):
    ca, certificate, key = certificates(tmp_path, "ours")
    board = ScalerBoard()
    board.scale(ORDERS, 7, NOON)
    server, port = serve_scaler(board, lambda: NOON, "localhost:0", ScalerTls(certificate, key))
    with grpc.secure_channel(f"localhost:{port}", grpc.ssl_channel_credentials(ca.read_bytes())) as channel:
        assert rpc.ExternalScalerStub(channel).IsActive(REF, timeout=60).result
    with grpc.insecure_channel(f"localhost:{port}") as channel, pytest.raises(grpc.RpcError):
        rpc.ExternalScalerStub(channel).IsActive(REF, timeout=60)
    server.stop(0).wait()


def test_missing_tls_files_are_named(tmp_path):
    absent = tmp_path / "absent.pem"
    with pytest.raises(TargetRefused, match=r"absent\.pem"):
        serve_scaler(ScalerBoard(), lambda: NOON, "127.0.0.1:0", ScalerTls(absent, absent, absent))


def test_the_generated_code_is_what_the_contract_generates(tmp_path):
    proto = "balancer/actuators/keda/externalscaler.proto"
    outputs = [f"--{kind}_out={tmp_path}" for kind in ("python", "pyi", "grpc_python")]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", "-I.", *outputs, proto], cwd=ROOT, check=True)
    for generated in sorted(tmp_path.rglob("*.py*")):
        assert generated.read_text() == (ROOT / generated.relative_to(tmp_path)).read_text(), generated.name
