"""Commands that run other commands: what `timeout 5 make`, `env A=1 make` or `find … -exec make` really start."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from .parser import Command, NotUnderstood, Word, is_command_name, names, parse

_ANY = Word("", "\1", dynamic=True)  # an argument that is known only when it runs
FOUND = Word("{}", "\1", dynamic=True)
"""A file that find has found, as an argument of its own."""
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_DURATION = re.compile(r"[0-9]+(\.[0-9]+)?[smhd]?")
_MOST_DEPTH = 4
_MOST_STARTS = 40
_BOXES = names("busybox toybox")
_SHELLS = _BOXES | names("sh bash dash zsh ksh mksh pdksh yash rbash posh ash fish csh tcsh xonsh pwsh")
_RUN_TEXT = names(
    "su ssh script watch tmux screen runuser sg newgrp flock parallel sem hyperfine entr xterm capsh nix-shell"
)
"""They give a text to a shell."""
_TOOL_RUNNERS = names("uv poetry pipenv pdm hatch conda direnv dotenv nix cross-env npx bundle rbenv pyenv mise asdf")
_FOLLOWED = names("timeout nice stdbuf nohup time command env find xargs source .")
_BROAD = (
    _BOXES
    | _RUN_TEXT
    | _TOOL_RUNNERS
    | _FOLLOWED
    | names(
        "sudo doas pkexec gosu su-exec exec builtin timelimit ionice chrt taskset setsid fd fdfind unbuffer rlwrap strace"
        " ltrace gdb lldb valgrind perf eatmydata setpriv prlimit numactl setarch linux32 linux64 i386 x86_64 uname26"
        " runcon cgexec cpulimit faketime choom start-stop-daemon daemon daemonize setuidgid envuidgid chpst envdir"
        " softlimit tini dumb-init catatonit nsenter unshare chroot fakeroot fakechroot proot bwrap firejail"
        " systemd-run systemd-inhibit systemd-nspawn systemd-cat machinectl lxc-attach ip dbus-run-session"
        " dbus-launch xvfb-run gnome-terminal konsole ssh-agent torsocks proxychains proxychains4 catchsegv setlock"
        " chronic ifne caffeinate arch"
    )
)
_RUN_WITH = {
    "git": names("bisect submodule rebase filter-branch"),
    "npm": names("exec x"),
    **dict.fromkeys(("pnpm", "yarn", "bun"), names("exec dlx x")),
}
"""Programs that run others with one of these words."""
_LOADER = re.compile(r"ld(?:64)?(?:-linux|-musl)?[-A-Za-z0-9_.]*\.so(?:\.[0-9]+)*")

# Variables that change how output looks, not what runs.
_HARMLESS = re.compile(
    r"LANG|LANGUAGE|LC_[A-Z]+|TZ|NO_COLOR|FORCE_COLOR|CLICOLOR|CLICOLOR_FORCE|COLUMNS|LINES|CI|NODE_ENV|PYTHONUNBUFFERED"
    r"|PYTHONDONTWRITEBYTECODE|PYTHONIOENCODING|RUST_BACKTRACE|RUST_LOG|GOOS|GOARCH|CGO_ENABLED|GIT_OPTIONAL_LOCKS"
    r"|DEBIAN_FRONTEND|CARGO_TERM_COLOR|TERM"
)
_LOCAL = re.compile(r"[a-z][a-z0-9_]*")
_LOCAL_BUT = re.compile(r"path|fpath|cdpath|manpath|histchars|auto_resume|.*_proxy")


def is_harmless_assignment(assignment: Word, has_command: bool) -> bool:
    """Whether a variable can be set without changing which program runs or what it obeys. A variable of the shell alone
    (lower case, on its own) does neither."""
    name = assignment.text.partition("=")[0].rstrip("+")
    if _HARMLESS.fullmatch(name):
        return True
    return not has_command and bool(_LOCAL.fullmatch(name)) and not _LOCAL_BUT.fullmatch(name)


def effective(command: Command) -> Command | None:
    """The command without the wrappers that add nothing of their own, or None when a wrapper is used in a way that is
    not followed."""
    words, assignments = command.words, command.assignments
    for _ in range(8):
        if not words:
            break
        name = words[0].text
        rest: Sequence[Word] | None
        if name == "timeout":
            rest = _after_timeout(words)
        elif name == "nice":
            rest = _after_options(words, {"-n": 1})
        elif name == "stdbuf":
            rest = _after_options(words, {"-oL": 0, "-o0": 0, "-eL": 0, "-e0": 0, "-i0": 0})
        elif name in ("nohup", "time"):
            rest = _after_options(words, {"-p": 0} if name == "time" else {})
        elif (name == "command" and words[1:2] and words[1].text not in ("-v", "-V")) or (name == "env" and words[1:]):
            rest = _after_options(words, {})
        else:
            break
        if not rest:
            return None
        if name in ("env", "time"):
            count = 0
            while count < len(rest) and _ASSIGNMENT.match(rest[count].skeleton):
                if not rest[count].is_literal:  # an argument, not an assignment: it may become several words
                    return None
                count += 1
            assignments, rest = (*assignments, *rest[:count]), rest[count:]
        if not rest or not rest[0].is_literal or not is_command_name(rest[0].text):
            return None
        words = tuple(rest)
    return Command(tuple(words), tuple(assignments), command.redirects, command.raw, command.fed)


def _after_options(words: Sequence[Word], options: dict[str, int]) -> Sequence[Word] | None:
    at = 1
    while at < len(words) and words[at].text.startswith("-"):
        if not words[at].is_literal or words[at].text not in options:
            return None
        values = options[words[at].text]
        if not all(word.is_literal for word in words[at + 1 : at + 1 + values]):
            return None  # it may become several words, and the command another one
        at += 1 + values
    return words[at:]


def _after_timeout(words: Sequence[Word]) -> Sequence[Word] | None:
    rest = _after_options(words, {"-k": 1, "-s": 1, "--foreground": 0, "--preserve-status": 0, "-v": 0})
    if not rest or not rest[0].is_literal or not _DURATION.fullmatch(rest[0].text):
        return None
    return rest[1:]


def started_by(command: Command) -> list[Command] | None:
    """What `xargs` and `find -exec` start, with the arguments they add; None when that cannot be told. Empty for all
    other commands."""
    if command.name == "xargs":
        return _started_by_xargs(command)
    if command.name == "find":
        return _started_by_find(command)
    return []


def _started_by_xargs(command: Command) -> list[Command] | None:
    known = {
        "-0": 0,
        "-r": 0,
        "-t": 0,
        "-x": 0,
        "--null": 0,
        "--no-run-if-empty": 0,
        "-n": 1,
        "-L": 1,
        "-P": 1,
        "-I": 1,
    }
    words = command.words
    at = 1
    placeholder = ""
    while at < len(words) and words[at].text.startswith("-"):
        text = words[at].text
        if not all(word.is_literal for word in words[at : at + 1 + known.get(text, 0)]):
            return None
        if text.startswith("-I"):
            placeholder = text[2:] or (words[at + 1].text if at + 1 < len(words) else "")
        if text in known:
            at += 1 + known[text]
        elif re.fullmatch(r"-[nLP][0-9]+|-I\S+|-d\S+|-[0rtx]+", text):
            at += 1
        else:
            return None
    rest = words[at:]
    if not rest or not rest[0].is_literal or not is_command_name(rest[0].text):
        return None
    if placeholder:
        if placeholder in rest[0].text:
            return None
        rest = tuple(_ANY if placeholder in word.text else word for word in rest)
    return [Command((*rest, _ANY))]


def _started_by_find(command: Command) -> list[Command] | None:
    found: list[Command] = []
    words = list(command.words)
    if any(word.dynamic or (word.is_glob and word.text[0] in "*?[-") for word in words):
        return None  # it may become `-exec`
    while words:
        word = words.pop(0)
        if word.text not in ("-exec", "-execdir", "-ok", "-okdir"):
            continue
        inner: list[Word] = []
        while words and words[0].text != ";" and not (words[0].text == "+" and inner and inner[-1].text == "{}"):
            inner.append(words.pop(0))
        if not inner or not inner[0].is_literal or not is_command_name(inner[0].text):
            return None
        if any(item.text == "+" for item in inner):
            return None  # to some finds it ends the command, to others it is an argument
        found.append(Command(tuple(_handed(item) for item in inner)))
    return found


def _handed(word: Word) -> Word:
    """An argument of -exec: `../{}` is another file than the one that was found."""
    if "{}" not in word.text:
        return word
    return FOUND if word.text == "{}" else _ANY


def everything_behind(command: Command, depth: int = 0) -> list[Command]:
    """For rules that deny: every command that may be started by this one, far too many rather than one too few."""
    found = [Command(command.words, raw=command.raw)]
    words = command.words
    if not words or depth > _MOST_DEPTH:
        return found
    name = words[0].text.rsplit("/", 1)[-1]
    inner = effective(command)
    if inner is not None and len(inner.words) < len(words):
        found.append(Command(inner.words))
    if _is_runner(name, words):
        for start, word in enumerate(words[1:_MOST_STARTS], 1):
            found.append(Command(words[start:]))
            found += [Command((_literal(text), *words[start + 1 :])) for text in _glued(word.text)]
    if _is_runner(name, words) or name in _SHELLS or name in ("eval", "trap"):
        texts = [word.text for word in words[1:] if not word.text.startswith("-")]
        texts += [text for word in words[1:] for text in _glued(word.text)]
        if name == "eval":
            texts.append(" ".join(word.text for word in words[1:]))
        for text in texts[:20]:
            for inner in _parsed_or_nothing(text):
                found += everything_behind(inner, depth + 1)
    return found


def _is_runner(name: str, words: Sequence[Word]) -> bool:
    if name in _RUN_WITH:
        return any(word.text in _RUN_WITH[name] for word in words[1:])
    return name in _BROAD or _LOADER.fullmatch(name) is not None


def _glued(text: str) -> list[str]:
    """The value of an option in the same word, which may be a command: `--exec=/bin/rm`, `-crm`."""
    if not text.startswith("-"):
        return []
    values = (text.partition("=")[2], "" if text.startswith("--") else text[2:])
    return [value for value in values if value]


def _literal(text: str) -> Word:
    return Word(text, "\0" * len(text))


_NAMES_A_SHELL = re.compile(r"\b(?:[a-z]{0,4}sh|eval)\b")


def hides_commands(command: Command) -> bool:
    """Whether what runs in the end is told by a variable, a text for its input or an alias. What a program writes to a shell is
    not looked at, as little as what a script does."""
    texts = [word.text for word in command.words]
    shells = sum(len(_NAMES_A_SHELL.findall(text)) for text in texts)
    if shells > _MOST_DEPTH or (len(texts) > _MOST_STARTS and os.path.basename(texts[0]) in _BROAD - {"find"}):
        return True
    return any(_hides(part, command.fed) for part in everything_behind(command))


def _hides(command: Command, fed: bool) -> bool:
    name, words = command.name.rsplit("/", 1)[-1], command.words[1:]
    if name in ("alias", "hash", "enable"):
        return bool(words)
    if name in ("eval", "trap"):
        return not all(map(_is_readable, words))
    if name in ("source", "."):
        return any(_is_no_file(word, fed) for word in words[:1])
    if name in _RUN_TEXT:
        return not all(map(_is_readable, (word for word in words if word.dynamic or not word.text.startswith("-"))))
    if name in _BROAD - _FOLLOWED - _SHELLS:
        return any(word.dynamic or word.is_glob for word in _named_in(name, words))
    if name not in _SHELLS - _BOXES:
        return False
    options = [word for word in words if word.text.startswith(("-", "+")) and not word.dynamic]
    operands = [word for word in words if word not in options]
    if any("c" in word.text for word in options if not word.text.startswith("--")):
        return not all(map(_is_readable, operands[:1]))
    if any(_is_no_file(word, fed) for word in operands[:1]):
        return True
    return fed and (not operands or any(word.text == "-s" for word in options))


def _is_no_file(script: Word, fed: bool) -> bool:
    """Whether a shell is given `<(…)`, or its own input by name."""
    return (script.dynamic and not script.text) or (fed and script.text.startswith(("/dev/", "/proc/")))


def _named_in(runner: str, words: Sequence[Word]) -> Sequence[Word]:
    """The arguments that may say what is run. The tools of developers say it first: `npx tsc`, `uv run tsc`."""
    return words[: 1 if runner == "npx" else 2] if runner in _TOOL_RUNNERS else words


def _is_readable(word: Word) -> bool:
    try:
        parse(word.text)
    except NotUnderstood:
        return False
    return not word.dynamic


def _parsed_or_nothing(text: str) -> list[Command]:
    try:
        return parse(text)
    except NotUnderstood:
        return []
