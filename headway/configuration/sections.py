"""The tables of ``headway.toml``: each key with its bound, default and meaning.

Values only: `headway.configuration.settings` reads files and the environment, and puts the tables together.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)

from balancer.errors import PolicyRefused
from balancer.policy import AssignmentKind
from balancer.prescaling import Rule, rule_from_json
from forecaster.timegrid import TimeGrid
from forecaster.topics import topic_name
from headway.configuration.actuators import ActuatorSettings
from headway.configuration.section import LOOPBACK, Duration, Section, SomeTime, whole_tls


class Mode(StrEnum):
    """What Headway may do with a group."""

    OFF = "off"
    RECOMMEND = "recommend"
    SHADOW = "shadow"
    ACT = "act"


class StoreSettings(Section):
    """Where series and plans live. Absent: an embedded server in the state folder."""

    secrets = frozenset({"password"})
    url: str | None = Field(default=None, pattern=r"^(rediss?|unix)://.")
    """``redis://``, ``rediss://`` or ``unix://``; without a password, which comes from ``password_file``."""
    password: SecretStr | None = None
    """From the environment only."""
    password_file: Path | None = None
    """File that holds the password."""
    layout: Literal["auto", "rows", "timeseries"] = "auto"
    """How series lie in the store; ``auto`` takes RedisTimeSeries where the server has it."""
    retention: SomeTime = timedelta(days=63)
    """How long per-step series are kept."""
    memory_limit: str = Field(default="1gb", pattern=r"^[1-9]\d*(kb|mb|gb)$")
    """Of the embedded server: it refuses writes beyond it, and evicts nothing; a server of yours has its own."""
    decisions: SomeTime = timedelta(days=14)
    """How long the decision log is kept, and the whole inputs of what changed, held or was refused."""


class KafkaSettings(Section):
    """How to reach the cluster."""

    secrets = frozenset({"password"})
    bootstrap_servers: str | None = None
    """``host:port``, comma-separated. Absent: arrivals come from ``[prometheus]``, by push or from files."""
    properties: dict[str, str | int | float | bool | SecretStr] = Field(default_factory=dict)
    """Any client property, by its librdkafka name; those that are secrets from the environment only."""
    property_files: dict[str, Path] = Field(default_factory=dict)
    """Properties that are secrets, such as ``ssl.key.password``: name → file that holds the value."""
    password: SecretStr | None = None
    """Becomes ``sasl.password``."""
    password_file: Path | None = None
    """File that holds the password."""

    @field_validator("properties", mode="before")
    @classmethod
    def _hide_secrets(cls, value: Any) -> Any:
        from forecaster.ingest.kafka_reader import is_secret

        if not isinstance(value, Mapping):
            return value
        return {k: SecretStr(v) if is_secret(k) and isinstance(v, str) else v for k, v in value.items()}


class PrometheusSettings(Section):
    """Offsets as a Prometheus has them from a Kafka exporter, where the brokers themselves are not reached."""

    secrets = frozenset({"token"})
    url: str | None = Field(default=None, pattern=r"^https?://[^/\s]+")
    """``http://`` or ``https://``, without a password; asked once a step, instead of the cluster."""
    exporter: Literal["kafka_exporter", "kminion", "kafka-lag-exporter", "strimzi-jmx"] | None = None
    """Whose names the metrics have; absent: the first that knows the topics."""
    selector: str = ""
    """Further label matchers, such as ``cluster="main"``."""
    token: SecretStr | None = None
    """Bearer token; from the environment only."""
    token_file: Path | None = None
    """File that holds the token."""

    @field_validator("url")
    @classmethod
    def _no_password(cls, value: str | None) -> str | None:
        if value is not None and urlsplit(value).password:
            raise ValueError("holds a password, and is shown; use token_file")
        return value

    @model_validator(mode="after")
    def _all_of_a_server(self) -> PrometheusSettings:
        given = [name for name in ("exporter", "selector", "token", "token_file") if getattr(self, name)]
        if self.url is None and given:
            raise ValueError(f"{given[0]} says how to ask a Prometheus, and url is missing; give its url")
        return self


