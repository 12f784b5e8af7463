"""A broker that was away while groups were asked about comes back, and nobody's process ends of it.

librdkafka's own mock broker stands behind a door that opens late; whoever asks is a process of its own, since what went
wrong here once was an abort.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer

AWAY_S, BACK_S = 4, 4
ASKING = f"""
import sys, time
from balancer.observers.kafka import KafkaGroupObserver
from forecaster.ingest.kafka_full import FullReader
from forecaster.topics import GroupId, TopicPartition

door, who = sys.argv[1:]
observer, reader = KafkaGroupObserver({{"bootstrap.servers": door}}, timeout_s=1), None
asked = {{"observer": lambda: observer.observe(GroupId("g"))}}
if who == "reader":
    reader = FullReader({{"bootstrap.servers": door}}, 1.0)
    orders = [TopicPartition("orders", 0)]
    asked = {{"ends": lambda: reader.ends(orders), "committed": lambda: reader.committed([GroupId("g")], orders)}}
said = set()
began = last = time.monotonic()
wanted = {{"ends Answer", "committed dict"}} if who == "reader" else set()
while (not wanted <= said or time.monotonic() < last + {AWAY_S + BACK_S}) and time.monotonic() < began + 120:
    for name, ask in asked.items():
        try:
            answer = type(ask()).__name__
        except Exception as error:
            answer = type(error).__name__
        if not said:
            print("asked in vain", flush=True)
        if name + " " + answer not in said:  # who hears something new listens on for a while
            last = time.monotonic()
        said.add(name + " " + answer)
    time.sleep(0.1)
observer.close()
if reader is not None:
    reader.close()
print(",".join(sorted(said)))
"""


@contextlib.contextmanager
def a_door_that_opens_late() -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield an address at which nobody listens, and what lets a mock broker listen there a little later."""
    cluster = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "log_level": 0})
    cluster.produce("orders", b"x")
    cluster.flush(10)
    (broker,) = cluster.list_topics(timeout=10).brokers.values()
    with socket.socket() as door, contextlib.ExitStack() as open_sockets:
        door.bind(("127.0.0.1", 0))

        def pump(source: socket.socket, sink: socket.socket) -> None:
            with contextlib.suppress(OSError):
                while data := source.recv(65536):
                    sink.sendall(data)

        def serve() -> None:
            door.listen(20)
            with contextlib.suppress(OSError):  # the door is closed at the end
                while True:
                    here = open_sockets.enter_context(door.accept()[0])
                    there = open_sockets.enter_context(socket.create_connection((broker.host, broker.port)))
                    for pair in ((here, there), (there, here)):
                        threading.Thread(target=pump, args=pair, daemon=True).start()

        opening = threading.Timer(AWAY_S, serve)
        opening.daemon = True
        host, port = door.getsockname()
        yield f"{host}:{port}", opening.start
        door.shutdown(socket.SHUT_RDWR)
        opening.join(60)


@pytest.mark.parametrize("who", ["observer", "reader"])
def test_a16_a_broker_that_comes_back_ends_nobody_who_asked_for_it_in_vain(who: str) -> None:
    with a_door_that_opens_late() as (door, opens):
        command = [sys.executable, "-c", ASKING, door, who]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as asking:
            assert asking.stdout is not None
            first = asking.stdout.readline()
            opens()
            told = first + asking.stdout.read()
    assert asking.returncode == 0, told
    said = told.splitlines()[-1].split(",")
    if who == "observer":  # the mock broker describes no groups
        assert said == ["observer ObserverUnavailable"]
    else:
        assert {"ends Answer", "ends SourceUnavailable", "committed dict"} <= set(said)
