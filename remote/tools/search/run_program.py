"""Runs the search program in a process of its own, so that any search can be stopped and does not use the worker's
memory."""

from __future__ import annotations

import binascii
import importlib.util
import json
import marshal
import sys
import zlib
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from ...sandbox.rules import CageRules
from ..contract import ToolContext

if TYPE_CHECKING:  # it imports much, and the worker needs it for nothing else
    from importlib.abc import InspectLoader

Json = dict[str, Any]

SECONDS = 20.0
"""Seconds after which a search returns what it has found so far."""

MAX_PATTERN = 10_000
"""Longest pattern in characters: a request travels in a command line."""

_KILL_AFTER = 5.0  # seconds after the limit at which a program that is stuck in a pattern is killed
_MAX_ANSWER = 16 << 20
NAMES, TEXTS = "ccb.tunnel.wire.spelling", "ccb.remote.system.text_encoding"
OWNERS = "ccb.remote.system.owners"
_MODULES = (  # in the order of their imports
    *("running", NAMES, TEXTS, OWNERS, "globs", "ignore"),
    *("literals", "file_types", "narrowing", "walk", "scan", "main"),
)

BOOT = """
import binascii, marshal, sys, zlib
Module = type(sys)
for name, code in marshal.loads(zlib.decompress(binascii.a2b_base64(sys.argv[1]))):
    parts = name.split(".")
    for at in range(1, len(parts)):
        package = ".".join(parts[:at])
        if package not in sys.modules:
            sys.modules[package] = Module(package)
            sys.modules[package].__path__ = []
    module = sys.modules[name] = Module(name)
    module.__package__ = package
    exec(code, module.__dict__)
    if parts[-1] == "running" and sys.argv[4:]:
        module.start_ahead(sys.argv[3], sys.argv[4:])
if sys.argv[2:]:
    module.main(sys.argv[2])
"""


LEFT_OUT = "(Files that permission rules keep from this tool were left out.)"
"""The note on a result when the program's answer has `left_out` set."""


def unsearched(found: Json) -> list[str]:
    """Return sentences for the model about what a search did not look at."""
    unread, cut, large = found["unread"], found.get("cut", 0), found.get("large", 0)
    notes = []
    ignored = found.get("ignored", {"count": 0})
    if ignored["count"]:
        such = ", ".join(ignored["named"])
        more = ", …" if ignored["count"] > len(ignored["named"]) else ""
        notes.append(f"Not searched, because .gitignore leaves {_them(ignored['count'])} out: {such}{more}.")
    unobeyed = found.get("unobeyed", {"count": 0})
    if unobeyed["count"]:
        such = ", ".join(unobeyed["named"])
        notes.append(f"Not obeyed, being unreadable, no regular file, or over 1 MiB or 10,000 lines: {such}.")
    if unread:
        notes.append(f"{_counted(unread, 'file or directory', 'files or directories')} could not be read.")
    if cut:
        notes.append(
            f"{_counted(cut, 'line', 'lines')} over 1 MiB {_was(cut)} searched in pieces; what spans them is missed."
        )
    foreign = found.get("foreign", {"count": 0})
    if foreign["count"]:
        such = f"{', '.join(foreign['named'])}{', …' if foreign['count'] > len(foreign['named']) else ''}"
        notes.append(f"Not in UTF-8, so that only ASCII text is found and shown in {_it(foreign['count'])}: {such}.")
    if found.get("binary"):
        notes.append("It is a binary file, and was not searched. Use a program in Bash, such as `strings`.")
    slow = found.get("slow_count", 0)
    if slow:
        more = ", …" if slow > len(found["slow"]) else ""
        notes.append(f"A pattern takes too long in {', '.join(found['slow'])}{more}: the rest was not searched.")
    if large:
        notes.append(f"{_counted(large, 'file', 'files')} over 32 MiB {_was(large)} not searched: multiline is on.")
    return [f"({note})" for note in notes]


def _counted(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def _them(number: int) -> str:
    return "it" if number == 1 else f"{number:,} entries"


def _it(number: int) -> str:
    return "it" if number == 1 else f"{number:,} files"


def _was(number: int) -> str:
    return "was" if number == 1 else "were"


class SearchFailed(Exception):
    """The search has no result; the text says why."""


@lru_cache(maxsize=2)
def load_program(modules: tuple[str, ...] = _MODULES) -> str:
    """Return the compiled modules of a program, packed for a command line of this Python: those of the package
    `program`, and any others by their whole names. `main` of the last module is its entry point."""
    codes = []
    for name in modules:
        full_name = name if "." in name else f"{__package__}.program.{name}"
        spec = importlib.util.find_spec(full_name)
        assert spec is not None
        codes.append((full_name, cast("InspectLoader", spec.loader).get_code(full_name)))
    return binascii.b2a_base64(zlib.compress(marshal.dumps(codes), 9), newline=False).decode("ascii")


def _cage(context: ToolContext, request: Json) -> CageRules | None:
    """Return the cage of the program: it reads what is searched, and changes nothing. None if this host has none."""
    searched = context.call.pinned or context.host.real_path(str(request.get("root") or request["path"]))
    rules = context.cages.read_only([context.cwd, *context.add_dirs], [searched])
    # the zygote reads names in UTF-8, as most workers do
    return replace(rules, own=sys.getfilesystemencoding() == "utf-8") if rules else None


def search_command(request: Json) -> list[str]:
    """Return the command line of the program. In a directory, the program starts ripgrep before anything else."""
    from .program.globs import BadGlob
    from .program.main import BadRequest, first_command

    first: list[str] = []
    try:
        first = first_command(request) if "root" in request else []
    except (BadRequest, BadGlob):
        pass  # the program says what is wrong
    argv = [sys.executable or "python3", "-I", "-S", "-c", BOOT, load_program(), json.dumps(request)]
    return [*argv, request["root"], *first] if first else argv


async def search(context: ToolContext, request: Json, seconds: float = SECONDS) -> Json:
    """Return the program's answer to `request` (see `program.main.answer`). Raise SearchFailed if there is none."""
    from asyncio import TimeoutError as Late

    from ...system.deadline import within

    host = context.host
    programs = {"rg": host.which("rg") or "", "grep": host.which("grep") or ""}
    project = [context.cwd, *context.add_dirs]
    kept = {"left_out": context.call.left_out, "sessions": context.spill.sessions, "project": project}
    whole = {**programs, "seconds": seconds, **kept, **request}
    answer = bytearray()

    def take(data: bytes) -> None:
        if len(answer) < _MAX_ANSWER:
            answer.extend(data)

    try:
        process = await host.start(search_command(whole), "/", take, cage=_cage(context, request))
    except OSError as error:
        raise SearchFailed(f"The search could not be started: {error}") from None
    ended = False
    try:
        code = await within(seconds + _KILL_AFTER, process.wait())
        ended = True
    except Late:
        raise SearchFailed(
            f"The search was stopped after {seconds:g} s without a result. Use a simpler pattern or a smaller path."
        ) from None
    finally:
        if not ended or process.has_leftovers():
            await process.stop()
    try:
        found = json.loads(answer)
    except ValueError:
        last = answer.decode("utf-8", "replace").strip().rsplit("\n", 1)[-1][:300]
        raise SearchFailed(f"The search program failed (exit code {code}): {last}") from None
    assert isinstance(found, dict)
    if "error" in found:
        raise SearchFailed(str(found["error"]))
    return found
