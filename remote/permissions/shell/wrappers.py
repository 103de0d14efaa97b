"""Commands that run other commands: what `timeout 5 make`, `env A=1 make` or `find … -exec make` really start."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Sequence
from dataclasses import replace

from .shell_parser import parse
from .shell_words import ANY, KEYWORDS, PLAIN_NAME, Command, NotUnderstood, Word, literal, names

FOUND = Word("{}", "\1", dynamic=True)  # stands for a file that find has found, as an argument of its own
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_DURATION = re.compile(r"[0-9]+(\.[0-9]+)?[smhd]?")
_MAX_WRAPPERS = 8
_MAX_DEPTH = 4
MAX_STARTS = 40
_MAX_TEXTS = 20
_BOXES = names("busybox toybox")
_SHELLS = _BOXES | names("sh bash dash zsh ksh mksh pdksh yash rbash posh ash fish csh tcsh xonsh pwsh")
_RUN_TEXT = names(
    "su ssh script watch tmux screen runuser sg newgrp flock parallel sem hyperfine entr xterm capsh nix-shell"
)
"""Programs that run an argument as a shell command line."""
_RUN_INPUT = names("su ssh sg newgrp runuser script capsh nix-shell parallel sem at batch sudo doas source .")
"""Programs that run what they read as command lines, unless arguments say what they run."""
_TOOL_RUNNERS = names("uv poetry pipenv pdm hatch conda direnv dotenv nix cross-env npx bundle rbenv pyenv mise asdf")
_FOLLOWED = names("timeout nice stdbuf nohup time command env find xargs source .")
_BROAD = (
    _BOXES
    | _RUN_TEXT
    | _TOOL_RUNNERS
    | _FOLLOWED
    | names("""sudo doas pkexec gosu su-exec exec builtin timelimit ionice chrt taskset setsid fd fdfind unbuffer rlwrap
        strace ltrace gdb lldb valgrind perf eatmydata setpriv prlimit numactl setarch linux32 linux64 i386 x86_64
        uname26 runcon cgexec cpulimit faketime choom start-stop-daemon daemon daemonize setuidgid envuidgid chpst
        envdir softlimit tini dumb-init catatonit nsenter unshare chroot fakeroot fakechroot proot bwrap firejail
        systemd-run systemd-inhibit systemd-nspawn systemd-cat machinectl lxc-attach ip dbus-run-session dbus-launch
        xvfb-run gnome-terminal konsole ssh-agent torsocks proxychains proxychains4 catchsegv setlock chronic ifne
        caffeinate arch""")
)
_RUN_WITH = {
    "git": names("bisect submodule rebase filter-branch"),
    "npm": names("exec x"),
    **dict.fromkeys(("pnpm", "yarn", "bun"), names("exec dlx x")),
}
"""Programs that run other programs when one of these words is among their arguments."""
_LOADER = re.compile(r"ld(?:64)?(?:-linux|-musl)?[-A-Za-z0-9_.]*\.so(?:\.[0-9]+)*")

_TRANSPARENT: dict[str, dict[str, int]] = {
    "timeout": {"-k": 1, "-s": 1, "--foreground": 0, "--preserve-status": 0, "-v": 0},
    "nice": {"-n": 1},
    "stdbuf": {"-oL": 0, "-o0": 0, "-eL": 0, "-e0": 0, "-i0": 0},
    "time": {"-p": 0},
    **{name: {} for name in ("nohup", "command", "env")},
}
"""Wrappers that only run another command, with their known options and the number of values each option takes."""


def effective(command: Command) -> Command | None:
    """Return the command without its transparent wrappers, None if that is unclear. `env` alone starts nothing."""
    words, assignments = command.words, command.assignments
    for _ in range(_MAX_WRAPPERS):
        name = words[0].text if words else ""
        starts_none = name in ("env", "command") and len(words) == 1
        if name not in _TRANSPARENT or starts_none or (name == "command" and words[1].text in ("-v", "-V")):
            break
        unwrapped = _unwrap(words)
        if unwrapped is None:
            return None
        assignments, words = (*assignments, *unwrapped.assignments), unwrapped.words
    return replace(command, words=words, assignments=assignments)


def _unwrap(words: Sequence[Word]) -> Command | None:
    """Return the command that a wrapper starts, None if that is unclear."""
    name, options, at = words[0].text, _TRANSPARENT[words[0].text], 1
    while at < len(words) and words[at].text.startswith("-"):
        end = at + 1 + options.get(words[at].text, 0)
        if words[at].text not in options or not all(word.is_literal for word in words[at:end]):
            return None  # the word may expand to several, and the command may be another word
        at = end
    rest = tuple(words[at:])
    if name == "timeout":
        if not rest or not rest[0].is_literal or not _DURATION.fullmatch(rest[0].text):
            return None
        rest = rest[1:]
    assignments: tuple[Word, ...] = ()
    if name in ("env", "time"):
        assignments = tuple(itertools.takewhile(lambda word: _ASSIGNMENT.match(word.skeleton), rest))
    if not all(word.is_literal for word in assignments):
        return None  # the word may expand to several, and one of them may be the command
    rest = rest[len(assignments) :]
    return Command(rest, assignments) if _names_command(rest) else None


def _names_command(words: Sequence[Word]) -> bool:
    name = words[0].text if words and words[0].is_literal else ""
    return name not in KEYWORDS and PLAIN_NAME.fullmatch(name) is not None


_EXEC = ("-exec", "-execdir", "-ok", "-okdir")
_MAX_STARTERS = 32  # in one command; those that nest are read by recursion
_XARGS_OPTIONS = {
    **dict.fromkeys(("-0", "-r", "-t", "-x", "--null", "--no-run-if-empty"), 0),
    **dict.fromkeys(("-n", "-L", "-P", "-I"), 1),
}
_XARGS_GLUED = re.compile(r"-[nLP][0-9]+|-I\S+|-d\S+|-[0rtx]+")


def started_by(command: Command) -> list[Command] | None:
    """Return the commands that `xargs` or `find -exec` starts, with the arguments they add; None if that is unclear."""
    if sum(word.text.endswith(("xargs", *_EXEC)) for word in command.words) > _MAX_STARTERS:
        return None
    if command.name == "xargs":
        return _started_by_xargs(command.words)
    return _started_by_find(command.words) if command.name == "find" else []


def _started_by_xargs(words: Sequence[Word]) -> list[Command] | None:
    at, placeholder = 1, "\0"  # which is in no word
    while at < len(words) and words[at].text.startswith("-"):
        text = words[at].text
        end = at + 1 + _XARGS_OPTIONS.get(text, 0)
        if not all(word.is_literal for word in words[at:end]):
            return None
        if text not in _XARGS_OPTIONS and not _XARGS_GLUED.fullmatch(text):
            return None
        if text.startswith("-I"):
            placeholder = text[2:] or "".join(word.text for word in words[at + 1 : end])
        at = end
    words = words[at:]
    if not _names_command(words) or placeholder in words[0].text:
        return None
    return [Command((*(ANY if placeholder in word.text else word for word in words), ANY))]


def _started_by_find(words: Sequence[Word]) -> list[Command] | None:
    if any(word.dynamic or (word.is_glob and word.text[0] in "*?[-") for word in words):
        return None  # it may expand to `-exec`
    found: list[Command] = []
    texts, at = [word.text for word in words], 0
    while at < len(words):
        at += 1
        if texts[at - 1] not in _EXEC:
            continue
        start = at
        while at < len(words) and texts[at] != ";" and texts[max(start, at - 1) : at + 1] != ["{}", "+"]:
            at += 1
        own = words[start:at]
        if not _names_command(own):
            return None
        if any(word.text == "+" for word in own):
            return None  # some versions of find end the command here, others take it for an argument
        found.append(Command(tuple(map(_exec_argument, own))))
    return found


def _exec_argument(word: Word) -> Word:
    return FOUND if word.text == "{}" else ANY if "{}" in word.text else word


def everything_behind(command: Command, depth: int = 0) -> list[Command]:
    """Return every command that this one may start, for deny rules: too many rather than one too few."""
    words, gets = command.words, command.gets
    found = [Command(words, raw=command.raw, gets=gets)]
    if not words or depth > _MAX_DEPTH:
        return found
    inner = effective(command)
    if inner is not None and len(inner.words) < len(words):
        found.append(Command(inner.words, gets=gets))
    if is_runner(os.path.basename(command.name), words):
        for start, word in enumerate(words[1:MAX_STARTS], 1):
            found.append(Command(words[start:], gets=gets))
            found += [Command((literal(text), *words[start + 1 :]), gets=gets) for text in _glued(word.text)]
    for line in _lines_of(command):
        for part in line:
            if gets is not None and not part.gets:  # it reads the input, too, perhaps only a part of it
                part = replace(part, gets=gets if len(line) == 1 else ANY)
            found += everything_behind(part, depth + 1)
    return found


def _lines_of(command: Command) -> list[list[Command]]:
    name, arguments = os.path.basename(command.name), command.words[1:]
    texts: list[str] = []
    if is_runner(name, command.words) or name in _SHELLS or name in ("eval", "trap"):
        texts += [word.text for word in arguments if not word.text.startswith("-")]
        texts += [text for word in arguments for text in _glued(word.text)]
        texts += [" ".join(word.text for word in arguments)] if name == "eval" else []
        texts = texts[:_MAX_TEXTS]
    if command.gets is not None and not command.gets.dynamic and runs_its_input(command.words):
        texts.insert(0, command.gets.text)
    found: list[list[Command]] = []
    for text in texts:
        with contextlib.suppress(NotUnderstood):
            found.append(parse(text))
    return found


def runs_its_input(words: Sequence[Word]) -> bool:
    """Return whether a command, perhaps behind a wrapper, may run what it reads as command lines."""
    return any(os.path.basename(word.text) in _SHELLS | _RUN_INPUT for word in words[:MAX_STARTS])


def lines_inside(command: Command) -> list[list[Command]]:
    """Return each command line that a command may run, as the text of `sh -c`, if it can be parsed."""
    return [line for part in everything_behind(command) for line in _lines_of(part) if line]


def is_runner(name: str, words: Sequence[Word]) -> bool:
    if name in _RUN_WITH:
        return any(word.text in _RUN_WITH[name] for word in words[1:])
    return name in _BROAD or _LOADER.fullmatch(name) is not None


def _glued(text: str) -> list[str]:
    """Return the option values in this word that may be commands: `--exec=/bin/rm`, `-crm`."""
    if not text.startswith("-"):
        return []
    return [value for value in (text.partition("=")[2], "" if text.startswith("--") else text[2:]) if value]


_VALUED_BY_SHELL = re.compile(r"[-+][a-zA-Z]*[oO]|--(?:rcfile|init-file)")
_CHANGE_NAMES = names("alias hash enable shopt complete compgen bind let")
_TAKE_NAMES = names("declare typeset local readonly export read mapfile readarray unset test [ printf wait getopts")
_BUILTINS = _CHANGE_NAMES | _TAKE_NAMES | names("eval trap source .")
_EVALUATED = re.compile(r"\[[^\[]*(?:\$[({]|`)|^-\w*C")
"""What builtins evaluate, though it is quoted: the index in the name of an element, and the callback of mapfile."""
_OWN_INPUT = re.compile(r"(?:^|/)(?:dev|proc)/|(?:^|/)(?:stdin|[0-9]+)$")
_NAMES_A_SHELL = re.compile(r"\b(?:[a-z]{0,4}sh|eval)\b")


def hides_lines(command: Command) -> bool:
    """Return whether a variable, a pipe or an alias decides which command lines are run. Scripts are not considered."""
    texts = [word.text for word in command.words]
    shells = sum(len(_NAMES_A_SHELL.findall(text)) for text in texts)
    if shells > _MAX_DEPTH or (len(texts) > MAX_STARTS and os.path.basename(texts[0]) in _BROAD - {"find"}):
        return True
    return any(map(_hides, everything_behind(command)))


def _hides(command: Command) -> bool:
    name, words = os.path.basename(command.name), command.words[1:]
    fed = not _is_readable(command.gets or literal(""))
    if fed and name in _RUN_INPUT and _reads_commands(name, words):
        return True
    if name in _BUILTINS:
        return _builtin_hides(name, words, fed)
    if name in _RUN_TEXT:
        return not all(map(_is_readable, (word for word in words if word.dynamic or not word.text.startswith("-"))))
    if name in _BROAD - _FOLLOWED - _SHELLS:
        return any(word.dynamic or word.is_glob for word in _may_name_program(name, words))
    return name in _SHELLS - _BOXES and _shell_hides(words, fed)


def _may_name_program(name: str, words: Sequence[Word]) -> Sequence[Word]:
    """Return the words that may name what is run. Tool runners name it first: `npx tsc`, `uv run tsc`."""
    if name not in _TOOL_RUNNERS:
        return words
    return words[: 1 if name == "npx" else 2]


def _builtin_hides(name: str, words: Sequence[Word], fed: bool) -> bool:
    if name in _CHANGE_NAMES:
        return bool(words)
    if name in _TAKE_NAMES:
        return any(_EVALUATED.search(word.text) for word in words)
    if name in ("eval", "trap"):
        return not all(map(_is_readable, words))
    return any(_is_no_file(word, fed) for word in words[:1])


def _reads_commands(name: str, arguments: Sequence[Word]) -> bool:
    options = [word.text for word in arguments if word.text.startswith("-")]
    if name in ("sudo", "doas"):
        return any(re.match(r"-[a-zA-Z]*[si]|--(?:shell|login)", text) for text in options)
    if name not in ("at", "batch") and any("c" in text for text in options):
        return False
    most = {"parallel": 0, "sem": 0, "at": 9, "batch": 9, "source": -1, ".": -1}.get(name, 1)
    return len(arguments) - len(options) <= most


def _shell_hides(words: Sequence[Word], fed: bool) -> bool:
    """Return whether a shell runs something other than a readable `-c` text or a script file."""
    options = [word for word in words if word.text.startswith(("-", "+")) and not word.dynamic]
    operands = [word for word in words if word not in options]
    if any("c" in word.text for word in options if not word.text.startswith("--")):
        return not all(map(_is_readable, operands[:1]))
    if any(_is_no_file(word, fed) for word in operands[:1]):
        return True
    values = sum(bool(_VALUED_BY_SHELL.fullmatch(word.text)) for word in options)
    return fed and (len(operands) <= values or any(re.match(r"-[a-zA-Z]*s", word.text) for word in options))


def _is_no_file(script: Word, fed: bool) -> bool:
    """Return whether a script is `<(…)`, or the shell's own input under a name such as /dev/stdin."""
    return (script.dynamic and not script.text) or (fed and _OWN_INPUT.search(script.text) is not None)


def _is_readable(word: Word) -> bool:
    try:
        parse(word.text)
    except NotUnderstood:
        return False
    return not word.dynamic
