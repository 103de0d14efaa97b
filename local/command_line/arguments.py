"""The command line as typed arguments.

Both `--name value` and `--name=value`; `-i`, `-P` and `-o` also with the value attached; `--` ends the options. The words
that are left over are, after `ssh`: host, directory when it starts with `/`, `~` or `.` and the host has no `:path`, prompt.
"""

from __future__ import annotations

import difflib
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ccb.tunnel.errors import UsageError
from ccb.tunnel.plain_text import neutralise

from .options import BY_NAME, Kind, Option
from .target import Target, parse_port, parse_target, remote_path
from .transport_choice import check_way, needs_host

HOST_COMMANDS = ("ps", "attach", "logs", "stop", "gc", "clean", "doctor")
COMMANDS = ("ssh", "auth", "help", *HOST_COMMANDS)

TOOLS = frozenset(
    ("Bash", "BashOutput", "Edit", "Glob", "Grep", "KillShell", "LS", "MultiEdit", "Read", "TodoWrite", "Write")
)
"""The worker's tools, to warn of rules for one that there is not."""

_WRITTEN_AS_HOST = re.compile(r"ssh://\S+|([^\s/:@]+@)?[^\s/:@]+:(/(?!/)|~)\S*", re.IGNORECASE)
_SSH_OPTION = re.compile(r"\s*[A-Za-z][A-Za-z0-9]*\s*[=\s]\s*[^\n\0]*[^\s\0][^\n\0]*")
_SESSION_ID = re.compile(r"[0-9a-f]{4,8}|[0-9a-f]{8}-[0-9a-f-]{0,27}", re.IGNORECASE)


@dataclass(frozen=True)
class Arguments:
    """`command` is one of COMMANDS or `` (a local session). `target` is None for this machine. `directory` is a path on the
    host, None for the default. `rest` are the words after `auth`. `resume` is a session's ID or the start of it, `` to
    choose one; host commands have their session there too."""

    command: str = ""
    target: Target | None = None
    directory: str | None = None
    prompt: str | None = None
    rest: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    print: bool = False
    output_format: str = "text"
    input_format: str = "text"
    verbose: bool = False
    include_partial_messages: bool = False
    replay_user_messages: bool = False
    permission_prompt_tool: str | None = None
    model: str | None = None
    permission_mode: str | None = None
    dangerously_skip_permissions: bool = False
    allowed_tools: list[str] = field(default_factory=list)
    disallowed_tools: list[str] = field(default_factory=list)
    append_system_prompt: str | None = None
    system_prompt: str | None = None
    max_turns: int | None = None
    session_id: str | None = None
    continue_latest: bool = False
    resume: str | None = None
    fork_session: bool = False
    reconnect_timeout: float | None = None
    view: bool = False
    all: bool = False
    dry_run: bool = False
    older_than: float | None = None
    yes: bool = False
    lines: int | None = None
    json: bool = False
    add_dirs: list[str] = field(default_factory=list)
    debug: bool = False
    identities: list[str] = field(default_factory=list)
    port: int | None = None
    ssh_options: list[str] = field(default_factory=list)
    local: bool = False
    transport: str | None = None
    ssh_command: str | None = None
    container: str | None = None
    help: bool = False
    version: bool = False

    @property
    def headless(self) -> bool:
        """No REPL: asked for by -p or by a format that only makes sense without one."""
        return self.print or self.output_format != "text" or self.input_format != "text"


def private_texts(arguments: Arguments) -> list[str]:
    """Commands and options in which people write passwords, for what is shown to others."""
    return [text for text in (arguments.transport, arguments.ssh_command, *arguments.ssh_options) if text]


