"""Settings: one TOML file, every key also as an environment variable, secrets from files or the environment only.

``HEADWAY_STORE__URL`` is ``url`` of ``[store]``. Variables without a double underscore are left alone, save for
``HEADWAY_CLUSTER`` and ``HEADWAY_STATE``: Kubernetes injects ``HEADWAY_PORT`` and the like for a Service of that name.
This is the only module that reads files and the environment.
"""

from __future__ import annotations

import difflib
import fnmatch
import os
import re
import tomllib
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from pydantic import (
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)

from balancer.errors import PolicyRefused
from balancer.policy import ScalingPolicy
from balancer.prescaling import Rule
from forecaster.timegrid import TimeGrid
from headway.configuration.section import PREFIX, Section
from headway.configuration.sections import (
    ApiSettings,
    ExternalMetricsSettings,
    GroupDefaults,
    GroupSettings,
    JobSettings,
    KafkaSettings,
    Mode,
    ModelSettings,
    PrometheusSettings,
    ScalerSettings,
    StoreSettings,
    TopicSettings,
    freeze_rule,
)
from headway.errors import SettingsRefused

DEFAULT_FILE = Path("headway.toml")

_POLICY_FIELDS = {
    "start_time": "lead_time",
    **{
        name: name
        for name in (
            "capacity_per_member", "pause", "slo", "late_target", "min_replicas", "max_replicas", "cap_at_partitions",
            "rescales_per_day", "moves_per_hour", "scale_down_dwell", "cooldown", "target_utilization", "hot_share",
            "skew_limit", "assignment", "assignor", "snapshot_max_age", "price_per_member_hour",
        )
    },
}  # fmt: skip
"""Key of a group → field of :class:`balancer.policy.ScalingPolicy`."""


