"""Parse argv into `Arguments`: argparse reads the options, this module interprets the words around them."""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from ccb.tunnel.errors import UsageError

from .arguments import BY_NAME, OPTIONS, Arguments, ConnectionOptions, Option, OptionKind, arguments_from
from .option_rules import refuse_ssh_options, unknown_tools, validate
from .option_values import is_session_id, is_worktree_name, nearest, shortened
from .subcommands import HOST_COMMANDS, NAMES, OWN_WORDS, SUBCOMMANDS, topics
from .target import HOME, Target, directory_here, parse_target, remote_path
from .transport_choice import needs_host

_WRITTEN_AS_HOST = re.compile(r"ssh://\S+|([^\s/:@]+@)?[^\s/:@]+:(/(?!/)|~)\S*", re.IGNORECASE)
_WITH_SESSION = ("attach", "logs", "stop", "export", "move")
_WITHOUT_HOST = ("acp", "ps", "trust", "disconnect", "doctor")
_ON_HOST = re.compile(r"([^/:@]+@)?(\[[^/\]]+\]|[^/:\[]+):")
_COMMAND = re.compile(r"/[\w:-]+(\s.*)?", re.DOTALL)
_COPY = "Write `ccb cp HOST:PATH LOCAL` or `ccb cp LOCAL HOST:PATH`."
_MOVE = "Write `ccb move HOST [ID] HOST2:/PATH`; a path like ./app or /srv/app is one of this machine."
_IMPORT = "Write `ccb import FILE HOST:/PATH`; a path like ./app or /srv/app is one of this machine."
_OTHER_NAMES = {
    **dict.fromkeys(("install", "plugin", "plugins"), "help"),
    **dict.fromkeys(("history", "ls"), "sessions"),
    "completions": "completion",
    "continue": "resume",
    "kill": "stop",
    "login": "auth login",
    "setup-token": "auth login",
    "logout": "auth logout",
    "settings": "config show",
    "status": "doctor",
    "uninstall": "clean",
    "update": "upgrade",
    "version": "--version",
}
"""Commands of other programs, and the command of ccb that is next to each."""
_PRINT = BY_NAME["--print"].names
_PRINTED = "\0"  # stands in the words where -p was given; no argument of a process can be this
_COPY_RECURSIVE = ("-r", "-R")


def _read_options(argv: Sequence[str]) -> tuple[Arguments, list[str], str, bool]:
    """Return the arguments, the words around them with a mark behind -p, an option that took several words (it may have
    swallowed a prompt), and whether `--` comes before all words."""
    cut = argv.index("--") if "--" in argv else len(argv)
    pairs = {*argv, *(f"{name}={value}" for name, value in pairwise(argv))}
    tolerant = {"--input-format=stream-json", "--output-format=stream-json"} <= pairs
    attached = _attached(argv[:cut], tolerant)
    found, others = _parsed(attached)
    values: dict[Option, object] = {}
    variadic = ""
    for name, value in vars(found).items():
        option = BY_NAME[name]
        if option.kind is OptionKind.VARIADIC:
            variadic = name if any(len(words) > 1 for words in value) else variadic
            value = [item for words in value for word in words for item in ([word] if isinstance(word, str) else word)]
        values[option] = tuple(value) if isinstance(value, list) else value
    marked, unknown = _words(others, set(pairwise(attached)), tolerant=tolerant)
    ended_at_start = cut < len(argv) and not {*marked} - {_PRINTED}
    arguments = replace(arguments_from(values), hints=tuple(unknown))
    return arguments, [*marked, *argv[cut + 1 :]], variadic, ended_at_start