def parse_arguments(argv: Sequence[str]) -> Arguments:
    """The arguments. Raises UsageError for anything that makes no sense."""
    words, values, swallowed = _Scanner(argv).scan()
    arguments = Arguments(**values)
    if arguments.help or arguments.version:
        return replace(arguments, command=words[0] if words and words[0] in COMMANDS else "")
    command = words[0] if words and words[0] in COMMANDS and not swallowed.ended_at_start else ""
    if command == "auth":
        return replace(arguments, command="auth", rest=tuple(words[1:]))
    if command == "help":
        return replace(arguments, command="help", rest=tuple(words[1:]))
    if command in HOST_COMMANDS:
        arguments = _place_host_command(arguments, command, words[1:])
    elif command == "ssh":
        arguments = _place(arguments, words[1:], swallowed.variadic)
    else:
        arguments = _place_local(arguments, words, may_be_command=not swallowed.ended_at_start)
    check_way(arguments)
    _check_owners(arguments)
    _check_session(arguments)
    _check_combination(arguments)
    if arguments.headless and arguments.prompt is None and swallowed.variadic:
        hint = f"The words after {swallowed.variadic} were read as its values; write the prompt before it, or after --."
        arguments = replace(arguments, hints=(*arguments.hints, hint))
    return replace(arguments, hints=(*arguments.hints, *_unknown_tools(arguments)))


def _unknown_tools(arguments: Arguments) -> list[str]:
    """What to say of rules that can never apply."""
    hints = []
    for option, rules in (
        ("--allowedTools", arguments.allowed_tools),
        ("--disallowedTools", arguments.disallowed_tools),
    ):
        for rule in rules:
            name = rule.partition("(")[0]
            if name not in TOOLS and name != "*" and not name.startswith("mcp__"):
                near = difflib.get_close_matches(name, TOOLS, n=1, cutoff=0.6)
                meant = f" (did you mean {near[0]}?)" if near else ""
                hints.append(f"{option} {neutralise(rule)[:80]}: there is no tool of that name{meant}")
    return hints


def split_rules(text: str) -> list[str]:
    """A list of tool rules cut at commas and spaces outside parentheses."""
    rules: list[str] = []
    current = ""
    depth = 0
    for char in text:
        depth += (char == "(") - (char == ")" and depth > 0)
        if depth == 0 and char in ", \t\n":
            rules.append(current)
            current = ""
        else:
            current += char
    return [rule for rule in [*rules, current] if rule]


@dataclass(frozen=True)
class _Swallowed:
    """`variadic` is the last option that took several words or the last words there were; `ended_at_start`: the first
    word came after `--`, so it is no command."""

    variadic: str = ""
    ended_at_start: bool = False


class _Scanner:
    """Cuts argv into words and option values."""

    def __init__(self, argv: Sequence[str]) -> None:
        self._argv = list(argv)
        self._at = 0
        self._words: list[str] = []
        self._values: dict[str, Any] = {}
        self._variadic = ""
        self._ended_at_start = False

    def scan(self) -> tuple[list[str], dict[str, Any], _Swallowed]:
        while self._at < len(self._argv):
            word = self._argv[self._at]
            self._at += 1
            if word == "--":
                self._ended_at_start = not self._words
                self._words += self._argv[self._at :]
                break
            if word.startswith("-") and word != "-":
                self._option(word)
                continue
            self._words.append(word)
            if self._words == ["auth"]:
                self._words += self._argv[self._at :]
                break
        return self._words, self._values, _Swallowed(self._variadic, self._ended_at_start)

    def _option(self, word: str) -> None:
        name, equals, attached = word.partition("=")
        if not word.startswith("--") and len(word) > 2 and word[:2] in BY_NAME:
            name, equals, attached = word[:2], "=", word[2:]
        option = BY_NAME.get(name)
        if option is None:
            raise _unknown(name)
        given = attached if equals else None
        if option.kind is Kind.FLAG:
            if given is not None:
                raise UsageError(f"error: option '{option.shown}' takes no value", do=_SEE_HELP)
            self._values[option.field] = True
        elif option.kind is Kind.OPTIONAL:
            self._values[option.field] = self._session() if given is None else _converted(option, given)
        elif option.kind is Kind.VARIADIC:
            items = self._values.setdefault(option.field, [])
            items += _listed(option, [given] if given is not None else self._following(option))
        else:
            value = _converted(option, given if given is not None else self._one(option))
            if option.kind is Kind.REPEAT:
                self._values.setdefault(option.field, []).append(value)
            else:
                self._values[option.field] = value

    def _one(self, option: Option) -> str:
        if self._at >= len(self._argv) or self._argv[self._at] == "--":
            raise UsageError(f"error: option '{option.shown}' argument missing", do=_SEE_HELP)
        value = self._argv[self._at]
        if value.startswith("-") and len(value) > 1 and value.partition("=")[0] in BY_NAME:
            raise UsageError(
                f"error: option '{option.shown}' argument missing",
                do=f"A value that starts with - is written {option.names[0]}={value}.",
            )
        self._at += 1
        return value

    def _session(self) -> str:
        """The next word when it is a session's ID; a prompt may follow the option as well."""
        if self._at < len(self._argv) and _SESSION_ID.fullmatch(self._argv[self._at]):
            self._at += 1
            return self._argv[self._at - 1].lower()
        return ""

    def _following(self, option: Option) -> list[str]:
        found = [self._one(option)]
        while self._at < len(self._argv) and not self._argv[self._at].startswith("-"):
            found.append(self._argv[self._at])
            self._at += 1
        if len(found) > 1:
            self._variadic = option.names[0]
        return found