class Settings(Section):
    """Everything in ``headway.toml``."""

    cluster: str = Field(default="main", min_length=1)
    """Names keys and models; one file a Kafka cluster."""
    state: Path | None = None
    """Folder of the embedded store, models and logs; default ``$XDG_STATE_HOME/headway``."""
    store: StoreSettings = StoreSettings()
    kafka: KafkaSettings = KafkaSettings()
    prometheus: PrometheusSettings = PrometheusSettings()
    api: ApiSettings = ApiSettings()
    scaler: ScalerSettings | None = None
    external_metrics: ExternalMetricsSettings | None = None
    models: ModelSettings = ModelSettings()
    jobs: JobSettings = JobSettings()
    defaults: GroupDefaults = GroupDefaults()
    groups: dict[str, GroupSettings] = Field(default_factory=dict)
    topics: dict[str, TopicSettings] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _groups_make_sense(self) -> Settings:
        brokers = self.kafka.bootstrap_servers or "bootstrap.servers" in self.kafka.properties
        if self.prometheus.url is not None and brokers:
            raise ValueError(
                "prometheus.url and kafka.bootstrap_servers: offsets come from one of them; remove the other, "
                f"here or in {PREFIX}PROMETHEUS__URL or {PREFIX}KAFKA__BOOTSTRAP_SERVERS"
            )
        for name in self.groups:
            if not name.strip():
                raise ValueError("a group has no name; write it as in [groups.orders]")
            if not is_pattern(name) and not self.groups[name].topics:
                raise ValueError(f"groups.{name}.topics is missing; name the topics that the group reads")
            try:
                self.policy(name)
            except PolicyRefused as exc:
                raise ValueError(f"groups.{name}: {exc}") from exc
        return self

    @property
    def state_folder(self) -> Path:
        """Folder for what must survive a restart."""
        if self.state is not None:
            return self.state.expanduser()
        base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
        return Path(base).expanduser() / "headway"

    @property
    def model_folder(self) -> Path:
        """Folder of the artefacts: as configured, ``models/`` of a checkout, or the state folder's."""
        if self.models.path is not None:
            return self.models.path.expanduser()
        checkout = Path(__file__).parents[2] / "models"
        return checkout if (checkout.parent / "pyproject.toml").exists() else self.state_folder / "models"

    @property
    def named_groups(self) -> tuple[str, ...]:
        """Groups that are written out; patterns apply to groups as they are discovered."""
        return tuple(name for name in self.groups if not is_pattern(name))

    @property
    def patterns(self) -> tuple[str, ...]:
        """Names of groups that are patterns."""
        return tuple(name for name in self.groups if is_pattern(name))

    def section_of(self, name: str) -> str | None:
        """Return the name of the section that a group takes: its own, else the longest pattern that fits."""
        if name in self.groups:
            return name
        fitting = [p for p in self.patterns if fnmatch.fnmatchcase(name, p)]
        return max(fitting, key=lambda p: (len(re.sub(r"[*?\[\]]", "", p)), p), default=None)

    def group(self, name: str) -> GroupSettings | None:
        """Return a group's own settings with defaults filled in: by its name, else by the longest pattern.

        Examples
        --------
        >>> s = Settings(defaults={"slo": "30s"}, groups={"orders-*": {"max_replicas": 8}})
        >>> s.group("orders-eu").max_replicas, s.group("orders-eu").slo.total_seconds(), s.group("bills")
        (8, 30.0, None)
        """
        key = self.section_of(name)
        if key is None:
            return None
        own = self.groups[key]
        merged = {**_given(self.defaults), **_given(own)}
        return GroupSettings.model_construct(**{**dict.fromkeys(GroupDefaults.model_fields), "topics": (), **merged})

    def nearest(self, name: str) -> list[str]:
        """Return configured groups whose names look like ``name``."""
        return difflib.get_close_matches(name, self.named_groups, n=3, cutoff=0.3)

    def against_acting(self, name: str) -> tuple[str, ...]:
        """Return what the settings themselves say against mode ``act``; empty when nothing does."""
        own = self.group(name)
        if own is None or own.actuator is None or own.actuator.kind == "none":
            return (f"groups.{name}.actuator is missing: there is nothing to act on",)
        return ()

    def policy(self, name: str) -> ScalingPolicy:
        """Return a group's policy.

        Raises
        ------
        PolicyRefused
            If a value is outside its bound.
        SettingsRefused
            If no section fits the group.
        """
        own = self.group(name)
        if own is None:
            raise SettingsRefused(f"no [groups.{name}] and no pattern that fits it")
        values = {field: getattr(own, key) for key, field in _POLICY_FIELDS.items()}
        return ScalingPolicy(**{k: v for k, v in values.items() if v is not None})

    def freezes(self, name: str) -> tuple[Rule, ...]:
        """Return a group's windows in which nothing is scaled in."""
        own = self.group(name)
        return tuple(freeze_rule(window) for window in (own.freeze if own is not None else None) or ())

    def grid(self, name: str) -> TimeGrid:
        """Return a group's steps and zone; one minute and UTC unless it says otherwise."""
        own = self.group(name)
        step = own.step if own is not None and own.step is not None else timedelta(seconds=60)
        return TimeGrid(int(step.total_seconds()), (own.timezone if own is not None else None) or "UTC")

    def mode(self, name: str) -> Mode:
        """Return a group's configured mode; ``recommend`` unless it says otherwise, never ``act`` by default."""
        own = self.group(name)
        return (own.mode if own is not None else None) or Mode.RECOMMEND

    def store_url(self) -> str | None:
        """Return the store's URL with its password filled in; None for the embedded server."""
        url, password = self.store.url, secret(self.store.password, self.store.password_file)
        if url is None or password is None:
            return url
        parts = urlsplit(url)
        user, host = parts.username or "", parts.netloc.rpartition("@")[2]
        return parts._replace(netloc=f"{user}:{quote(password, safe='')}@{host}").geturl()

    @property
    def store_place(self) -> str:
        """Where the store is, as a person would say it, without its password."""
        if self.store.url is None:
            return f"the embedded store in {self.state_folder / 'store'}"
        return re.sub(r"(?<=//)[^/?#]*@|(?<=[?&])password=[^&#]*&?", "", self.store.url).rstrip("?&")

    @property
    def from_cluster(self) -> bool:
        """Whether offsets come from the cluster, which tells who is a member as well."""
        return self.prometheus.url is None and bool(self.kafka_properties())

    def kafka_properties(self) -> dict[str, str | int | float | bool]:
        """Return librdkafka properties, the password included."""
        given = self.kafka.properties.items()
        properties = {k: v.get_secret_value() if isinstance(v, SecretStr) else v for k, v in given}
        properties |= {name: secret(None, file) or "" for name, file in self.kafka.property_files.items()}
        if self.kafka.bootstrap_servers:
            properties["bootstrap.servers"] = self.kafka.bootstrap_servers
        password = secret(self.kafka.password, self.kafka.password_file)
        if password is not None:
            properties["sasl.password"] = password
        return properties


