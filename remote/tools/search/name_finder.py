"""Finds the files and directories that a person may mean while they type a name, with a program of its own."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import time
from collections import OrderedDict
from collections.abc import Coroutine
from typing import IO, Any, Callable

from ...system.host import Host, LocalHost
from ...system.process import MARK, child_environment, new_mark
from .run_program import BOOT, NAMES, OWNERS, load_program

Json = dict[str, Any]

_log = logging.getLogger(__name__)

_STUCK_S = 10.0
_MAX_ANSWER = 1 << 20
_MAX_QUERY = 500  # characters: a question is written in one piece
_MAX_NAMES = 50


class NameFinder:
    """Asks the program, which starts with the first question and may end at any time. Its process has the mark of
    those that `host` starts. Close it at the end."""

    def __init__(self, root: str, host: Host) -> None:
        self._root = root
        self._token = host.session if isinstance(host, LocalHost) else ""
        self._process: subprocess.Popen[bytes] | None = None
        self._stdin = -1
        self._received = bytearray()
        self._count = 0
        self._asked: OrderedDict[object, tuple[int, float, Callable[[Json], None]]] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()

    def find(self, asker: object, query: str, answer: Callable[[Json], None]) -> None:
        """Call `answer` with {"names", "more", "settled", "cut"}, unless the same asker asks something else before, or
        the program fails."""
        now = time.monotonic()
        if self._asked and now - next(iter(self._asked.values()))[1] > _STUCK_S:
            _log.warning("the index of files does not answer, and is started again")
            self._end()
        try:
            starts = self._process is None or self._process.poll() is not None
            if starts:
                self._start()
            self._count += 1
            question = {"n": self._count, "query": query[:_MAX_QUERY], "most": _MAX_NAMES}
            os.write(self._stdin, json.dumps(question).encode() + b"\n")
        except OSError as error:
            _log.warning("the index of files cannot be asked: %s", error)
            self._end()
            return
        since = self._asked.pop(asker, (0, now))[1]
        self._asked[asker] = self._count, since, answer
        if starts:
            self._own(self._look(self._count, query))

    async def close(self) -> None:
        """End the program."""
        self._end()
        await asyncio.gather(*self._tasks)

    def _own(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _look(self, number: int, query: str) -> None:
        """Answer from the root alone while the program starts, if something there fits."""
        found = await asyncio.get_running_loop().run_in_executor(None, _glimpse, self._root, query)
        if found["names"]:
            self._answer(number, found)

    def _start(self) -> None:
        self._end()
        mark = new_mark(self._token)
        argv = [sys.executable or "python3", "-I", "-S", "-c", BOOT]
        argv += [load_program(("running", NAMES, OWNERS, "globs", "ignore", "names")), self._root]
        given, self._stdin = os.pipe()
        try:
            os.set_blocking(self._stdin, False)
            environment = {**child_environment(os.environ), MARK: mark}
            self._process = subprocess.Popen(
                argv,
                bufsize=0,
                cwd="/",
                env=environment,
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError:
            self._end()
            raise
        finally:
            os.close(given)
        assert self._process.stdout is not None
        asyncio.get_running_loop().add_reader(self._process.stdout, self._take, self._process.stdout)

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
        """End the program. What it was asked stays unanswered."""
        if self._stdin >= 0:
            os.close(self._stdin)
        process, self._process, self._stdin = self._process, None, -1
        self._received.clear()
        self._asked.clear()
        if process is not None:
            assert process.stdout is not None
            asyncio.get_running_loop().remove_reader(process.stdout)
            process.stdout.close()
            process.kill()
            self._own(_reaped(process))


async def _reaped(process: subprocess.Popen[bytes]) -> None:
    await asyncio.get_running_loop().run_in_executor(None, process.wait)


def _glimpse(root: str, query: str) -> Json:
    from .program.names import glimpse

    return glimpse(root, query, _MAX_NAMES)