_SEE_HELP = "See `ccb help`."


def _listed(option: Option, words: list[str]) -> list[str]:
    return words if option.field == "add_dirs" else [rule for word in words for rule in split_rules(word)]


def _unknown(name: str) -> UsageError:
    near = difflib.get_close_matches(name, BY_NAME, n=2, cutoff=0.6)
    shown = neutralise(name)[:80]
    return UsageError(
        f"error: unknown option '{shown}'", do=f"Did you mean {' or '.join(near)}?" if near else _SEE_HELP
    )


def _converted(option: Option, value: str) -> str | int | float:
    if option.choices and value not in option.choices:
        raise UsageError(
            f"error: option '{option.shown}' argument '{neutralise(value)[:80]}' is invalid. "
            f"Allowed choices are {', '.join(option.choices)}."
        )
    match option.field:
        case "reconnect_timeout" | "older_than":
            try:
                number = float(value)
            except ValueError:
                number = -1.0
            if not 0 <= number < 1e9:
                raise UsageError(
                    f"error: option '{option.shown}' argument '{neutralise(value)[:80]}' is no number of {option.metavar}"
                )
            return number
        case "resume":
            if not _SESSION_ID.fullmatch(value):
                raise UsageError(f"error: '{neutralise(value)[:80]}' is no session ID", do="`ccb ps HOST` lists them.")
            return value.lower()
        case "max_turns" | "lines":
            if not value.isascii() or not value.isdigit() or not 0 < int(value[:80]) < 1_000_000:
                raise UsageError(
                    f"error: option '{option.shown}' argument '{neutralise(value)[:80]}' is no number from 1 to 999999"
                )
            return int(value)
        case "session_id":
            try:
                return str(uuid.UUID(value))
            except ValueError:
                raise UsageError(
                    "Error: Invalid session ID. Must be a valid UUID.", do="`uuidgen` makes one; without it, ccb does."
                ) from None
        case "port":
            return parse_port(value)
        case "ssh_options":
            if not _SSH_OPTION.fullmatch(value):
                raise UsageError(f"error: '-o {neutralise(value)[:80]}' is no ssh option", do="Write -o Name=value.")
        case "model":
            if not value.strip():
                raise UsageError(
                    f"error: option '{option.shown}' argument is empty", do="Name a model, or leave it away."
                )
    return value


