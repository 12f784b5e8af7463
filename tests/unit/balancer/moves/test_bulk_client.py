"""The second Kafka client of moves logs in as the first one does, or says that it cannot."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kafka.admin import KafkaAdminClient

from balancer.moves import bulk_client
from balancer.moves.bulk_client import NoWord, bulk_options, listed_ids
from balancer.moves.promises import BrokerFacts, doubts
from tests.peers.certificates import certificates, openssl

HERE = {"bootstrap.servers": "127.0.0.1:1"}


class TlsDoor:
    """Takes TLS clients whose certificate its authority signed, notes who came, and hangs up."""

    def __init__(self, ca: Path, certificate: Path, key: Path) -> None:
        self.came: list[str] = []
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(ca))
        self._context.verify_mode = ssl.CERT_REQUIRED
        self._context.load_cert_chain(certificate, key)
        self._door = socket.create_server(("127.0.0.1", 0))
        self._door.settimeout(0.1)
        self._open = True
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        self.address = f"127.0.0.1:{self._door.getsockname()[1]}"

    def _serve(self) -> None:
        while self._open:
            with contextlib.suppress(OSError):  # nobody came, or somebody without a certificate
                connection, _ = self._door.accept()
                connection.settimeout(10)
                with connection, self._context.wrap_socket(connection, server_side=True) as safe:
                    subject = dict(part[0] for part in (safe.getpeercert() or {})["subject"])
                    self.came.append(subject["commonName"])

    def close(self) -> None:
        self._open = False
        self._thread.join()
        self._door.close()


@pytest.fixture
def papers(tmp_path: Path) -> tuple[Path, Path, Path]:
    ca, certificate, key = certificates(tmp_path, "ours")
    locked = tmp_path / "locked.key"
    openssl("rsa", "-aes256", "-passout", "pass:hunter2", "-in", key, "-out", locked)
    return ca, certificate, locked


@pytest.fixture
def door(tmp_path: Path, papers: tuple[Path, Path, Path]) -> Iterator[TlsDoor]:
    made = TlsDoor(papers[0], papers[1], tmp_path / "ours.key")
    yield made
    made.close()


def test_it_shows_the_client_certificate_that_librdkafka_is_given(
    door: TlsDoor, papers: tuple[Path, Path, Path]
) -> None:
    ca, certificate, key = papers
    properties = {
        "bootstrap.servers": door.address,
        "security.protocol": "ssl",
        "ssl.ca.location": str(ca),
        "ssl.certificate.location": str(certificate),
        "ssl.key.location": str(key),
        "ssl.key.password": "hunter2",
    }
    end = time.monotonic() + 120
    while not door.came and time.monotonic() < end:
        with contextlib.suppress(Exception):  # the door hangs up on whoever has come in
            listed_ids(properties, [1], timedelta(seconds=5))
    assert door.came[:1] == ["ours"]


@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
def test_both_names_of_the_mechanism_are_known(name: str) -> None:
    assert bulk_options({**HERE, name: "SCRAM-SHA-512"})["sasl_mechanism"] == "SCRAM-SHA-512"


def test_names_of_hosts_are_checked_unless_librdkafka_does_not() -> None:
    name = "ssl.endpoint.identification.algorithm"
    assert [bulk_options({**HERE, name: v})["ssl_check_hostname"] for v in ("https", "none")] == [True, False]
    assert "ssl_check_hostname" not in bulk_options(HERE)


def test_what_lets_nobody_in_is_no_reason_to_refuse() -> None:
    harmless = {"ssl.curves.list": "X25519", "enable.ssl.certificate.verification": True, "ssl.sigalgs.list": "ed25519"}
    assert bulk_options({**HERE, **harmless}) == bulk_options(HERE)
    assert set(bulk_options({**HERE, **dict.fromkeys(bulk_client._WORDS, "PLAIN")})) <= set(
        KafkaAdminClient.DEFAULT_CONFIG
    )


def test_both_clients_for_bulk_reads_know_the_same_words() -> None:
    from forecaster.ingest import kafka_fast

    names = ("bootstrap.servers", "client.id", "ssl.endpoint.identification.algorithm")
    mine, other = (
        {name: word for name, word in words.items() if name not in names}
        for words in (bulk_client._WORDS, kafka_fast._WORDS)
    )
    assert mine == other


@pytest.mark.parametrize(
    "more",
    [
        {"sasl.mechanism": "GSSAPI"},
        {"sasl.oauthbearer.method": "oidc"},
        {"ssl.keystore.location": "client.p12"},
        {"enable.ssl.certificate.verification": "false"},
    ],
)
def test_a_login_that_it_has_no_word_for_is_refused_by_name(more: dict[str, str]) -> None:
    with pytest.raises(NoWord, match=next(iter(more))):
        listed_ids({**HERE, **more}, [1], timedelta(seconds=5))


def test_ids_that_cannot_be_listed_close_act() -> None:
    (doubt,) = doubts(BrokerFacts(3, unlisted="ssl.keystore.location: no word"))
    assert doubt.closes
    assert "ssl.keystore.location" in doubt.what


def test_only_transactions_under_way_make_a_partition_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace as Some

    states = {"a": "Ongoing", "b": "Empty", "c": "CompleteAbort", "d": "PrepareCommit", "e": "CompleteCommit"}
    places = {"a": [("__consumer_offsets", 3), ("orders", 0)], "d": [("__consumer_offsets", 7)]}

    class Client:
        def list_transactions(self) -> dict[int, list[Any]]:
            return {1: [Some(transactional_id=name, state=Some(value=state)) for name, state in states.items()]}

        def describe_transactions(self, names: list[str]) -> dict[str, Any]:
            assert names == ["a", "d"]
            return {n: Some(topic_partitions=[Some(topic=t, partition=p) for t, p in places[n]]) for n in names}

        def close(self) -> None: ...

    monkeypatch.setattr(bulk_client, "bulk_client", lambda properties, patience: Client())
    assert bulk_client.busy_places(HERE, "__consumer_offsets", timedelta(seconds=1)) == {3, 7}
