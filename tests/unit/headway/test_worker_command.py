"""headway worker: what its options make of the consumer."""

from __future__ import annotations

import signal

import pytest

import balancer.consumer
from headway.cli import main


@pytest.mark.parametrize(("options", "expected"), [([], 500), (["--poll-records", "4000"], 4000)])
def test_the_batch_of_a_worker_is_its_users_choice(tmp_path, monkeypatch, options, expected):
    made = []

    class Consumer:
        """Remembers its settings, and has nothing to do."""

        def __init__(self, settings, handler, batch):
            made.append(settings)

        def run(self):
            """End at once."""

    monkeypatch.setattr(balancer.consumer, "PlannedConsumer", Consumer)
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    config = tmp_path / "headway.toml"
    config.write_text('[store]\nurl = "redis://h:1/0"\n[kafka]\nbootstrap_servers = "b:9092"\n')
    told = ["worker", "--group", "orders", "--topics", "orders", "--handler", "json:loads", "--config", str(config)]
    assert main([*told, *options]) == 0
    assert [settings.poll_records for settings in made] == [expected]
    assert main([*told, "--poll-records", "0"]) == 2