def _place(arguments: Arguments, words: list[str], variadic: str) -> Arguments:
    """`ssh HOST [DIR] [PROMPT…]`; without HOST when a command leads there."""
    if not needs_host(arguments) and (not words or words[0][:1] in ("/", "~", ".")):
        directory = remote_path(words.pop(0)) if words else None
        return replace(arguments, command="ssh", directory=directory, prompt=" ".join(words) if words else None)
    if not words:
        swallowed = (
            f" (the words after {variadic} were read as its values: write the host before it)" if variadic else ""
        )
        raise UsageError(f"ccb ssh needs a host{swallowed}", do="Write `ccb ssh [user@]host[:/path]`.")
    target = parse_target(words[0])
    words = words[1:]
    directory = target.path
    if directory is None and words and words[0][:1] in ("/", "~", "."):
        directory = remote_path(words.pop(0))
    if target.port is not None and arguments.port is not None and target.port != arguments.port:
        raise UsageError(f"the target says port {target.port}, -P says {arguments.port}", do="Give the port once.")
    return replace(
        arguments,
        command="ssh",
        target=target,
        directory=directory,
        prompt=" ".join(words) if words else None,
        port=arguments.port or target.port,
    )


def _place_host_command(arguments: Arguments, command: str, words: list[str]) -> Arguments:
    """`COMMAND HOST [ID]`; `ps`, `doctor` and `--local` do without a host."""
    arguments = replace(arguments, command=command)
    takes_session = command in ("attach", "logs", "stop")
    only_session = len(words) == 1 and takes_session and _SESSION_ID.fullmatch(words[0]) is not None
    if not needs_host(arguments) and (not words or only_session):
        pass  # the command itself says where
    elif not arguments.local and (words or command not in ("ps", "doctor")):
        if not words:
            raise UsageError(
                f"ccb {command} needs a host", do=f"Write `ccb {command} [user@]host`, or --local for this machine."
            )
        target = parse_target(words.pop(0))
        if target.path is not None:
            raise UsageError(f"ccb {command} takes a host without a path", do=f"Write `ccb {command} {target.login}`.")
        if target.port is not None and arguments.port is not None and target.port != arguments.port:
            raise UsageError(f"the target says port {target.port}, -P says {arguments.port}", do="Give the port once.")
        arguments = replace(arguments, target=target, port=arguments.port or target.port)
    else:
        _check_no_connection(arguments, f"ccb {command} HOST")
    if takes_session and words:
        session = words.pop(0)
        if not _SESSION_ID.fullmatch(session):
            raise UsageError(f"{neutralise(session)[:80]!r} is no session ID", do="`ccb ps HOST` lists them.")
        arguments = replace(arguments, resume=session.lower())
    elif command == "attach":
        arguments = replace(arguments, resume="")
    elif command == "logs" or (command == "stop" and not arguments.all):
        also = ", or --all" if command == "stop" else ""
        raise UsageError(f"ccb {command} needs the ID of a session{also}", do="`ccb ps HOST` lists them.")
    if words:
        raise UsageError(f"ccb {command} does not take {neutralise(words[0])[:80]!r}", do=_SEE_HELP)
    if command == "stop" and arguments.all and arguments.resume:
        raise UsageError("an ID and --all exclude each other", do="Give one of them.")
    return arguments


_OWNERS = {
    "view": ("--view", ("attach",)),
    "all": ("--all", ("stop",)),
    "dry_run": ("--dry-run", ("gc", "clean")),
    "older_than": ("--older-than", ("gc",)),
    "yes": ("--yes", ("clean",)),
    "lines": ("--lines", ("logs",)),
    "json": ("--json", ("ps", "doctor")),
}


def _check_owners(arguments: Arguments) -> None:
    """Options that belong to one command make no sense with another."""
    for name, (option, commands) in _OWNERS.items():
        if getattr(arguments, name) not in (None, False) and arguments.command not in commands:
            raise UsageError(f"{option} belongs to {' and '.join(f'`ccb {each}`' for each in commands)}", do=_SEE_HELP)


