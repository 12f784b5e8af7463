"""Who may ask: tokens, loopback names, limits."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from headway.api.gate import digest
from headway.api.server import create_app, tokens
from headway.configuration.settings import Settings
from headway.errors import SettingsRefused


@pytest.fixture
def guarded(application):
    api = {"read_token": "r-secret", "write_token": "sha256:" + digest("w-secret").hex(), "max_body_bytes": 2048}
    application.settings = Settings(api=api | {"writes_per_minute": 3}, groups=application.settings.groups)
    return TestClient(create_app(application), raise_server_exceptions=False)


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def test_reading_and_writing_need_their_tokens(guarded):
    assert guarded.get("/healthz").status_code == 200
    assert guarded.get("/v1/groups").status_code == 401
    assert guarded.get("/metrics").status_code == 401
    assert guarded.get("/v1/groups", headers=bearer("r-secret")).status_code == 200
    assert guarded.get("/v1/groups", headers=bearer("w-secret")).status_code == 200
    assert guarded.get("/v1/groups", headers=bearer("wrong")).status_code == 401
    mode = {"mode": "off"}
    assert guarded.put("/v1/groups/orders/mode", json=mode).status_code == 401
    refused = guarded.put("/v1/groups/orders/mode", json=mode, headers=bearer("r-secret"))
    assert refused.status_code == 403
    assert "r-secret" not in refused.text
    assert guarded.put("/v1/groups/orders/mode", json=mode, headers=bearer("w-secret")).status_code == 200


def test_a_read_token_alone_closes_writing(application):
    application.settings = Settings(api={"read_token": "r"}, groups=application.settings.groups)
    client = TestClient(create_app(application), raise_server_exceptions=False)
    assert client.put("/v1/groups/orders/mode", json={"mode": "off"}).status_code == 401


def test_bodies_and_rates_are_limited(guarded):
    headers = bearer("w-secret")
    assert guarded.post("/v1/prescale", content=b"x" * 5000, headers=headers).status_code == 413
    parts = (b"x" * 1000 for _ in range(5))  # chunked: no length is announced
    assert guarded.post("/v1/prescale", content=parts, headers=headers).status_code == 413
    codes = [guarded.post("/v1/prescale", json={}, headers=headers).status_code for _ in range(3)]
    assert codes[-1] == 429


def test_without_tokens_only_loopback_is_bound_and_named(application):
    with pytest.raises(SettingsRefused, match="read_token_file"):
        tokens(Settings(api={"host": "0.0.0.0"}))
    client = TestClient(create_app(application), raise_server_exceptions=False)
    assert client.get("/v1/groups", headers={"Host": "evil.example"}).status_code == 421
    assert client.get("/v1/groups", headers={"Host": "127.0.0.1:8765"}).status_code == 200


def test_text_that_poses_as_json_is_refused(client):
    answer = client.post("/v1/prescale", content=b"{}", headers={"Content-Type": "text/plain"})
    assert answer.status_code == 422
