"""The port that is taken first, and HTTPS with the certificate of the settings."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from contextlib import ExitStack

import pytest

from balancer.actuators.board import ScalerBoard
from headway.api.listening import Server, listen, url_of
from headway.api.server import create_app
from headway.configuration.sections import ApiSettings, ScalerSettings
from headway.configuration.settings import Settings, load
from headway.errors import HeadwayError, SettingsRefused
from headway.operation.scalers import open_scalers
from tests.peers.certificates import certificates


def test_with_a_certificate_the_api_speaks_https_and_nothing_else(application, tmp_path):
    ca, certificate, key = certificates(tmp_path, "ours")
    api = ApiSettings(port=0, tls_certificate=certificate, tls_key=key)
    with listen(api) as listener:
        port = listener.getsockname()[1]
        server = Server(create_app(application), api)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            end = time.monotonic() + 120
            while not server.started and time.monotonic() < end:
                time.sleep(0.01)
            safe = http.client.HTTPSConnection("localhost", port, context=ssl.create_default_context(cafile=str(ca)))
            safe.request("GET", "/healthz")
            assert safe.getresponse().status == 200
            safe.close()
            plain = http.client.HTTPConnection("localhost", port, timeout=60)
            plain.request("GET", "/healthz")
            with pytest.raises((http.client.HTTPException, OSError)):
                plain.getresponse()
            plain.close()
            assert url_of(api, listener) == f"https://127.0.0.1:{port}/"
        finally:
            server.should_exit = True
            thread.join()


def test_a_certificate_that_is_not_there_is_one_line(application, tmp_path):
    absent = tmp_path / "absent.pem"
    with pytest.raises(HeadwayError, match=r"absent\.pem.*No such file"):
        Server(create_app(application), ApiSettings(tls_certificate=absent, tls_key=absent))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[api]\ntls_key = 'k'\n", "api: tls_certificate and tls_key go together"),
        ("[scaler]\ntls_certificate = 'c'\n", "scaler: tls_certificate and tls_key go together"),
        ("[scaler]\nclient_ca = 'ca'\n", "scaler: client_ca needs tls_certificate and tls_key"),
    ],
)
def test_tls_by_halves_is_refused(tmp_path, text, said):
    file = tmp_path / "headway.toml"
    file.write_text(text)
    with pytest.raises(SettingsRefused, match=said):
        load(file, {})


def test_a_scaler_may_do_without_an_authority():
    assert not Settings(scaler={"host": "0.0.0.0", "tls_certificate": "c", "tls_key": "k"}).scaler.is_open


@pytest.mark.parametrize("is_open", [True, False])
def test_a_scaler_that_others_reach_without_tls_is_logged(monkeypatch, capsys, is_open):
    monkeypatch.setattr(ScalerSettings, "is_open", is_open)
    with ExitStack() as stack:
        (said,) = open_scalers(Settings(scaler={"port": 0}), ScalerBoard(), stack)
    assert said.startswith("scaler: 127.0.0.1:")
    assert ("without TLS" in capsys.readouterr().err) is is_open


def test_the_scaler_of_the_settings_speaks_tls_without_an_authority(tmp_path):
    ca, certificate, key = certificates(tmp_path, "ours")
    own = {"host": "localhost", "port": 0, "tls_certificate": certificate, "tls_key": key}
    with ExitStack() as stack:
        (said,) = open_scalers(Settings(scaler=own), ScalerBoard(), stack)
        assert said.endswith(" with TLS")
        port = int(said.split(":")[2].split()[0])
        with socket.create_connection(("localhost", port), timeout=60) as raw:
            context = ssl.create_default_context(cafile=str(ca))
            context.set_alpn_protocols(["h2"])
            with context.wrap_socket(raw, server_hostname="localhost") as safe:
                assert safe.version() is not None
