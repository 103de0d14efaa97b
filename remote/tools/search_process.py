"""Runs the search program."""

from __future__ import annotations

import asyncio
import binascii
import importlib.util
import json
import logging
import marshal
import os
import subprocess
import sys
import time
import zlib
from collections.abc import Coroutine
from dataclasses import replace
from functools import lru_cache
from typing import IO, TYPE_CHECKING, Any, Callable, cast

from ..system.deadline import in_thread
from ..system.host import Host
from ..system.process import MARK, child_environment, new_mark
from .tool_contract import Json, ToolContext, ToolRefused

if TYPE_CHECKING:
    from importlib.abc import InspectLoader

_log = logging.getLogger(__name__)

_STUCK_S = 10.0
_MAX_ANSWER = 1 << 20
_MAX_QUERY = 500  # characters: a question is written in one piece
_MAX_NAMES = 50


class NameFinder:
    """Asks the program of names, which starts with the first question and may end at any time. Its process has the mark
    of those that `host` starts. Close it at the end."""

    def __init__(self, root: str, host: Host) -> None:
        self._root = root
        self._token = host.session
        self._process: subprocess.Popen[bytes] | None = None
        self._received = bytearray()
        self._count = 0
        # by asker: the number of the last question, since when one waits for an answer, and who gets that
        self._asked: dict[object, tuple[int, float, Callable[[Json], None]]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    def find(self, asker: object, query: str, answer: Callable[[Json], None]) -> None:
        """Call `answer` with {"names", "more", "settled", "cut"}, unless the asker asks again or the program fails."""
        now = time.monotonic()
        if any(now - since > _STUCK_S for _, since, _ in self._asked.values()):
            _log.warning("the index of files does not answer, and is started again")
            self._end()
        self._count += 1
        question = {"n": self._count, "query": query[:_MAX_QUERY], "most": _MAX_NAMES}
        try:
            starts = self._process is None or self._process.poll() is not None
            process = self._start() if starts or self._process is None else self._process
            assert process.stdin is not None
            os.write(process.stdin.fileno(), json.dumps(question).encode() + b"\n")
        except OSError as error:
            _log.warning("the index of files cannot be asked: %s", error)
            self._end()
            return
        _, since, _ = self._asked.get(asker, (0, now, answer))
        self._asked[asker] = self._count, since, answer
        if starts:
            self._own(self._look(self._count, query))

    async def close(self) -> None:
        self._end()
        await asyncio.gather(*self._tasks)

    def _own(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _look(self, number: int, query: str) -> None:
        from ..search_program.file_names import glimpse

        found = await in_thread(glimpse, self._root, query, _MAX_NAMES)
        if found["names"]:
            self._answer(number, found)

    def _start(self) -> subprocess.Popen[bytes]:
        self._end()
        argv = [sys.executable or "python3", "-I", "-S", "-c", BOOT]
        argv += [load_program((NAMES, OWNERS, "globs", "walk", "file_names")), self._root]
        environment = {**child_environment(os.environ), MARK: new_mark(self._token)}
        pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
        process = subprocess.Popen(argv, 0, stdin=pipe, stdout=pipe, stderr=nowhere, cwd="/", env=environment)
        assert process.stdin is not None and process.stdout is not None
        os.set_blocking(process.stdin.fileno(), False)
        asyncio.get_running_loop().add_reader(process.stdout, self._take, process.stdout)
        self._process = process
        return process

    def _take(self, output: IO[bytes]) -> None:
        data = output.read(1 << 16)
        if not data:
            asyncio.get_running_loop().remove_reader(output)
            return
        self._received += data
        *lines, rest = bytes(self._received).split(b"\n")
        self._received = bytearray(rest[:_MAX_ANSWER])
        for line in lines:
            found: Json = json.loads(line)
            self._answer(found.pop("n"), found)

    def _answer(self, number: int, found: Json) -> None:
        for asker, (asked, _, answer) in list(self._asked.items()):
            if asked == number:
                del self._asked[asker]
                answer(found)

    def _end(self) -> None:
        process, self._process = self._process, None
        self._received.clear()
        self._asked.clear()
        if process is not None:
            assert process.stdin is not None and process.stdout is not None
            asyncio.get_running_loop().remove_reader(process.stdout)
            process.stdin.close()
            process.stdout.close()
            process.kill()
            self._own(in_thread(process.wait))


SECONDS = 20.0  # seconds after which a search returns what it has found so far
MAX_PATTERN = 10_000  # longest pattern in characters: a request travels in a command line
_KILL_AFTER = 5.0  # seconds after the limit at which a program that is stuck in a pattern is killed
_MAX_FOUND = 16 << 20
NAMES, TEXTS = "ccb.tunnel.wire.spelling", "ccb.remote.system.text_encoding"
OWNERS = "ccb.remote.system.owners"
_MODULES = (NAMES, TEXTS, OWNERS, "globs", "walk", "scan", "search_main")  # in the order of their imports

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
if sys.argv[2:]:
    module.main(sys.argv[2])
"""


@lru_cache(maxsize=2)
def load_program(modules: tuple[str, ...] = _MODULES) -> str:
    """Return the compiled modules of a program, packed for a command line of this Python: those of the package
    `search_program`, and any others by their whole names. `main` of the last module is its entry point."""
    codes = []
    for name in modules:
        full_name = name if "." in name else f"ccb.remote.search_program.{name}"
        spec = importlib.util.find_spec(full_name)
        assert spec is not None
        codes.append((full_name, cast("InspectLoader", spec.loader).get_code(full_name)))
    return binascii.b2a_base64(zlib.compress(marshal.dumps(codes), 9), newline=False).decode("ascii")


def search_command(request: Json) -> list[str]:
    return [sys.executable or "python3", "-I", "-S", "-c", BOOT, load_program(), json.dumps(request)]


async def search(context: ToolContext, request: Json, seconds: float = SECONDS) -> Json:
    """Return the program's answer to `request` (see `search_main.answer`). Raise ToolRefused if there is none."""
    host = context.host
    fixed = {
        "rg": host.which("rg") or "",
        "seconds": seconds,
        "left_out": context.call.left_out,
        "sessions": context.spill.sessions,
        "project": context.roots,
    }
    command = search_command({**fixed, **request})
    try:
        searched = context.call.pinned or host.real_path(str(request.get("root") or request["path"]))
        cage = context.cages.read_only(context.roots, [searched])
        if cage is not None:  # the zygote reads names in UTF-8, as most workers do
            cage = replace(cage, own=sys.getfilesystemencoding() == "utf-8")
        code, answer = await host.output(command, seconds + _KILL_AFTER, _MAX_FOUND, cage=cage)
    except OSError as error:
        raise ToolRefused(f"The search could not be started: {error}") from None
    if code is None:
        raise ToolRefused(
            f"The search was stopped after {seconds:g} s without a result. Use a simpler pattern or a smaller path."
        )
    try:
        found = json.loads(answer)
    except ValueError:
        last = answer.decode("utf-8", "replace").strip().rsplit("\n", 1)[-1][:300]
        raise ToolRefused(f"The search program failed (exit code {code}): {last}") from None
    assert isinstance(found, dict)
    if "error" in found:
        raise ToolRefused(str(found["error"]))
    return found
