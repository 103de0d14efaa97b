"""Which ssh options apply to a host and where they come from, for `ccb doctor`."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from ..secret import without_secrets
from ..transports.command_transport import said_by
from ..wire.dataclass import dataclass
from .config_files import OLD_NAMES, config_command
from .ssh_target import SshTarget, flags_of

_DEADLINE_S = 10.0
_READ = re.compile(r"debug1: Reading configuration data (.+)$")
_APPLIED = re.compile(r"debug1: (.+) line (\d+): Applying options for ")
_TRIED = re.compile(r"debug3: (.+) line (\d+): (?:not )?matched '")
_VERDICT = re.compile(r"debug2: match (not )?found$")
_INCLUDED = re.compile(r"debug3: (.+) line (\d+): Including file (.+) depth \d+( \(parse only\))?$")
_MAX_LINES = 20_000
_MAX_DEPTH = 16

_SEVERAL = {"identityfile", "certificatefile", "sendenv", "setenv", "localforward", "remoteforward", "dynamicforward"}
"""Options of which every line counts. Of all others only the first line does."""

ELSEWHERE = "follows from the others"
"""`where` of an option that no file and no flag sets: ssh derives some options from others."""


@dataclass(frozen=True)
class AppliedOption:
    """An option that differs from ssh's default. `where` is `file:line`, `command line` or ELSEWHERE."""

    name: str
    value: str
    where: str


@dataclass
class _Trace:
    """What ssh reports about reading its files: their names, the blocks (file, line) that applied, and included
    files."""

    files: list[str] = field(default_factory=list)
    blocks: set[tuple[str, int]] = field(default_factory=set)
    included: dict[tuple[str, int], list[str]] = field(default_factory=dict)


async def applied_options(target: SshTarget, words: Sequence[str] = ("ssh",)) -> list[AppliedOption] | None:
    """Return the options that the files, the command line and the flags in `words` set for `target`.

    `words` start ssh. Return None if there is no OpenSSH, or it does not answer.
    """
    ssh = shutil.which(words[0])
    if ssh is None:
        return None
    (status, given, said), (_, default, _) = await asyncio.gather(
        _run([*config_command(ssh, target, words[1:]), "-vvv", "--", target.host]),
        _run([ssh, "-G", "-F", "/dev/null", "--", target.host]),
    )
    if status or not given:
        return None
    written = await asyncio.to_thread(_written, said)
    target = target.with_flags(flags_of(words))
    defaults = set(default.splitlines())
    found = []
    for line in dict.fromkeys(given.splitlines()):  # a second pass over the files repeats options of several lines
        name, _, value = line.partition(" ")
        if line not in defaults and name not in ("host", "loglevel"):  # LogLevel is that of this call
            found.append(AppliedOption(name, value, _origin(name, value, target, written)))
    return found


async def _run(argv: list[str]) -> tuple[int, str, str]:
    try:
        return await said_by(argv, env=without_secrets(os.environ), deadline_s=_DEADLINE_S)
    except TimeoutError:
        return -1, "", ""


def _trace(said: str) -> _Trace:
    """Parse the debug output of ssh.

    The verdict on a `Match` line follows the lines that name it. In a later pass a block may apply that did not before.
    """
    trace = _Trace()
    tried: tuple[str, int] | None = None
    for line in map(str.rstrip, said.splitlines()):
        if read := _READ.match(line):
            if read[1] not in trace.files:
                trace.files.append(read[1])
        elif applied := _APPLIED.match(line):
            trace.blocks.add((applied[1], int(applied[2])))
        elif line.startswith("debug2: checking match for "):
            tried = None
        elif named := _TRIED.match(line):
            tried = (named[1], int(named[2]))
        elif (verdict := _VERDICT.match(line)) and tried is not None:
            if not verdict[1]:
                trace.blocks.add(tried)
        elif included := _INCLUDED.match(line):
            names = trace.included.setdefault((included[1], int(included[2])), [])
            if included[3] not in names:
                names.append(included[3])
    return trace


def _written(said: str) -> Mapping[str, list[tuple[str, str]]]:
    """Return what the files set for this host: (value, `file:line`) by option, in the order in which ssh reads them."""
    trace = _trace(said)
    inner = {name for names in trace.included.values() for name in names}
    found: dict[str, list[tuple[str, str]]] = {}
    for path in trace.files:
        if path not in inner:
            for keyword, value, where in _lines(path, trace, 0):
                found.setdefault(keyword, []).append((value, where))
    return found


def _lines(path: str, trace: _Trace, depth: int) -> Iterator[tuple[str, str, str]]:
    """Yield (option, value, `file:line`) for the lines of a file that apply, and of the files it includes."""
    try:
        lines = Path(path).expanduser().read_text(encoding="utf-8", errors="replace").splitlines()[:_MAX_LINES]
    except OSError:
        return
    applies = True
    for number, line in enumerate(lines, 1):
        keyword, value = _words(line)
        if keyword in ("host", "match"):
            # ssh does not name a `Match all` when it reports a match
            applies = (path, number) in trace.blocks or (keyword == "match" and value.lower() == "all")
        elif applies and keyword == "include":
            for name in trace.included.get((path, number), ()) if depth < _MAX_DEPTH else ():
                yield from _lines(name, trace, depth + 1)
        elif applies and keyword and not keyword.startswith("#"):
            yield keyword, value, f"{path}:{number}"


def _words(line: str) -> tuple[str, str]:
    """Split a line into option and value; `=` may separate them."""
    found = re.match(r'\s*"?([A-Za-z0-9]+)"?(?:\s*=\s*|\s+)(.*)', line)
    if found is None:
        return "", ""
    keyword = found[1].lower()
    return OLD_NAMES.get(keyword, keyword), found[2].strip()


def _origin(name: str, value: str, target: SshTarget, written: Mapping[str, list[tuple[str, str]]]) -> str:
    flags = {"port": target.port is not None, "user": target.user is not None}
    if flags.get(name) or (name == "identityfile" and value in target.identities):
        return "command line"
    given = [rest for keyword, rest in map(_words, target.options) if keyword == name]
    several = name in _SEVERAL
    if given and (not several or any(_same(each, value) for each in given)):
        return "command line"
    lines = written.get(name, [])
    fitting = [where for text, where in lines if _same(text, value)] if several else [where for _, where in lines]
    return fitting[0] if fitting else ELSEWHERE


def _same(text: str, resolved: str) -> bool:
    """Return whether a line with `text` may be the one that `ssh -G` shows as `resolved`: it expands values and splits
    lists."""
    plain = text.strip().strip('"')
    return (
        plain.lower() == resolved.lower()
        or resolved in [word.strip('"') for word in plain.split()]
        or plain.split() == resolved.split()
        or "%" in plain
        or "~" in plain
        or "${" in plain
        or plain.split()[:1] == resolved.split()[:1]
    )