class ApiSettings(Section):
    """HTTP server. Without tokens it binds loopback only."""

    secrets = frozenset({"read_token", "write_token"})
    host: str = "127.0.0.1"
    """Address to listen on; anything but loopback needs both tokens."""
    port: int = Field(default=8765, ge=0, le=65535)
    """0 takes a free one."""
    read_token: SecretStr | None = None
    """From the environment only. Opens everything that changes nothing."""
    read_token_file: Path | None = None
    """File that holds the token, or ``sha256:`` and its digest in hex."""
    write_token: SecretStr | None = None
    """From the environment only. Opens everything."""
    write_token_file: Path | None = None
    """File that holds the token, or ``sha256:`` and its digest in hex."""
    tls_certificate: Path | None = None
    """PEM; with ``tls_key`` the API speaks HTTPS."""
    tls_key: Path | None = None
    """PEM."""
    _whole_tls = model_validator(mode="after")(whole_tls)
    max_body_bytes: int = Field(default=8_000_000, ge=1024)
    """A larger request is refused with 413."""
    writes_per_minute: int = Field(default=600, ge=1)
    """Writes and what-ifs that one client may send in a minute."""
    whatifs_at_once: int = Field(default=2, ge=1, le=32)
    """Child processes for what-ifs, and so what-ifs at a time; further ones are refused with 429."""
    whatif_limit: SomeTime = timedelta(seconds=30)
    """A what-if that takes longer is ended; the first starts a process."""


class ScalerSettings(Section):
    """KEDA external scaler (gRPC)."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = Field(default=9090, ge=0, le=65535)
    """0 takes a free one."""
    max_age: SomeTime = timedelta(minutes=5)
    """An older plan is not answered with: status UNAVAILABLE instead."""
    tls_certificate: Path | None = None
    """PEM; with ``tls_key`` the scaler speaks TLS."""
    tls_key: Path | None = None
    """PEM."""
    client_ca: Path | None = None
    """PEM; with it, callers must show a certificate of this authority (mTLS)."""

    _whole_tls = model_validator(mode="after")(whole_tls)

    @model_validator(mode="after")
    def _callers_need_tls(self) -> ScalerSettings:
        if self.client_ca is not None and self.tls_key is None:
            raise ValueError("client_ca needs tls_certificate and tls_key: without TLS nobody shows a certificate")
        return self

    @property
    def is_open(self) -> bool:
        """Whether others than this machine reach it without TLS."""
        return self.host not in LOOPBACK and self.tls_key is None


class ExternalMetricsSettings(Section):
    """The ``external.metrics.k8s.io`` API, for an HPA without KEDA. Only the aggregator may call."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = Field(default=6443, ge=0, le=65535)
    """0 takes a free one."""
    tls_certificate: Path
    """PEM; the aggregator speaks TLS only."""
    tls_key: Path
    """PEM."""
    front_proxy_ca: Path
    """Authority that signed the aggregator's client certificate."""
    allowed_names: tuple[str, ...] = ("front-proxy-client",)
    """Common names that the aggregator's certificate may carry."""
    service: str = "headway/headway-external-metrics"
    """``namespace/name`` of our Service, as in the APIService."""


class ModelSettings(Section):
    """Where artefacts live."""

    secrets = frozenset({"hmac_key"})
    path: Path | None = None
    """Default: ``models/`` of a checkout, else ``models`` in the state folder."""
    hmac_key: SecretStr | None = None
    """From the environment only. Artefacts are signed and checked with it."""
    hmac_key_file: Path | None = None
    """File that holds the key."""


class JobSettings(Section):
    """When the scheduled jobs run; ``record``, ``forecast`` and ``plan`` follow each group's step."""

    act_every: Duration = timedelta(seconds=15)
    """Time between two control ticks of a group."""
    retrain: str = "15 3 * * *"
    """Cron expression, in the group's time zone."""
    seal: str = "5 * * * *"
    """Cron expression; packs finished days."""
    prune: str = "35 4 * * *"
    """Cron expression; drops what is older than the retention."""
    retrain_limit: SomeTime = timedelta(hours=1)
    """Training runs in a child process; one that takes longer is ended."""
    stop_limit: Duration = timedelta(seconds=10)
    """How long SIGTERM waits for jobs under way."""
    horizon: SomeTime = timedelta(hours=24)
    """How far ahead forecasts and plans reach."""
    history: SomeTime = timedelta(days=56)
    """How far back training reads."""

    @field_validator("act_every")
    @classmethod
    def _not_all_the_time(cls, value: timedelta) -> timedelta:
        if value < timedelta(seconds=1):
            raise ValueError("must be 1s or longer")
        return value

    @field_validator("retrain", "seal", "prune")
    @classmethod
    def _cron(cls, value: str) -> str:
        from cronsim import CronSim, CronSimError

        try:
            CronSim(value, datetime(2026, 1, 1, tzinfo=UTC))
        except CronSimError as exc:
            raise ValueError(f'{value!r} is not a cron expression such as "15 3 * * *"') from exc
        return value


def freeze_rule(window: Mapping[str, Any]) -> Rule:
    """Return a window of ``freeze`` as a rule that asks for nothing yet.

    Raises
    ------
    ValueError
        If it has no name, or cannot be meant.
    """
    if not window.get("name"):
        raise ValueError("freeze: every window has a name, such as { name = 'sale', from = …, to = … }")
    try:
        return rule_from_json({**window, "at_least": 0})
    except PolicyRefused as refused:
        raise ValueError(f"freeze {window['name']!r}: {refused}") from refused


