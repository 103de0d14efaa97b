"""The pages of docs/reference, made from the code: command line, settings, tools, and the
commands and keys of the REPL; and the manual page.

`python -m tests.support.reference_pages` writes them; a project test says whether they are current.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from tests.support.manual_page import manual_page
from tests.support.tool_page import tool_blocks

from ccb.local.command_line.arguments import OPTIONS, Group, Option, OptionKind
from ccb.local.command_line.subcommands import HOSTS, PATHS, SUBCOMMANDS, Subcommand
from ccb.local.commands.config import schema_text
from ccb.local.config.settings import POLICY, PolicySettings, Settings
from ccb.local.slash_commands.command_table import COMMANDS
from ccb.local.slash_commands.registry import LaptopCommand
from ccb.local.slash_commands.session_api import Place
from ccb.local.terminal.keymap import DEFAULT_KEYMAP
from ccb.local.tui.keys import KEYS

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "reference"
RUN = "python -m tests.support.reference_pages"
_NOTE = f"Made from the code by `{RUN}`; do not edit."
_CODE = re.compile(r"((?<![\w-])--?[A-Za-z][\w-]*|'[^' ][^']*'|\{\w+\})")
_NAMES = {NoneType: "none", str: "text", float: "number", int: "whole number", bool: "true or false"}


def pages() -> dict[Path, str]:
    return {
        FOLDER / "command-line.md": _page("Command line", _command_line()),
        FOLDER / "settings.md": _page("Settings", _settings()),
        FOLDER / "settings.schema.json": schema_text(),
        FOLDER / "policy.md": _page("Policy of a machine", _policy()),
        FOLDER / "tools.md": _page("Tools", tool_blocks()),
        FOLDER / "repl.md": _page("Commands and keys of the REPL", _repl()),
        ROOT / "docs" / "ccb.1": manual_page(),
    }


def _page(title: str, blocks: Iterable[str]) -> str:
    return "\n\n".join([f"# {title}", _NOTE, *map(_wrapped, blocks)]) + "\n"


def _repl() -> Iterator[str]:
    yield (
        "`/help` and F1 show the same in the REPL, with the commands of the project, the skills and the prompts of MCP "
        "servers besides. [The REPL](../guide/repl.md) tells more."
    )
    yield "## Commands"
    yield _table(
        ("command", "what it does", "where"), ((f"`{each.usage}`", _does(each), _where(each)) for each in COMMANDS)
    )
    yield (
        "Those everywhere are answered as the prompt of a headless run, too (`ccb -p /cost`). A command that a project "
        "defines under one of these names is reached in headless runs only."
    )
    yield "## Keys"
    yield (
        "The setting `keys` gives the key of an id another key, or several: "
        '`{"keys": {"details": "Ctrl+Y", "retry": ["F5", "Alt+C"]}}`. A key is one such as `Ctrl+O`, `Alt+Shift+X`, '
        "`F5` or `PgUp`. An unknown id or key, and a key of two ids, end ccb with exit code 78, with the line. `/keys` "
        "shows those that hold. A key without an id does not change."
    )
    yield _table(("key", "id", "what it does"), ((DEFAULT_KEYMAP.filled(key), _ids(key), does) for key, does in KEYS))


def _does(each: LaptopCommand) -> str:
    return each.does + (f" (also {', '.join(f'/{name}' for name in each.aliases)})" if each.aliases else "")


def _where(each: LaptopCommand) -> str:
    if Place.HEADLESS in each.places:
        return "everywhere"
    return "screen, `--plain`" if Place.LINES in each.places else "screen"


def _ids(key: str) -> str:
    return ", ".join(f"`{each}`" for each in dict.fromkeys(re.findall(r"\{([a-z-]+)\}", key)))


def _command_line() -> Iterator[str]:
    yield (
        "Options may stand anywhere. A value follows its option as the next word or behind `=`; options of one "
        "letter also take it attached (`-P22`). `--` ends the options. An option on the command line outranks the "
        "[settings](settings.md). For the codes with which a command ends see [exit codes](exit-codes.md)."
    )
    yield "## Commands"
    yield _table(
        ("command", "what it does"),
        ((f"[`{_shown(each)}`](#{_anchor(_shown(each))})", each.summary) for each in SUBCOMMANDS),
    )
    yield f"```\n{PATHS}\n{HOSTS}\n```"
    for command in SUBCOMMANDS:
        yield from _command(command)
    yield "## Options"
    for group in Group:
        yield f"### {group.title}"
        yield _option_table(option for option in OPTIONS if option.group is group)


def _command(command: Subcommand) -> Iterator[str]:
    yield f"### {_shown(command)}"
    yield "```\n" + "\n".join(command.usage) + "\n```"
    yield _with_code(command.description)
    if own := [option for option in OPTIONS if option.commands and command.takes(option)]:
        yield _option_table(own, command.name)
    if command.groups:
        start = "Also takes" if own else "Takes"
        names = ", ".join(f"[{group.title}](#{_anchor(group.title)})" for group in (*command.groups, Group.GENERAL))
        left_out = ", ".join(f"`{name}`" for name in command.without)
        yield f"{start} the options of {names}{f', except {left_out}' if left_out else ''}."


def _option_table(options: Iterable[Option], command: str = "") -> str:
    """The options with the commands that they belong to; of `command`, the actions."""
    return _table(("option", "meaning"), ((_spellings(option), _meaning(option, command)) for option in options))


def _spellings(option: Option) -> str:
    value = f" <{option.metavar}>" if option.metavar else ""
    value = f" [{option.metavar}]" if option.kind is OptionKind.OPTIONAL else value
    value += " …" if option.kind is OptionKind.VARIADIC else ""
    return ", ".join(f"`{name}{value}`" for name in option.names)


def _meaning(option: Option, command: str) -> str:
    text = _with_code(option.help)
    names = [f"`ccb {each}`" for each in option.commands if not command or each.startswith(f"{command} ")]
    return f"{text} ({', '.join(names)})" if names else text


def _shown(command: Subcommand) -> str:
    return f"ccb {command.name}".strip()


def _settings() -> Iterator[str]:
    yield (
        "ccb reads `~/.config/ccb/settings.json` (`$XDG_CONFIG_HOME/ccb/settings.json` if that variable is set): a "
        "JSON object with any of these keys, and `$schema` for your editor. A key that this version does not know has "
        "no effect and is reported; a wrong value ends ccb with exit code 78 and is named with its line. The file must "
        "not contain secrets: `ccb auth login` puts a key into "
        "the keyring. ccb refuses a file that other users can change: it, and every directory on the way to it from "
        "the home directory on, belongs to you or to root, and neither group nor others may write to it "
        "(`chmod go-w`)."
    )
    yield _table(("key", "type", "default", "meaning"), _setting_rows(Settings))
    yield '```json\n{"model": "opus", "permissions": {"allow": ["Bash(git status)"], "deny": ["Read(**/.env)"]}}\n```'


def _policy() -> Iterator[str]:
    yield (
        "The object `policy` in `/etc/ccb/policy.json` of the laptop has any of these keys. Patterns are those of a "
        "shell: `*`, `?`, `[…]`. Any other key of the file is a [setting](settings.md) that nobody can change. "
        "[Managed laptops](../guide/policy.md) says how to write one, and `ccb config schema` prints its JSON "
        "schema."
    )
    yield _table(("key", "type", "default", "meaning"), _setting_rows(PolicySettings))


def _setting_rows(keys: Any, prefix: str = "") -> Iterator[tuple[str, str, str, str]]:
    kinds = get_type_hints(keys)
    for each in fields(keys):
        kind = kinds[each.name]
        if each.name == POLICY:
            continue
        if is_dataclass(kind):
            yield from _setting_rows(kind, f"{prefix}{each.name}.")
        elif each.metadata:
            default = each.default_factory() if callable(each.default_factory) else each.default
            shown = _type_text(kind) + _limits(each.metadata)
            yield f"`{prefix}{each.name}`", shown, _default(default), each.metadata["description"]


def _type_text(kind: Any) -> str:
    origin, members = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return " or ".join(_type_text(each) for each in members if each is not NoneType)
    if origin is Literal:
        return ", ".join(f"`{each}`" for each in members)
    if origin is list:
        return f"list of {_type_text(members[0])}s"
    if origin is dict:
        return "object"
    return _NAMES[kind]


def _limits(metadata: Mapping[str, Any]) -> str:
    words = {"gt": "more than", "ge": "at least", "le": "at most"}
    texts = [f"{text} {metadata[name]:g}" for name, text in words.items() if name in metadata]
    return f" ({', '.join(texts)})" if texts else ""


def _default(value: object) -> str:
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"{value:g}" if isinstance(value, int | float) else f"`{value}`"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def _wrapped(block: str) -> str:
    """A paragraph in lines of at most 120 columns; tables, code, lists and quotes stay as they are."""
    if block.startswith(("|", "```", "#", "- ", "> ")):
        return block
    return textwrap.fill(block, 120, break_long_words=False, break_on_hyphens=False)


def _with_code(text: str) -> str:
    """Options and commands in a sentence of the help, marked as code."""
    pieces = text.split("`")  # every second piece is code already
    pieces[::2] = [_CODE.sub(r"`\1`", piece) for piece in pieces[::2]]
    return "`".join(pieces)


def _anchor(heading: str) -> str:
    return "".join(char for char in heading.lower().replace(" ", "-") if char.isalnum() or char == "-")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