def _check_session(arguments: Arguments) -> None:
    if arguments.command in HOST_COMMANDS:
        if arguments.command != "attach" and arguments.headless:
            raise UsageError(f"ccb {arguments.command} has no headless mode", do=_SEE_HELP)
        if arguments.continue_latest or arguments.fork_session or arguments.session_id:
            raise UsageError("--continue, --fork-session and --session-id belong to `ccb ssh`", do=_SEE_HELP)
        return
    old = arguments.continue_latest or arguments.resume is not None
    if arguments.continue_latest and arguments.resume is not None:
        raise UsageError("--continue and --resume exclude each other", do="Give one of them.")
    if arguments.fork_session and not old:
        raise UsageError("--fork-session needs --continue or --resume", do="Say which session is to be copied.")
    if arguments.session_id and old and not arguments.fork_session:
        raise UsageError(
            "Error: --session-id can only be used with --continue or --resume if --fork-session is also specified.",
            do="Add --fork-session, or leave --session-id away.",
        )
    if arguments.resume == "" and arguments.headless:
        raise UsageError("--resume needs the ID of a session in a headless run", do="`ccb ps HOST` lists them.")


def _place_local(arguments: Arguments, words: list[str], *, may_be_command: bool) -> Arguments:
    """`[PATH] [PROMPT…]`: the first word is the path when there is such a directory here, or when it is written like one."""
    directory = str(Path.cwd())
    if words and words[0] and (Path(words[0]).expanduser().is_dir() or _is_written_as_path(words[0])):
        directory = str(Path(words.pop(0)).expanduser().absolute())
    elif words and may_be_command and _WRITTEN_AS_HOST.fullmatch(words[0]):
        raise UsageError(
            f"{neutralise(words[0])[:80]!r} names a place on a host, and this would be a session here",
            do=f"Did you mean `ccb ssh {neutralise(words[0])[:80]}`? If it is a prompt, write it behind --.",
        )
    elif words and may_be_command and not arguments.print:
        _check_spelling(words)
    _check_no_connection(arguments, "ccb ssh HOST …")
    missing = [each for each in arguments.add_dirs if not Path(directory, each).expanduser().is_dir()]
    hints = tuple(f"--add-dir {neutralise(each)[:200]}: there is no such directory" for each in missing)
    return replace(arguments, directory=directory, prompt=" ".join(words) if words else None, hints=hints)


def _check_no_connection(arguments: Arguments, instead: str) -> None:
    for name, given in (("-i", arguments.identities), ("-P", arguments.port), ("-o", arguments.ssh_options)):
        if given:
            raise UsageError(f"{name} needs a host", do=f"Write `{instead}`, or leave it out.")


def _check_spelling(words: list[str]) -> None:
    """Words that look like a command and its arguments, but for a slip, are no prompt."""
    commands = [name for name in COMMANDS if name[0] == words[0][:1]]
    near = difflib.get_close_matches(words[0], commands, n=1, cutoff=0.7)
    if near and (len(words) < 3 or (len(words) == 3 and _SESSION_ID.fullmatch(words[2]))):
        raise UsageError(
            f"{neutralise(words[0])[:80]!r} is no command",
            do=f"Did you mean `ccb {near[0]}`? If it is a prompt, write it behind --.",
        )


def _is_written_as_path(word: str) -> bool:
    return word in (".", "..", "~") or (word.startswith(("/", "~/", "./", "../")) and not any(map(str.isspace, word)))


def _check_combination(arguments: Arguments) -> None:
    stream_out = arguments.output_format == "stream-json"
    stream_in = arguments.input_format == "stream-json"
    if stream_in and not stream_out:
        raise UsageError(
            "Error: --input-format=stream-json requires output-format=stream-json.",
            do="Add --output-format=stream-json.",
        )
    if stream_out and not arguments.verbose:
        raise UsageError(
            "Error: When using --print, --output-format=stream-json requires --verbose", do="Add --verbose."
        )
    if arguments.include_partial_messages and not stream_out:
        raise UsageError(
            "Error: --include-partial-messages requires --print and --output-format=stream-json.",
            do="Add -p and --output-format=stream-json.",
        )
    if arguments.replay_user_messages and not stream_in:
        raise UsageError(
            "Error: --replay-user-messages requires both --input-format=stream-json and --output-format=stream-json.",
            do="Add both.",
        )
    if arguments.permission_prompt_tool and not stream_in:
        raise UsageError(
            "Error: --permission-prompt-tool stdio requires --input-format=stream-json.",
            do="Without it, allow what is needed with --allowedTools or --permission-mode.",
        )