def _parsed(attached: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the values of all options, and what is left, in order: words and unknown options."""
    parser = argparse.ArgumentParser(
        add_help=False, allow_abbrev=False, exit_on_error=False, argument_default=argparse.SUPPRESS
    )
    for option in OPTIONS:
        names = option.names
        if not option.metavar:
            parser.add_argument(*names, dest=names[0], action="store_const", const=True)
        elif option.kind is OptionKind.VARIADIC:
            parser.add_argument(*names, dest=names[0], action="append", nargs="+", type=option.value)
        else:
            action = "append" if option.kind is OptionKind.REPEAT else "store"
            parser.add_argument(*names, dest=names[0], action=action, type=option.value)
    try:
        return parser.parse_known_args(attached)
    except argparse.ArgumentError as error:
        option = BY_NAME[str(error.argument_name).partition("/")[0]]
        if str(error.message).startswith("ignored"):
            raise UsageError(f"error: option '{option.shown}' takes no value") from None
        raise UsageError(
            f"error: option '{option.shown}' argument missing",
            do=f"A value that starts with - is written {option.names[0]}=VALUE.",
        ) from None


def _attached(argv: Sequence[str], tolerant: bool) -> list[str]:
    """Return `argv` with single values attached to their options: argparse takes no value that starts with a dash, and
    does not look at an optional value before it takes it. Behind -p stands a mark."""
    found: list[str] = []
    left = deque(argv)
    while left:
        word = left.popleft()
        words = [each for each in found if not each.startswith("-") and each != _PRINTED]
        if word in _COPY_RECURSIVE and words[:1] == ["cp"]:
            word = "--recursive"
        option = BY_NAME.get(word)
        if option is not None and _takes(option, left, words, tolerant):
            word = f"{option.names[0]}={left.popleft()}"
        elif option is not None and option.kind is OptionKind.OPTIONAL:
            word = f"{option.names[0]}="
        found += [word, _PRINTED] if word in _PRINT else [word]
    return found


def _takes(option: Option, left: Sequence[str], words: Sequence[str], tolerant: bool) -> bool:
    """Return whether the first word that is left is the value of the option, and not a prompt or a place."""
    if not left:
        return False
    if option.field == "resume":
        return is_session_id(left[0])
    if option.field == "worktree":
        return is_worktree_name(left[0]) and (tolerant or len(words) > (words[:1] == ["ssh"]))
    return option.takes_one and left[0].partition("=")[0] not in BY_NAME


def _words(others: Sequence[str], pairs: set[tuple[str, str]], *, tolerant: bool) -> tuple[list[str], list[str]]:
    """Return the words among what argparse did not take, and sentences about unknown options: only programs that speak
    JSON may use such options, with a value that follows."""
    words: list[str] = []
    unknown: list[str] = []
    left = deque(others)
    while left:
        word = left.popleft()
        if not word.startswith("-") or word == "-":
            words.append(word)
            continue
        name, equals, _ = word.partition("=")
        if not tolerant:
            near = nearest(name, BY_NAME, 0.7, most=2)
            do = f"Did you mean {' or '.join(near)}?" if near else "See `ccb help`."
            raise UsageError(f"error: unknown option '{shortened(name)}'", do=do)
        swallowed = ""
        if not equals and left and (word, left[0]) in pairs and not left[0].startswith("-"):
            swallowed = f" and its value {shortened(left.popleft())!r}"
        unknown.append(f"unknown option '{shortened(name)}'{swallowed} ignored")
    return words, unknown


def parse_arguments(argv: Sequence[str], remote: str = "") -> Arguments:
    """Parse the command line `argv` (without the program's name). `remote` is where a session without a named host
    runs: `host:/path`, `host` for the directory there that has the path of the current one, "" for this machine. Raises
    UsageError."""
    arguments, marked, variadic, ended_at_start = _read_options(argv)
    words = _unmarked(marked)
    named = NAMES.get(words[0], "") if words else ""
    if arguments.help or arguments.version:
        return replace(arguments, command=named)
    if named == "help" and not ended_at_start:
        _check_topic(words[1:])
        return replace(arguments, command=named, rest=words[1:])
    if named == "serve" and not ended_at_start:
        return replace(arguments, command=named, rest=_served(argv, words[1:2], remote))
    if named == "fleet" and not ended_at_start:
        arguments = _place_fleet(replace(arguments, command=named), marked)
    elif named in _PLACES and not ended_at_start:
        arguments = _PLACES[named](replace(arguments, command=named), words[1:])
    else:
        arguments = _place_session(arguments, named, marked, variadic, remote, ended_at_start=ended_at_start)
    validate(arguments)
    return _with_hints(arguments, variadic)


def _unmarked(marked: Sequence[str]) -> tuple[str, ...]:
    return tuple(word for word in marked if word != _PRINTED)


def _place_session(
    arguments: Arguments, named: str, marked: list[str], variadic: str, remote: str, *, ended_at_start: bool
) -> Arguments:
    """Interpret the words around a session: `ssh`, `resume`, or none of the commands, so here or where `remote` is."""
    command = "" if ended_at_start else named
    if command == "resume":
        arguments, marked = _resumed(arguments, _unmarked(marked)[1:])
        command = "ssh" if marked[:1] == ["ssh"] else ""
    words = _unmarked(marked)
    if command == "ssh":
        return _place_ssh(replace(arguments, command=command), marked[marked.index("ssh") + 1 :], variadic)
    if remote and not arguments.connection.local and not (named == "resume" and words):
        return _place_remote(replace(arguments, command="ssh"), remote, words)
    return _place_local(arguments, words, may_be_command=not ended_at_start)


def _with_hints(arguments: Arguments, variadic: str) -> Arguments:
    """Return checked arguments with what the person is told about them. --init-only is a prompt of its own."""
    if arguments.agent.init_only:
        from ccb.tunnel.wire.session_options import SETUP_COMMAND

        arguments = replace(arguments, prompt=SETUP_COMMAND, streams=replace(arguments.streams, print=True))
    hints = [*arguments.hints]
    if arguments.headless and arguments.prompt is None and variadic:
        hints.append(f"The words after {variadic} were read as its values; write the prompt before it or after --.")
    return replace(arguments, hints=(*hints, *unknown_tools(arguments)))


def _check_topic(words: Sequence[str]) -> None:
    if words and words[0] not in topics():
        near = nearest(words[0], topics(), 0.5)
        raise UsageError(
            f"there is no help on {shortened(words[0])!r}",
            do=f"Did you mean `ccb help {near[0]}`?" if near else "`ccb help` lists commands and topics.",
        )
    if len(words) > 1:
        raise UsageError(f"ccb help takes one topic, not {len(words)}", do=f"Write `ccb help {words[0]}`.")


def _place_own_words(arguments: Arguments, words: Sequence[str]) -> Arguments:
    """Check the words of a command that has no host but `config show HOST:/PATH`, and keep them."""
    command = next(each for each in SUBCOMMANDS if each.name == arguments.command)
    action = words[0] if words and command.words[0][0] else ""
    bounds = {name: (least, most) for name, least, most in command.words}
    if action not in bounds:
        given = f", not {shortened(action)!r}" if action else ""
        raise UsageError(f"ccb {command.name} needs {', '.join(bounds)}{given}", do=f"See `ccb help {command.name}`.")
    least, most = bounds[action]
    after = words[1:] if action else words
    if not least <= len(after) <= most:
        name = f"{command.name} {action}".strip()
        do = f"See `ccb help {command.name}`."
        raise UsageError(f"ccb {name} does not go with {len(after)} words after it", do=do)
    if (command.name, action) != ("config", "show") or not (after or not needs_host(arguments.connection)):
        refuse_ssh_options(arguments.connection, "ccb ssh HOST …")
    elif not arguments.connection.local:
        arguments = _take_host(arguments, after)
    return replace(arguments, rest=tuple(words))


def _place_fleet(arguments: Arguments, marked: Sequence[str]) -> Arguments:
    """Interpret `fleet ACTION [HOST…]`: the prompt is the word behind -p."""
    words = [*marked]
    at = words.index(_PRINTED) + 1 if _PRINTED in words else 0
    prompt = words.pop(at) if 0 < at < len(words) and words[at] != _PRINTED else None
    connection = arguments.connection
    placed = _place_own_words(replace(arguments, connection=ConnectionOptions()), _unmarked(words)[1:])
    return replace(placed, connection=connection, prompt=prompt)


def _place_ssh(arguments: Arguments, marked: Sequence[str], variadic: str) -> Arguments:
    """Interpret `ssh HOST [DIR] [PROMPT…]`. There is no HOST with a `--transport` command, which leads to one place.
    What can be a slash command is one directly after -p. An option of several words may have taken the host."""
    words: Sequence[str] = _unmarked(marked)
    printed_at, directory = marked.index(_PRINTED) if _PRINTED in marked else -1, None
    if needs_host(arguments.connection) or (words and not _starts_as_path(words[0])):
        if not words:
            taken = f" (the words after {variadic} were read as its values: write the host before it)"
            raise UsageError(
                f"ccb ssh needs a host{taken if variadic else ''}", do="Write `ccb ssh [user@]host[:/path]`."
            )
        target, words, printed_at = parse_target(words[0]), words[1:], printed_at - 1
        arguments, directory = _with_target(arguments, target), target.path
    called = printed_at == 0 and words and _COMMAND.fullmatch(words[0])
    if directory is None and words and _starts_as_path(words[0]) and not called:
        directory, words = remote_path(words[0]), words[1:]
    return replace(arguments, directory=directory, prompt=_prompt(words))


def _place_remote(arguments: Arguments, remote: str, words: Sequence[str]) -> Arguments:
    """Interpret `[PROMPT…]` of a session on the host that CCB_REMOTE names."""
    target = parse_target(remote)
    directory = str(_current_directory()) if target.path is None else target.path
    arguments = replace(_with_target(arguments, target), directory=directory, prompt=_prompt(words))
    return replace(arguments, directory_is_current=target.path is None)


def _resumed(arguments: Arguments, words: Sequence[str]) -> tuple[Arguments, list[str]]:
    """Interpret `resume [PLACE] [ID]`, with -p also a prompt: return the same as options and words of a session.
    Without an ID, it is the latest session of the directory, or of all on a host that is named without one."""
    places, session_id, left = _place_and_id(words)
    if left and not arguments.headless:
        raise UsageError(f"ccb resume does not take {shortened(left[0])!r}", do="See `ccb help resume`.")
    given, here = arguments.session, not places or _starts_as_path(places[0])
    if given.continues or given.session_id or given.worktree is not None:
        raise UsageError(
            "ccb resume says which session: --continue, --resume, --session-id and --worktree do not go with it",
            do="Leave them out.",
        )
    newest = session_id is None and not here and parse_target(places[0]).path is None
    resume = "" if newest else session_id
    session = replace(given, resume=resume, newest=newest, continue_latest=resume is None)
    start = [] if here and needs_host(arguments.connection) else ["ssh"]
    return replace(arguments, session=session), [*start, *places, *([_PRINTED] if left else []), *left]


def _place_and_id(words: Sequence[str]) -> tuple[list[str], str | None, list[str]]:
    left = list(words)
    places = [left.pop(0)] if left and not is_session_id(left[0]) and " " not in left[0] else []
    return places, left.pop(0).lower() if left and is_session_id(left[0]) else None, left


def _place_copy(arguments: Arguments, words: Sequence[str]) -> Arguments:
    if len(words) != 2:
        raise UsageError(f"ccb cp takes a source and a target, not {len(words)} paths", do=_COPY)
    source, target = words
    if _is_on_host(source) == _is_on_host(target):
        which = "both" if _is_on_host(source) else "neither"
        raise UsageError(f"source and target of ccb cp are {which} on a host", do=_COPY)
    upload = _is_on_host(target)
    host, local = parse_target(target if upload else source), source if upload else target
    if not local:
        raise UsageError("the path on this machine is empty", do=_COPY)
    return replace(_with_target(arguments, host), copy=(upload, local, host.path or HOME))


def _place_import(arguments: Arguments, words: Sequence[str]) -> Arguments:
    if len(words) != 2 or not words[0]:
        raise UsageError(f"ccb import takes a file and a place, not {len(words)} words", do=_IMPORT)
    return replace(arguments_at(arguments, words[1]), rest=(words[0],))


def _place_move(arguments: Arguments, words: Sequence[str]) -> Arguments:
    if not words:
        raise UsageError("ccb move needs a place to move to", do=_MOVE)
    arguments_at(arguments, words[-1])
    if not arguments.connection.local:
        return replace(_place_host_command(arguments, words[:-1]), rest=(words[-1],))
    if len(words) > 2:
        raise UsageError(f"ccb move --local does not take {shortened(words[1])!r}", do=_MOVE)
    return replace(_take_session(arguments, words[:-1]), rest=(words[-1],))


def arguments_at(arguments: Arguments, word: str) -> Arguments:
    """Return the arguments for the place `word`: `HOST:/PATH`, or a path on this machine. Raise UsageError. The options
    of the connection are for it, unless a session moves from another host: then they are for that one."""
    moves, connection = arguments.command == "move", arguments.connection
    connection = replace(connection, local=False) if connection.local or not moves else ConnectionOptions()
    there = replace(arguments, connection=connection)
    if _is_on_host(word):
        target = parse_target(word)
        return replace(_with_target(there, target), directory=target.path or HOME)
    if not _starts_as_path(word):
        raise UsageError(f"{shortened(word)!r} is no place for a session", do=_MOVE if moves else _IMPORT)
    path = os.path.abspath(os.path.expanduser(word))  # noqa: PTH100, PTH111 - it is checked where the session goes
    return replace(there, connection=replace(connection, local=True), directory=path)


def _served(argv: Sequence[str], first: Sequence[str], remote: str) -> tuple[str, ...]:
    """Return the command line that `serve` shows in browsers: its own without its name and its options. `first` is the
    first word behind the name. Raise UsageError for a command line that has no screen."""
    words: list[str] = []
    left = iter(argv)
    for word in left:
        option = BY_NAME.get(word.partition("=")[0])
        if word == "--":
            words += [word, *left]
        elif option is None or option.commands != ("serve",):
            words.append(word)
        elif "=" not in word:
            next(left)
    at = words.index("serve")
    words[at : at + 1] = [] if first and first[0] in NAMES else ["dash"]
    served = parse_arguments(words, remote)
    if served.command not in ("", "ssh", "attach", "dash") or served.headless or served.host_command.json:
        raise UsageError("ccb serve shows the screens of ccb dash, ssh and attach", do="See `ccb help serve`.")
    return tuple(words)


def _place_shell(arguments: Arguments, words: Sequence[str]) -> Arguments:
    """Interpret `shell HOST[:/PATH] [N]`."""
    if arguments.connection.local:
        arguments = replace(arguments, directory=str(_current_directory()))
    elif needs_host(arguments.connection):
        arguments, words = _take_host(arguments, words), words[1:]
    if len(words) > 1 or not all(re.fullmatch("[1-9]", each) for each in words):
        raise UsageError("ccb shell takes one number of a shell after the place", do="See `ccb help shell`.")
    return replace(arguments, rest=tuple(words))


def _place_send(arguments: Arguments, words: Sequence[str]) -> Arguments:
    """Interpret `send [HOST:]SESSION|TITLE [TEXT…]`. A title with a colon needs a host, --local or `--transport`."""
    session = words[0] if words else ""
    if needs_host(arguments.connection) and (found := _ON_HOST.match(session)):
        arguments, session = _with_target(arguments, parse_target(found[0][:-1])), session[found.end() :]
    if not session:
        raise UsageError("ccb send needs a session", do="Write `ccb send [HOST:]SESSION TEXT`.")
    return replace(arguments, rest=(session,), prompt=_prompt(words[1:]))


def _is_on_host(word: str) -> bool:
    """Return whether a word of `cp` names a path on a host: as with scp, a colon comes before any slash."""
    return word[:6].lower() == "ssh://" or bool(_ON_HOST.match(word))


def _place_host_command(arguments: Arguments, words: Sequence[str]) -> Arguments:
    """Interpret `COMMAND HOST [ID]`. HOST may be missing for some commands, --local and `--transport` commands."""
    command = arguments.command
    only_session = command in _WITH_SESSION and len(words) == 1 and is_session_id(words[0])
    if needs_host(arguments.connection) or (words and not only_session):
        if arguments.connection.local or (not words and command in _WITHOUT_HOST):
            refuse_ssh_options(arguments.connection, f"ccb {command} HOST")
        else:
            arguments, words = _take_host(arguments, words), words[1:]
    if command in _WITH_SESSION:
        arguments, words = _take_session(arguments, words), words[1:]
    if words:
        raise UsageError(f"ccb {command} does not take {shortened(words[0])!r}")
    return arguments


def _take_host(arguments: Arguments, words: Sequence[str]) -> Arguments:
    command = arguments.command
    if not words:
        do = f"Write `ccb {command} [user@]host`, or --local for this machine."
        raise UsageError(f"ccb {command} needs a host", do=do)
    target = parse_target(words[0])
    if target.path is not None and command in ("acp", "trust", "config", "ports", "export", "move", "shell"):
        return replace(_with_target(arguments, target), directory=target.path)
    if target.path is not None:
        raise UsageError(f"ccb {command} takes a host without a path", do=f"Write `ccb {command} {target.login}`.")
    return _with_target(arguments, target)


def _take_session(arguments: Arguments, words: Sequence[str]) -> Arguments:
    if words and not is_session_id(words[0]):
        raise UsageError(f"{shortened(words[0])!r} is not a session ID", do="`ccb ps HOST` lists them.")
    if not words and arguments.host_command.all:
        return arguments
    session = words[0].lower() if words else ""
    return replace(arguments, session=replace(arguments.session, resume=session))


def _place_local(arguments: Arguments, words: Sequence[str], *, may_be_command: bool) -> Arguments:
    """Interpret `[PATH] [PROMPT…]`. With -p, what can be a slash command is one if there is no such directory."""
    printed = arguments.streams.print
    called = words and printed and _COMMAND.fullmatch(words[0]) and not directory_here(words[0])
    named = _named_directory(words[0]) if words and not called else None
    if named is not None:
        words = words[1:]
    elif words and may_be_command:
        _check_spelling(words, headless=arguments.headless)
    refuse_ssh_options(arguments.connection, "ccb ssh HOST …")
    arguments = replace(arguments, directory=str(named or _current_directory()), directory_is_current=named is None)
    return replace(arguments, prompt=_prompt(words))


def _named_directory(word: str) -> Path | None:
    """Return the directory that the first word names: one that exists, or that is written like a path."""
    found = directory_here(word) if word else None
    if found is None and re.fullmatch(r"[.]{1,2}|~|(/|~/|[.]{1,2}/)\S*", word):
        path = Path(os.path.expanduser(word))  # noqa: PTH111 - keeps a `~` if there is no home directory
        return path if path.is_absolute() else _current_directory() / path
    return found


def _current_directory() -> Path:
    try:
        return Path.cwd()
    except OSError as error:
        raise UsageError(
            "the current directory cannot be used",
            evidence=error.strerror or "",
            do="Change to another directory, or name one: `ccb PATH`.",
        ) from None


def _check_spelling(words: Sequence[str], *, headless: bool) -> None:
    """Raise UsageError for a place on a host, and in the REPL for one that resembles a command, or is one of other
    programs. A prompt in quotes has blanks."""
    if _WRITTEN_AS_HOST.fullmatch(words[0]):
        raise UsageError(
            f"{shortened(words[0])!r} is a path on a host, but without `ssh` the session would run on this machine",
            do=f"Did you mean `ccb ssh {shortened(words[0])}`? If it is a prompt, write it after --.",
        )
    of_same_letter = (name for name in NAMES if name[0] == words[0][:1])
    near = _OTHER_NAMES.get(words[0]) or "".join(nearest(words[0], of_same_letter, 0.7))
    short = len(words) < 3 or (len(words) == 3 and is_session_id(words[2]))
    if not headless and near and short:
        prompt = shortened(shlex.join(words))
        do = f"Did you mean `ccb {near}`? If it is a prompt: `ccb -- {prompt}`."
        raise UsageError(f"{shortened(words[0])!r} is not a command", do=do)


def _with_target(arguments: Arguments, target: Target) -> Arguments:
    port = arguments.connection.port
    if target.port is not None and port is not None and target.port != port:
        raise UsageError(f"the target says port {target.port}, -P says {port}", do="Give the port once.")
    return replace(arguments, connection=replace(arguments.connection, target=target, port=port or target.port))


def _prompt(words: Sequence[str]) -> str | None:
    return " ".join(words) if words else None


def _starts_as_path(word: str) -> bool:
    return word[:1] in ("/", "~", ".")


_PLACES: Mapping[str, Callable[[Arguments, Sequence[str]], Arguments]] = {
    **dict.fromkeys(HOST_COMMANDS, _place_host_command),
    **dict.fromkeys(OWN_WORDS, _place_own_words),
    "cp": _place_copy,
    "dash": lambda arguments, words: replace(arguments, rest=tuple(words)),
    "import": _place_import,
    "move": _place_move,
    "send": _place_send,
    "shell": _place_shell,
}
