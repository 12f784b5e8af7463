"""The kinds of ``actuator`` that a group may name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from headway.configuration.section import Section


class NoActuator(Section):
    """Recommends only."""

    kind: Literal["none"] = "none"
    """Which target."""


class ProcessActuator(Section):
    """Runs the members as processes of this machine."""

    kind: Literal["process"]
    """Which target."""
    command: list[str] = Field(min_length=1)
    """Program and arguments of one member; ``{instance}`` stands for its number."""
    log_dir: Path | None = None
    """Folder of the members' output; absent: in the state folder."""


class KubernetesActuator(Section):
    """Sets a scale subresource."""

    kind: Literal["kubernetes"]
    """Which target."""
    resource: str = "deployments"
    """Plural name of the resource that has a scale."""
    api: str = "apps/v1"
    """``group/version`` of the resource."""
    namespace: str = "default"
    """Where the target is."""
    name: str
    """The target's name."""


class KedaActuator(Section):
    """KEDA asks the scaler; nothing is pushed."""

    kind: Literal["keda"]
    """Which target."""
    namespace: str | None = None
    """Where the members' pods are. With it, the pods of drained members get the lowest deletion cost, so that a
    Deployment that shrinks takes them first; needs ``patch`` on pods there."""


class WebhookActuator(Section):
    """Posts a signed request."""

    kind: Literal["webhook"]
    """Which target."""
    url: str = Field(pattern=r"^https?://[^/\s]+")
    """Where to post: ``https://`` or ``http://``."""
    secret_file: Path | None = None
    """File that holds the signing key; required, calls are always signed."""


ActuatorSettings = Annotated[
    NoActuator | ProcessActuator | KubernetesActuator | KedaActuator | WebhookActuator, Field(discriminator="kind")
]
