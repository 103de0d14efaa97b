"""The manual page `docs/ccb.1`, made from the rows of commands and options; share/man/man1/ccb.1 in the wheel."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator

import ccb
from ccb.local.command_line.arguments import OPTIONS, Group, Option, OptionKind
from ccb.local.command_line.subcommands import HOSTS, PATHS, SUBCOMMANDS, Subcommand

_SIGNS = {"\\": r"\e", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "~": r"\(ti", "^": r"\(ha", "…": "..."}
_DATE = "2026-11-29"  # of the page's form: what it says is that of the version


def manual_page() -> str:
    version = ccb.__version__
    lines = [f'.TH CCB 1 {_DATE} "ccb {version}" "User Commands"', ".SH NAME"]
    lines += [r"ccb \- run a coding agent on another machine from this terminal", ".SH SYNOPSIS"]
    synopses = [usage for each in SUBCOMMANDS[:2] for usage in each.usage]
    lines += _broken([*synopses, "ccb COMMAND [WORD]... [OPTION]..."])
    lines += [".SH DESCRIPTION", _text(SUBCOMMANDS[0].description), ".PP", _text(PATHS), ".PP", _text(HOSTS)]
    lines += [".PP", _text("Options may stand anywhere. `--` ends them. `ccb help TOPIC` shows a page of the guide.")]
    lines += [".SH COMMANDS", *(line for each in SUBCOMMANDS[1:] for line in _command(each)), ".SH OPTIONS"]
    for group in Group:
        if shared := [each for each in OPTIONS if each.group is group and not each.commands]:
            lines += [f".SS {_text(group.title)}", *_options(shared)]
    lines += [".SH FILES", *_item("~/.config/ccb/settings.json", "The settings: `ccb help settings`.")]
    lines += _item("~/.local/state/ccb", "Logs, the ledger of model calls, and the sessions of this machine.")
    lines += [".SH EXIT STATUS", _text("Each class of failure has its own code: `ccb help exit-codes`.")]
    return "\n".join([*lines, ".SH SEE ALSO", ".BR ssh (1),", ".BR ssh_config (5)", ""])


def _command(command: Subcommand) -> Iterator[str]:
    yield f".SS {_text(f'ccb {command.name}'.strip())}"
    yield from _broken(command.usage)
    yield from (".PP", _text(command.description))
    if command.groups:
        titles = " and ".join([", ".join(each.title for each in command.groups[:-1])] * (len(command.groups) > 1))
        titles = f"{titles} and {command.groups[-1].title}" if titles else command.groups[-1].title
        left_out = f", except {', '.join(command.without)}" if command.without else ""
        yield from (".PP", _text(f"It takes the options of: {titles}{left_out}."))
    yield from _options(each for each in OPTIONS if each.commands and command.takes(each))


def _options(options: Iterable[Option]) -> Iterator[str]:
    for option in options:
        value = f" [{option.metavar}]" if option.kind is OptionKind.OPTIONAL else f" {option.metavar}"
        value += " ..." if option.kind is OptionKind.VARIADIC else ""
        names = ", ".join(rf"\fB{_text(name)}\fR" for name in option.names)
        actions = [each for each in option.commands if " " in each]
        text = f"With {' and '.join(actions)}: {option.help[:1].lower()}{option.help[1:]}" if actions else option.help
        yield from (".TP", names + (rf"\fI{_text(value)}\fR" if option.metavar else ""), _text(text))


def _item(name: str, text: str) -> tuple[str, ...]:
    return ".TP", rf"\fI{_text(name)}\fR", _text(text)


def _broken(usages: Iterable[str]) -> Iterator[str]:
    for index, usage in enumerate(usages):
        yield from [".br"] * bool(index)
        yield rf"\fB{_text(usage)}\fR"


def _text(text: str) -> str:
    """Return a text as roff takes it: no sign has a meaning, each sentence begins a line, and lines are short."""
    safe = "".join(_SIGNS.get(char, char) for char in text)
    sentences = re.split(r"(?<=[a-z)][.]) +(?=[A-Z])", safe)
    lines = [line for each in sentences for line in textwrap.wrap(each, 78, break_on_hyphens=False)]
    return "\n".join(rf"\&{line}" if line.startswith(".") else line for line in lines)
