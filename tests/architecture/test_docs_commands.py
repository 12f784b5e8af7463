"""Every command in README and docs is one that the terminal takes: its name, options and arguments are parsed."""

import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest
import typer

from headway.cli import commands, module_of
from headway.cli.frame import _typer_app

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "data" / "README.md"]


def spoken(page):
    """Yield the command lines of a page: in fenced and indented blocks, and in running text."""
    text = re.sub(r"\\\n\s*", "", page.read_text())
    for line in re.findall(r"^(?:    )?(headway .*)$", text, re.M):
        yield line.partition(" # ")[0]
    for line in re.findall(r"`(headway [a-z][^`\n]*)`", text):
        if not re.search(r"[|…\[]|\b[A-Z]{2,}\b", line):  # a placeholder or a choice, not a command
            yield line


CASES = [(page, line) for page in PAGES for line in spoken(page)]


@pytest.mark.parametrize(("page", "line"), CASES, ids=[f"{p.stem}: {line[:50]}" for p, line in CASES])
def test_the_terminal_takes_it(page, line):
    _, *words = shlex.split(line)
    if words[0].startswith("-"):
        return
    assert words[0] in commands(), f"{page.name}: no command {words[0]}"
    command = typer.main.get_command(_typer_app(import_module(module_of(words[0]))))
    rest = words[1:]
    context = command.make_context(words[0], list(rest), resilient_parsing=True)
    if hasattr(command, "commands"):
        assert rest, f"{page.name}: {line} names no sub-command"
        command = command.commands[rest[0]]
        rest = rest[1:]
        context = command.make_context(words[0], list(rest), resilient_parsing=True)
    known = {o for p in command.params for o in (*p.opts, *p.secondary_opts)}
    asked = {w.partition("=")[0] for w in rest if w.startswith("--")} - {"--help"}
    assert asked <= known, f"{page.name}: {line}: no option {asked - known}"
    assert context.info_name == words[0]
    if asked:  # not a command's bare name in running text
        needed = {o for p in command.params if p.required and p.param_type_name == "option" for o in p.opts}
        assert needed <= asked, f"{page.name}: {line} does not run without {needed - asked}"


def test_there_are_many():
    assert len(CASES) > 40
