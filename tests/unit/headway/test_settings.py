"""Settings: inheritance, patterns, environment, secrets, and refusals that name key and remedy."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from balancer.policy import AssignmentKind, ScalingPolicy
from headway.configuration.sections import Mode
from headway.configuration.settings import Settings, load
from headway.errors import SettingsRefused

EXAMPLE = """
cluster = "main"
[store]
url = "redis://127.0.0.1:6379/0"
[kafka]
bootstrap_servers = "127.0.0.1:9092"
[api]
port = 8765
[scaler]
port = 9090
[models]
path = "models"
[defaults]
step = "60s"
mode = "recommend"
timezone = "Europe/Berlin"
slo = "30s"
[groups.orders]
topics = ["orders"]
mode = "act"
assignment = "planned"
capacity_per_member = 500.0
start_time = "120s"
min_replicas = 1
max_replicas = 12
rescales_per_day = 24
late_target = 0.0001
cpu_limit = 0.8
lease_ttl = "2s"
commit_interval = "100ms"
holidays = "DE-BE"
price_per_member_hour = 0.12
actuator = { kind = "process", command = ["headway", "worker"] }
[groups."orders-*"]
max_replicas = 8
actuator = { kind = "kubernetes", name = "orders" }
[groups."orders-eu-*"]
max_replicas = 4
[topics.orders]
hash = "murmur2"
groups = ["orders"]
hold_limit = "2s"
"""


def write(tmp_path, text):
    file = tmp_path / "headway.toml"
    file.write_text(text)
    return file


def test_the_documented_file_is_understood(tmp_path):
    settings = load(write(tmp_path, EXAMPLE), {})
    policy = settings.policy("orders")
    assert policy.lead_time == timedelta(seconds=120)
    assert policy.slo == timedelta(seconds=30)  # inherited
    assert policy.max_replicas == 12
    assert policy.assignment is AssignmentKind.PLANNED
    assert settings.mode("orders") is Mode.ACT
    assert settings.grid("orders").timezone == "Europe/Berlin"
    assert settings.named_groups == ("orders",)
    assert settings.group("orders").commit_interval == timedelta(milliseconds=100)


def test_the_longest_pattern_wins_and_unknown_groups_have_none(tmp_path):
    settings = load(write(tmp_path, EXAMPLE), {})
    assert settings.policy("orders-us").max_replicas == 8
    assert settings.policy("orders-eu-1").max_replicas == 4
    assert settings.group("bills") is None
    with pytest.raises(SettingsRefused, match="bills"):
        settings.policy("bills")


def test_nothing_is_required_and_act_is_never_the_default():
    settings = Settings(groups={"g": {"topics": ["t"]}})
    assert settings.mode("g") is Mode.RECOMMEND
    assert settings.policy("g") == ScalingPolicy()
    assert settings.store_url() is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[stroe]\n", "stroe.*'store'"),
        ("[groups.a]\ntopics=['t']\nmax_replica = 3\n", "groups.a.*max_replica.*'max_replicas'"),
        ("[defaults]\nslo = 60\n", "defaults.slo.*no unit.*60s"),
        ("[defaults]\nslo = '60'\n", "defaults.slo.*no unit"),
        ("[defaults]\ntimezone = 'Berlin'\n", "defaults.timezone.*unknown time zone"),
        ("[defaults]\nholidays = 'DE-ZZ'\n", "defaults.holidays.*no holidays of 'DE-ZZ'"),
        ("[defaults]\nstep = '7s'\n", "defaults.step.*divides a day"),
        ("[groups.a]\n", "groups.a.topics is missing"),
        ("[groups.a]\ntopics=['t']\nmin_replicas=3\nmax_replicas=2\n", "groups.a.*max_replicas=2 must be at least"),
        ("[jobs]\nretrain = 'daily'\n", "jobs.retrain.*cron"),
        ("[store]\npassword = 'x'\n", "store.password is a secret"),
        ("[store]\nurl = 'redis://:hunter2@h/0'\n", "store.url holds a password"),
        ("[kafka.properties]\n'sasl.password' = 'x'\n", "sasl.password is a secret"),
        ("[api]\nport = 99999\n", "api.port"),
        (
            "[groups.a]\ntopics=['t']\nactuator={kind='magic'}\n",
            "groups.a.actuator: there is no kind 'magic'; there are",
        ),
        ("[groups.a]\ntopics='t'\n", r"groups.a.topics: must be a list, such as \[\"orders\"\]"),
        ("[groups.a]\ntopics=['t', 't']\n", "'t' is named twice"),
        ("[groups.a]\ntopics=['a b']\n", "'a b' is no name of a topic"),
        ("[groups.a]\ntopics=['..']\n", "no name of a topic"),
        ("[groups.'']\ntopics=['t']\n", "a group has no name"),
        ("[groups.a]\ntopics=['t']\nmax_replicas=1.5\n", "max_replicas: must be a whole number"),
        ("[groups.a]\ntopics=['t']\nprice_per_member_hour=-1\n", "price_per_member_hour: must be"),
        ("[groups.a]\ntopics=['t']\nactuator={kind='webhook', url='ftp://x'}\n", "actuator.webhook.url"),
        ("[groups.a]\ntopics=['t']\nlease_ttl='0s'\n", "lease_ttl: must be longer than zero"),
        ("[store]\nurl = 'http://h'\n", "store.url"),
        ("[store]\nretention = '0s'\n", "store.retention: must be longer than zero"),
        ("[jobs]\nact_every = '0s'\n", "jobs.act_every: must be 1s or longer"),
        ("[jobs]\nact_every = '100ms'\n", "jobs.act_every: must be 1s or longer"),
        ("[prometheus]\nurl = 'http://ann:hunter2@p:9090'\n", "prometheus.url: holds a password.*use token_file"),
        ("[prometheus]\nselector = 'cluster=\"a\"'\n", "prometheus: selector says.*give its url"),
        ("[prometheus]\nexporter = 'kminion'\n", "prometheus: exporter says.*give its url"),
        ("[prometheus]\ntoken_file = 't'\n", "prometheus: token_file says.*give its url"),
        (
            "[prometheus]\nurl = 'http://p'\n[kafka.properties]\n'bootstrap.servers' = 'b:9092'\n",
            "offsets come from one.*HEADWAY_PROMETHEUS__URL or HEADWAY_KAFKA__BOOTSTRAP_SERVERS",
        ),
        ("[groups.a]\ntopics=['t']\nmax_replicas=true\n", "groups.a: max_replicas is no switch: it cannot be true"),
        ("[groups.a]\ntopics=['t']\nslo=true\n", "groups.a: slo is no switch"),
        ("[groups.a]\ntopics=['t']\nmax_replicas='many'\n", "groups.a.max_replicas: must be a whole number"),
        ("[groups.a]\ntopics=['t']\nactuator='keda'\n", r"groups.a.actuator: must be a table, such as \{ kind"),
        ("[groups.a]\ntopics=[['t']]\n", "groups.a.topics.0: must be text in quotes"),
        ("[groups]\na=3\n", r"groups.a: must be a table: \[groups.a\]"),
        ("groups = []\n", r"groups: must be a table: \[groups\]"),
        ("[kafka]\nbootstrap_servers=['b:9092']\n", "kafka.bootstrap_servers: must be text in quotes"),
        ("[store]\nurl = '127.0.0.1:6379'\n", "store.url: must be a URL such as redis://127.0.0.1:6379/0"),
        ("nonsense", "not TOML"),
    ],
)
def test_refusals_name_the_place_and_the_remedy(tmp_path, text, said):
    file = write(tmp_path, text)
    with pytest.raises(SettingsRefused, match=said) as refused:
        load(file, {})
    assert str(refused.value).startswith(str(file))
    assert "\n" not in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_a_missing_file_says_how_to_make_one(tmp_path):
    with pytest.raises(SettingsRefused, match="headway init"):
        load(tmp_path / "none.toml", {})


def test_environment_overrides_the_file(tmp_path):
    environ = {
        "HEADWAY_STORE__URL": "redis://other:6379/0",
        "HEADWAY_API__PORT": "9999",
        "HEADWAY_GROUPS__ORDERS__MAX_REPLICAS": "7",
        "HEADWAY_GROUPS__BILLS__TOPICS": '["bills"]',
        "HEADWAY_KAFKA__PROPERTIES__CLIENT_ID": "h",
        "HEADWAY_CLUSTER": "eu",
        "HEADWAY_PORT": "tcp://10.0.0.1:80",  # Kubernetes injects these for a Service of that name
        "HEADWAY_SERVICE_HOST": "10.0.0.1",
    }
    settings = load(write(tmp_path, EXAMPLE), environ)
    assert settings.store.url == "redis://other:6379/0"
    assert settings.api.port == 9999
    assert settings.policy("orders").max_replicas == 7
    assert settings.group("bills").topics == ("bills",)
    assert settings.kafka_properties()["client.id"] == "h"
    assert settings.cluster == "eu"
    for variable, said in (("HEADWAY_STORE__ULR", "'url'"), ("HEADWAY_GROUPS__ORDERS__MAX_REPLICAS", "whole")):
        with pytest.raises(SettingsRefused, match=f"^{variable}: .*{said}"):  # the place is the variable, not the file
            load(write(tmp_path, EXAMPLE), {variable: "x"})


def test_secrets_come_from_files_or_the_environment_and_are_never_shown(tmp_path):
    file = tmp_path / "secret"
    file.write_text("p@ss/word\n")
    text = f"[store]\nurl = 'redis://h:1/0'\npassword_file = '{file}'\n[kafka]\npassword_file = '{file}'\n"
    settings = load(write(tmp_path, text), {"HEADWAY_API__WRITE_TOKEN": "tok-123"})
    assert settings.store_url() == "redis://:p%40ss%2Fword@h:1/0"
    assert settings.kafka_properties()["sasl.password"] == "p@ss/word"
    assert "tok-123" not in repr(settings)
    assert "tok-123" not in settings.model_dump_json()
    file.write_text("")
    with pytest.raises(SettingsRefused, match="empty"):
        settings.store_url()


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("redis://ann:p@ss@h:1/0", "redis://h:1/0"),
        ("redis://h:1/0?password=pass&db=2", "redis://h:1/0?db=2"),
        ("unix:///run/redis.sock", "unix:///run/redis.sock"),
        ("redis://h:1/0", "redis://h:1/0"),
    ],
)
def test_where_the_store_is_is_said_without_its_password(url, place):
    settings = load(None, {"HEADWAY_STORE__URL": url})
    assert settings.store_place == place
    assert settings.store_url() == url


def test_an_empty_variable_counts_as_absent(tmp_path):
    empty = {"HEADWAY_KAFKA__BOOTSTRAP_SERVERS": "", "HEADWAY_STORE__PASSWORD": ""}
    settings = load(write(tmp_path, EXAMPLE), empty)
    assert settings.kafka.bootstrap_servers == "127.0.0.1:9092"
    assert settings.store_url() == "redis://127.0.0.1:6379/0"
    compose = (Path(__file__).parents[3] / "compose.yaml").read_text()
    assert "HEADWAY_KAFKA__BOOTSTRAP_SERVERS: ${KAFKA:-}\n" in compose
    settings = load(write(tmp_path, "[prometheus]\nurl = 'http://p:9090'\n"), empty)
    assert settings.prometheus.url == "http://p:9090"
