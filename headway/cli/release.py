"""headway release: a planned group back to its ordinary protocol."""

from __future__ import annotations

from headway.cli.adopt import Group, hand_over
from headway.cli.bundles import HandOver
from headway.cli.options import Config
from headway.cli.output import Json

EXAMPLE = "headway release --group orders --dry-run"
STOPPED = "the same command goes on from there; --dry-run shows which steps are due"


def command(group: Group, how: HandOver, config: Config = None, json: Json = False) -> None:
    """Give an adopted group back to its ordinary protocol.

    Workers commit, give up their partitions and take no more; stop them, then start ordinary consumers of the same
    group: they go on at the committed offsets.
    """
    from headway.consumers.adoption import release

    hand_over(release, group, how, config, json, "draining every worker")
