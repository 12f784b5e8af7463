"""No secret in what Headway says of itself: settings, errors, logs, plans, documents."""

from __future__ import annotations

import json
import logging
from datetime import timedelta

import pytest
from fastapi.testclient import TestClient

from headway.api.server import create_app
from headway.configuration.settings import load
from headway.errors import SettingsRefused, one_line
from headway.status import logs
from tests.unit.headway.conftest import a_decision

SECRETS = {
    "HEADWAY_STORE__PASSWORD": "hush-store",
    "HEADWAY_KAFKA__PASSWORD": "hush-kafka",
    "HEADWAY_KAFKA__PROPERTIES__SSL_KEY_PASSWORD": "hush-key",
    "HEADWAY_KAFKA__PROPERTIES__SASL_OAUTHBEARER_CLIENT_SECRET": "hush-client",
    "HEADWAY_API__READ_TOKEN": "hush-read",
    "HEADWAY_API__WRITE_TOKEN": "hush-write",
    "HEADWAY_MODELS__HMAC_KEY": "hush-hmac",
}


@pytest.fixture
def settings(tmp_path):
    file = tmp_path / "headway.toml"
    file.write_text(
        '[store]\nurl = "redis://cache:6379/0"\n'
        '[kafka]\nbootstrap_servers = "b:9092"\n[groups.orders]\ntopics = ["orders"]\n'
    )
    return load(file, SECRETS)


def test_settings_do_not_show_them(settings):
    shown = [repr(settings), str(settings), settings.model_dump_json(), json.dumps(settings.model_dump(), default=str)]
    assert [secret for secret in SECRETS.values() if any(secret in text for text in shown)] == []


def test_clients_get_the_secrets_of_properties_from_the_environment_and_from_files(tmp_path):
    held = tmp_path / "key.pem"
    held.write_text("hush-pem\n")
    file = tmp_path / "headway.toml"
    file.write_text(
        '[kafka]\nbootstrap_servers = "b:9092"\n'
        'properties = { "sasl.oauthbearer.token.endpoint.url" = "https://login", "linger.ms" = 5 }\n'
        f'property_files = {{ "ssl.key.pem" = "{held}" }}\n'
    )
    more = {"HEADWAY_KAFKA__PROPERTY_FILES__SASL_OAUTHBEARER_CONFIG": str(held)}
    settings = load(file, SECRETS | more)
    assert settings.kafka_properties() == {
        "bootstrap.servers": "b:9092",
        "linger.ms": 5,
        "sasl.oauthbearer.token.endpoint.url": "https://login",
        "sasl.oauthbearer.client.secret": "hush-client",
        "sasl.oauthbearer.config": "hush-pem",
        "sasl.password": "hush-kafka",
        "ssl.key.password": "hush-key",
        "ssl.key.pem": "hush-pem",
    }
    assert "hush" not in repr(settings)
    held.unlink()
    with pytest.raises(SettingsRefused, match=r"key\.pem: cannot read the secret"):
        settings.kafka_properties()


@pytest.mark.parametrize(
    "name",
    [
        "sasl.password", "ssl.key.password", "ssl.keystore.password", "ssl.key.pem", "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config", "sasl.oauthbearer.assertion.private.key.passphrase", "sasl.jaas.config",
    ],
)  # fmt: skip
def test_a_property_that_is_a_secret_is_refused_in_the_file_with_the_two_ways_for_it(tmp_path, name):
    file = tmp_path / "headway.toml"
    file.write_text(f'[kafka.properties]\n"{name}" = "hush"\n')
    with pytest.raises(SettingsRefused) as refused:
        load(file, {})
    said = str(refused.value)
    assert name in said
    assert "kafka.property_files" in said
    assert f"HEADWAY_KAFKA__PROPERTIES__{name.upper().replace('.', '_')}" in said
    assert "hush" not in said


def test_a_secret_in_the_file_is_refused_without_repeating_it(tmp_path):
    file = tmp_path / "headway.toml"
    for text in (
        '[store]\npassword = "hush"\n',
        '[store]\nurl = "redis://:hush@cache:6379/0"\n',
        '[api]\nwrite_token = "hush"\n',
        '[kafka]\nproperties = { "sasl.password" = "hush" }\n',
    ):
        file.write_text(text)
        with pytest.raises(SettingsRefused) as refused:
            load(file, {})
        assert "hush" not in str(refused.value)
        assert "hush" not in one_line(refused.value)


def test_logs_hide_what_is_named_like_a_secret(capsys):
    logs.configure()
    logs.logger("test").warning("called", token="hush", password="hush", Authorization="Bearer hush", group="orders")
    said = capsys.readouterr().err
    logging.getLogger().handlers.clear()
    assert "hush" not in said
    assert "orders" in said


def test_documents_hold_none(application, settings):
    application.settings = settings.model_copy(update={"groups": application.settings.groups})
    token = application.plans.lead("orders", "a", timedelta(minutes=5))
    application.plans.record(a_decision(), token)
    client = TestClient(create_app(application), headers={"Authorization": "Bearer hush-read"})
    for path in ("/v1/groups", "/v1/groups/orders", "/v1/groups/orders/decisions?inputs=true", "/v1/audit", "/v1/jobs"):
        answer = client.get(path)
        assert answer.status_code == 200, path
        assert "hush" not in answer.text
    wrong = client.put("/v1/groups/orders/mode", json={"mode": "off"}, headers={"Authorization": "Bearer hush-other"})
    assert (wrong.status_code, "hush" in wrong.text) == (401, False)
