"""What the classic assignor's weights are when the server's answer breaks off."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from balancer.consumer.assignor import weights_of


@pytest.fixture
def answering(request: pytest.FixtureRequest) -> Iterator[str]:
    """Give the address of a server that says the same bytes to each request, and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            try:
                connection, _ = listening.accept()
            except OSError:  # nobody asked
                return
            with connection:
                connection.recv(65536)
                connection.sendall(request.param)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread.join(60)


@pytest.mark.parametrize(
    "answering",
    [
        b'HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"topics": ["or',  # IncompleteRead
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",  # BadStatusLine
    ],
    ids=["cut off", "no HTTP"],
    indirect=True,
)
def test_an_answer_that_breaks_off_or_is_no_http_ends_no_rebalance(answering: str) -> None:
    assert weights_of(answering, "orders", timeout_s=60)() == {}