class GroupDefaults(Section):
    """What every group inherits, and may say for itself. ``None``: learned, or the policy's own default."""

    step: Duration | None = None
    """Length of a step of the recorded series; absent: 60 s."""
    mode: Mode | None = None
    """``off``, ``recommend``, ``shadow`` or ``act``; absent: ``recommend``."""
    timezone: str | None = None
    """Seasons, windows and cron expressions follow its wall clock; absent: UTC."""
    assignment: AssignmentKind | None = None
    assignor: str | None = None
    capacity_per_member: float | None = None
    start_time: Duration | None = None
    """From decision to useful capacity; absent: measured, and 120 s until it has been."""
    pause: Duration | None = None
    slo: Duration | None = None
    late_target: float | None = None
    min_replicas: int | None = None
    max_replicas: int | None = None
    cap_at_partitions: bool | None = None
    rescales_per_day: int | None = None
    moves_per_hour: int | None = None
    scale_down_dwell: Duration | None = None
    cooldown: Duration | None = None
    target_utilization: float | None = None
    hot_share: float | None = None
    skew_limit: float | None = None
    snapshot_max_age: Duration | None = None
    price_per_member_hour: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    cpu_limit: float | None = Field(default=None, gt=0, le=1)
    """Share of a core above which a planned consumer that holds a partition of a routed topic alone has it split."""
    lease_ttl: SomeTime | None = None
    """A planned consumer that is silent for longer loses its partitions."""
    commit_interval: SomeTime | None = None
    """Time between two commits of a planned consumer."""
    holidays: str | None = None
    """Country, or country and subdivision (``DE-BE``), whose holidays are no pattern of other days once they are over;
    one ahead is forecast as an ordinary day."""
    approval: bool | None = None
    """True: a plan of mode ``act`` waits for a person."""
    freeze: tuple[dict[str, Any], ...] | None = None
    """Named windows in which nothing is scaled in: ``{name, from, to}`` or ``{name, cron, timezone, duration}``."""
    actuator: ActuatorSettings | None = None
    """What carries plans out; absent: nothing does."""

    @field_validator("timezone")
    @classmethod
    def _zone(cls, value: str | None) -> str | None:
        if value is not None:
            TimeGrid(60, value)
        return value

    @field_validator("holidays")
    @classmethod
    def _holidays(cls, value: str | None) -> str | None:
        if value is not None:
            from forecaster.calendar import Calendar
            from forecaster.errors import InputRefused

            try:
                Calendar(value)
            except InputRefused as refused:
                raise ValueError(str(refused)) from refused
        return value

    @field_validator("freeze")
    @classmethod
    def _freeze(cls, value: tuple[dict[str, Any], ...] | None) -> tuple[dict[str, Any], ...] | None:
        for window in value or ():
            freeze_rule(window)
        return value

    @field_validator("step")
    @classmethod
    def _step(cls, value: timedelta | None) -> timedelta | None:
        if value is not None:
            if value.total_seconds() % 1:
                raise ValueError("step must be whole seconds")
            TimeGrid(int(value.total_seconds()))
        return value


TopicName = Annotated[str, AfterValidator(topic_name)]


class GroupSettings(GroupDefaults):
    """One group, or a pattern of groups (``[groups."orders-*"]``)."""

    topics: tuple[TopicName, ...] = ()
    """Topics that the group reads. A pattern may leave them out: they are read off the group's commits."""

    @field_validator("topics")
    @classmethod
    def _once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for topic in value:
            if value.count(topic) > 1:
                raise ValueError(f"{topic!r} is named twice")
        return value


class TopicSettings(Section):
    """A routed topic."""

    hash: Literal["murmur2", "crc32"] = "murmur2"
    """Hash of the producers of the topic when it is adopted."""
    groups: tuple[str, ...] = ()
    """Groups that must have drained before split lanes open."""
    accept_unregistered: bool = False
    """Split although other groups read the topic without gates."""
    max_partitions: int | None = Field(default=None, ge=1)
    """Absent: never grows."""
    hold_limit: SomeTime = timedelta(seconds=2)
    """Longest time that producers hold split slots."""
    stop_limit: SomeTime = timedelta(seconds=5)
    """Longest wait for a producer to acknowledge a stop before it is fenced."""
    split_lead: SomeTime = timedelta(minutes=15)
    """A split is done so long before the load passes the group's ``hot_share`` of a member."""
    split_dwell: Duration = timedelta(minutes=30)
    """A partition is left as it is for so long after a split or merge of it."""
    merge_ahead: SomeTime = timedelta(hours=2)
    """Lanes are merged when the forecast stays low for so long."""