def in_a_pod() -> bool:
    """Whether this process runs in Kubernetes, which says so in the environment of every pod."""
    return "KUBERNETES_SERVICE_HOST" in os.environ


def secret(value: SecretStr | None, file: Path | None) -> str | None:
    """Return a secret from its file, else from the environment; None if there is neither.

    Raises
    ------
    SettingsRefused
        If the file cannot be read or is empty.
    """
    if file is None:
        return value.get_secret_value() if value is not None else None
    try:
        text = file.expanduser().read_text("utf-8").strip()
    except OSError as exc:
        raise SettingsRefused(f"{file}: cannot read the secret: {exc.strerror}") from exc
    if not text:
        raise SettingsRefused(f"{file}: the secret is empty")
    return text


def is_pattern(name: str) -> bool:
    """Tell whether a group's name is a pattern."""
    return any(c in name for c in "*?[")


def load(file: Path | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """Read the settings file and the environment over it.

    Parameters
    ----------
    file
        The TOML file; ``headway.toml`` here if that exists, else nothing but defaults.
    environ
        Environment; the process's own by default. An empty variable says nothing: Compose sets it for one that is not.

    Raises
    ------
    SettingsRefused
        If something cannot be meant: one line with file, key and remedy.
    """
    if file is None and DEFAULT_FILE.exists():
        file = DEFAULT_FILE
    data: dict[str, Any] = {}
    place = "environment"
    if file is not None:
        place = str(file)
        try:
            data = tomllib.loads(file.read_text("utf-8"))
        except OSError as exc:
            raise SettingsRefused(f"{file}: {exc.strerror}; headway init writes a first one") from exc
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
            raise SettingsRefused(f"{file}: not TOML: {exc}") from exc
    _refuse_inline_secrets(data, place)
    variables: dict[tuple[str, ...], str] = {}
    for name, text in sorted((os.environ if environ is None else environ).items()):
        path = _path_of(name, data) if text else None
        if path is not None:
            _put(data, path, _env_value(text), name)
            variables[tuple(path)] = name
    try:
        return Settings.model_validate(data)
    except ValidationError as exc:
        raise SettingsRefused(_first_line(exc, place, variables)) from exc


class SettingsFile:
    """The settings, read again when their file changes; a file that cannot be meant is refused at every call.

    Parameters
    ----------
    file
        As for :func:`load`.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file if file is not None else (DEFAULT_FILE if DEFAULT_FILE.exists() else None)
        self._text: bytes | None = None
        self._settings: Settings | None = None

    def __call__(self) -> Settings:
        """Return the settings as they are now.

        Raises
        ------
        SettingsRefused
            As :func:`load`; what was good before stays with whoever has it.
        """
        text = None
        if self._file is not None:
            try:
                text = self._file.read_bytes()
            except OSError as exc:
                so = "headway init writes a first one" if self._settings is None else "what was read before goes on"
                raise SettingsRefused(f"{self._file}: {exc.strerror}; {so}") from exc
        if self._settings is None or text != self._text:
            self._settings, self._text = load(self._file), text
        return self._settings


def _given(section: GroupDefaults) -> dict[str, Any]:
    return {k: getattr(section, k) for k in section.model_fields_set}


def _refuse_inline_secrets(data: Mapping[str, Any], place: str) -> None:
    from forecaster.ingest.kafka_reader import is_secret

    for name, field in Settings.model_fields.items():
        section, table = field.annotation, data.get(name)
        if isinstance(section, type) and issubclass(section, Section) and isinstance(table, Mapping):
            for key in section.secrets & set(table):
                raise SettingsRefused(
                    f"{place}: {name}.{key} is a secret and must not stand in the file; use {name}.{key}_file or "
                    f"{PREFIX}{name.upper()}__{key.upper()}"
                )
    kafka = data.get("kafka")
    properties = kafka.get("properties") if isinstance(kafka, Mapping) else None
    for name in properties if isinstance(properties, Mapping) else ():
        if is_secret(name):
            raise SettingsRefused(
                f"{place}: kafka.properties: {name} is a secret and must not stand in the file; name a file that holds "
                f"it in kafka.property_files, or use {PREFIX}KAFKA__PROPERTIES__{name.upper().replace('.', '_')}"
            )
    store = data.get("store")
    url = store.get("url") if isinstance(store, Mapping) else None
    if isinstance(url, str) and urlsplit(url).password:
        raise SettingsRefused(
            f"{place}: store.url holds a password; use store.password_file or {PREFIX}STORE__PASSWORD"
        )


def _path_of(variable: str, data: Mapping[str, Any]) -> list[str] | None:
    if not variable.startswith(PREFIX):
        return None
    parts = variable[len(PREFIX) :].split("__")
    if len(parts) == 1:
        return [parts[0].lower()] if parts[0] in ("CLUSTER", "STATE") else None
    path = [parts[0].lower()]
    if path[0] in ("groups", "topics") and len(parts) > 2:
        named = data.get(path[0], {})
        spelled = {re.sub(r"\W", "_", k).upper(): k for k in named} if isinstance(named, Mapping) else {}
        path.append(spelled.get(parts[1], parts[1].lower()))
        parts = [parts[0], *parts[2:]]
    if path[0] == "kafka" and len(parts) > 2 and parts[1] in ("PROPERTIES", "PROPERTY_FILES"):
        return [*path, parts[1].lower(), parts[2].lower().replace("_", ".")]
    return path + [p.lower() for p in parts[1:]]


def _env_value(text: str) -> Any:
    if text[:1] in ("[", "{"):
        try:
            return tomllib.loads(f"v = {text}")["v"]
        except tomllib.TOMLDecodeError:
            return text
    return text


def _put(data: dict[str, Any], path: list[str], value: Any, variable: str) -> None:
    for key in path[:-1]:
        inner = data.setdefault(key, {})
        if not isinstance(inner, dict):
            raise SettingsRefused(f"{variable}: {key} is not a table")
        data = inner
    data[path[-1]] = value


def _first_line(error: ValidationError, place: str, variables: Mapping[tuple[str, ...], str]) -> str:
    """Return one line with place, key and remedy; ``variables`` are keys that the environment gave."""
    problems = error.errors(include_url=False, include_context=True, include_input=False)
    first = problems[0]
    path, context = tuple(str(part) for part in first["loc"]), first.get("ctx", {})
    text = first["msg"].removeprefix("Value error, ")
    if first["type"] in ("tuple_type", "list_type"):
        text = 'must be a list, such as ["orders"]'
    elif first["type"] == "union_tag_invalid":
        text = f"there is no kind {context['tag']!r}; there are {context['expected_tags']}"
    elif first["type"] in ("dict_type", "model_type", "model_attributes_type"):
        inside = path[-1] == "actuator"
        text = 'must be a table, such as { kind = "keda" }' if inside else f"must be a table: [{'.'.join(path)}]"
    elif first["type"] == "string_type":
        text = "must be text in quotes"
    elif first["type"].startswith("int_"):
        text = "must be a whole number"
    elif first["type"].startswith("float_"):
        text = "must be a number"
    elif path == ("store", "url"):
        text = "must be a URL such as redis://127.0.0.1:6379/0, rediss://… or unix://…"
    text = re.sub("^Input should be ", "must be ", text)
    key = (*path, str(context["key"]).strip("'")) if "key" in context else path
    where = ".".join(path)
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{variables.get(key, place)}: {where + ': ' if where else ''}{text}{more}"
