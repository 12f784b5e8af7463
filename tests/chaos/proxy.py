"""A TCP proxy of the tests: cuts, freezes and heals the network between one process and one server."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading

from tests.peers.kafka import free_ports


class Proxy:
    """Forwards a local port to another; ``cut`` drops what is connected and refuses, ``freeze`` lets nothing pass."""

    def __init__(self, target: int, port: int | None = None) -> None:
        self.target = target
        self.port = port if port is not None else free_ports(1)[0]
        self._lock = threading.Lock()
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._closed = threading.Event()
        self._is_cut = False
        self._frozen = threading.Event()
        self._listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        self._server = socket.create_server(("127.0.0.1", self.port), reuse_port=False)
        self._server.setblocking(False)
        self._selector.register(self._server, selectors.EVENT_READ)

    def _serve(self) -> None:
        while not self._closed.is_set():
            for key, _ in self._selector.select(0.05):
                if self._frozen.is_set():
                    self._closed.wait(0.02)
                    continue
                end = key.fileobj
                if end is self._server:
                    self._accept()
                elif isinstance(end, socket.socket):
                    self._pump(end)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            here, _ = self._server.accept()
            if self._is_cut:
                here.close()
                return
            try:
                there = socket.create_connection(("127.0.0.1", self.target), timeout=1)
            except OSError:
                here.close()
                return
            with self._lock:
                self._pairs[here], self._pairs[there] = there, here
                for end in (here, there):
                    self._selector.register(end, selectors.EVENT_READ)

    def _pump(self, end: socket.socket) -> None:
        other = self._pairs.get(end)
        if other is None:
            return
        try:
            data = end.recv(65536)
            if not data:
                raise OSError("closed")
            other.sendall(data)
        except OSError:
            self._drop(end)

    def _drop(self, end: socket.socket) -> None:
        with self._lock:
            for one in (end, self._pairs.get(end)):
                if one is not None and one in self._pairs:
                    with contextlib.suppress(KeyError, ValueError):
                        self._selector.unregister(one)
                    one.close()
            other = self._pairs.pop(end, None)
            if other is not None:
                self._pairs.pop(other, None)

    def cut(self) -> None:
        """Drop every connection, and refuse new ones."""
        self._is_cut = True
        for end in list(self._pairs):
            self._drop(end)

    def freeze(self) -> None:
        """Let nothing pass, and keep everything connected."""
        self._frozen.set()

    def heal(self) -> None:
        """Let everything pass again."""
        self._is_cut = False
        self._frozen.clear()

    def close(self) -> None:
        """End."""
        self._closed.set()
        self._thread.join(2)
        for end in list(self._pairs):
            self._drop(end)
        self._server.close()
        self._selector.close()


class Door:
    """One of a cluster's doors: a proxy before each node."""

    def __init__(self, ports: list[tuple[int, int]]) -> None:
        self._proxies = [Proxy(inside, outside) for outside, inside in ports]

    @property
    def bootstrap(self) -> str:
        """Bootstrap servers of this door."""
        return ",".join(f"127.0.0.1:{proxy.port}" for proxy in self._proxies)

    def cut(self) -> None:
        """Drop every connection, and refuse new ones."""
        for proxy in self._proxies:
            proxy.cut()

    def freeze(self) -> None:
        """Let nothing pass, and keep everything connected."""
        for proxy in self._proxies:
            proxy.freeze()

    def heal(self) -> None:
        """Let everything pass again."""
        for proxy in self._proxies:
            proxy.heal()

    def close(self) -> None:
        """End."""
        for proxy in self._proxies:
            proxy.close()
