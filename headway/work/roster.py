"""The groups that are run: made from the settings, changed when these change, and discovered where a name is a pattern.

Each group has its own jobs, observer and target, and gives them back when it goes. Nothing here restarts anything else:
a setting of one group touches that group alone, and what was learned and remembered is in the plan store.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from balancer.errors import BalancerError
from forecaster.errors import ForecasterError
from headway.configuration.settings import Settings
from headway.errors import SettingsRefused
from headway.status.logs import logger
from headway.work.discovery import Discovery, GroupSource

if TYPE_CHECKING:
    from headway.application import Application
    from headway.work.jobs import Jobs
    from headway.work.loops import GroupRunner

RESTART_ONLY = (
    "cluster",
    "state",
    "store",
    "kafka",
    "prometheus",
    "api",
    "scaler",
    "external_metrics",
    "models",
    "topics",
)
"""Sections that hold connections, listeners and routed topics: a change is reported, and taken with the next start."""


@dataclass(slots=True)
class Entry:
    """One group at work, and what ends with it."""

    runner: GroupRunner
    topics: tuple[str, ...]
    stack: ExitStack


@dataclass(slots=True)
class Roster:
    """Who is run now.

    Parameters
    ----------
    app
        Whose settings, board and jobs.
    jobs
        Where each group's passes are scheduled.
    make
        (group, topics, stack) → its runner, with its jobs scheduled; what it opens goes on the stack.
    read_settings
        Reads the settings anew; None where they cannot change (one pass from a terminal).
    source
        Knows the cluster's groups, for patterns; None without a cluster.
    """

    app: Application
    jobs: Jobs
    make: Callable[[str, tuple[str, ...], ExitStack], GroupRunner]
    read_settings: Callable[[], Settings] | None = None
    source: GroupSource | None = None
    entries: dict[str, Entry] = field(default_factory=dict)
    changed: Callable[[], None] = lambda: None
    """Told when groups came, went, or read other topics."""
    _complaint: str | None = None
    _said: list[str] = field(default_factory=list)
    _discovery: tuple[Settings, Discovery] | None = None

    def add(self, name: str, topics: tuple[str, ...]) -> None:
        """Run a group from now on."""
        with suppress(BalancerError, ForecasterError):  # a store that is away says its mode later
            self.app.show(name, topics)
        self.app.view(name).topics = topics
        stack = ExitStack()
        try:
            runner = self.make(name, topics, stack)
        except BaseException:
            stack.close()
            raise
        stack.callback(runner.resign)
        self.entries[name] = Entry(runner, topics, stack)

    def remove(self, name: str) -> None:
        """Stop running a group; it stays as it is, and what is kept of it stays."""
        self.jobs.remove(name)
        self.entries.pop(name).stack.close()
        self.app.board.remove(name)

    def close(self) -> None:
        """Give up what the groups hold: leases first, so that others go on at once."""
        for entry in self.entries.values():
            entry.runner.resign()
        for name in list(self.entries):
            self.entries.pop(name).stack.close()

    def refresh(self) -> str:
        """Read the settings anew, look for groups that fit a pattern, and bring those that run up to it.

        A file that cannot be meant changes nothing: what runs goes on, and every group says why.
        """
        said = [self._reload(), self._discover()]
        return "; ".join(text for text in said if text) or "nothing changed"

    def _reload(self) -> str:
        if self.read_settings is None:
            return ""
        try:
            new = self.read_settings()
        except SettingsRefused as refused:
            self._complain(str(refused))
            raise
        self._complain(None)
        old = self.app.settings
        if new == old:
            return ""
        fixed = {section: getattr(old, section) for section in RESTART_ONLY}
        late = [section for section in RESTART_ONLY if getattr(new, section) != fixed[section]]
        self.app.settings = new.model_copy(update=fixed)
        touched = [name for name in self.entries if _differs(old, self.app.settings, name)]
        came = [name for name in new.named_groups if name not in self.entries]
        went = [name for name in self.entries if new.group(name) is None]
        for name in {*touched, *went}:
            topics = self.entries[name].topics
            self.remove(name)
            if name not in went:
                own = self.app.settings.group(name)
                self.add(name, own.topics if own is not None and own.topics else topics)
        for name in came:
            own = self.app.settings.group(name)
            self.add(name, own.topics if own is not None else ())
        if came or went or touched:
            self.changed()
        words = {"changed": set(touched) - set(went), "added": set(came), "removed": set(went)}
        said = [f"{word} {', '.join(sorted(who))}" for word, who in words.items() if who]
        if late:
            said.append(f"{', '.join(late)} will hold after a restart")
        # what waits for a restart is found again at every look, and logged once
        if came or went or touched or said != self._said:
            self._said = said
            logger("roster").info("settings reloaded", said="; ".join(said))
        return "; ".join(said) or "settings changed, no group did"

    def discover(self) -> None:
        """Look for groups that a pattern fits, and run the new ones."""
        if self.source is None:
            return
        if self._discovery is None or self._discovery[0] is not self.app.settings:
            self._discovery = (self.app.settings, Discovery(self.app.settings, self.source, self._meet))
        self._discovery[1]()

    def _meet(self, name: str, topics: tuple[str, ...]) -> None:
        if name not in self.entries:
            self.add(name, topics)
            self.changed()

    def _discover(self) -> str:
        before = set(self.entries)
        self.discover()
        return ", ".join(f"found {name}" for name in sorted(set(self.entries) - before))

    def _complain(self, why: str | None) -> None:
        if why == self._complaint:
            return
        self._complaint = why
        for name in self.entries:
            if why is not None:
                self.app.board.problem(name, "settings", why)
            else:
                self.app.board.solved(name, "settings")


def _differs(old: Settings, new: Settings, name: str) -> bool:
    return old.group(name) != new.group(name) or old.jobs != new.jobs


REFRESH_EVERY = timedelta(seconds=15)
"""How often the file is read again and groups are looked for; SIGHUP does it at once."""
