"""Commands that the person's own settings tie to an event, and that run on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import signal
import tempfile
from collections.abc import Mapping
from typing import Any

from ccb.tunnel.wire.dataclass import dataclass

log = logging.getLogger(__name__)

_TIMEOUT_S = 60.0
_MAX_TIMEOUT_S = 600.0
_MAX_OUTPUT = 1 << 16  # bytes


@dataclass(frozen=True)
class OwnCommand:
    """A shell command, and the regular expression for what its event is about."""

    matcher: str
    command: str
    timeout_s: float

    def matches(self, subject: str) -> bool:
        """Return whether the command runs for an event about `subject`."""
        if self.matcher in ("", "*"):
            return True
        try:
            return re.search(self.matcher, subject) is not None
        except re.error:
            log.warning("the matcher %r of a hook is no regular expression, so it runs for all", self.matcher)
            return True

    async def run(self, event: bytes) -> tuple[int, bytes]:
        """Run the command with `event` on its stdin, and end all that it has started. Return its exit code, negative if
        it was ended by a signal, a timeout or too much output, and what it printed."""
        with tempfile.TemporaryFile() as given:
            given.write(event)
            given.seek(0)
            try:
                process = await asyncio.create_subprocess_exec(
                    "/bin/sh",
                    "-c",
                    self.command,
                    stdin=given,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.DEVNULL,
                    start_new_session=True,
                )
            except OSError as error:
                log.warning("a hook cannot be started: %s", error)
                return -1, b""
        printed = b""
        try:
            async with asyncio.timeout(self.timeout_s):
                assert process.stdout is not None
                while len(printed) < _MAX_OUTPUT and (more := await process.stdout.read(_MAX_OUTPUT)):
                    printed += more
                if len(printed) < _MAX_OUTPUT:
                    return await process.wait(), printed
        except TimeoutError:
            log.warning("a hook was stopped after %g s", self.timeout_s)
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        return -1, b""


def own_commands(hooks: Mapping[str, Any], event: str) -> list[OwnCommand]:
    """Return the commands for an event in the `hooks` of the settings. What is malformed is left out."""
    found = []
    entries = hooks.get(event)
    for entry in entries if isinstance(entries, list) else []:
        listed = entry.get("hooks") if isinstance(entry, dict) else None
        for hook in listed if isinstance(listed, list) else []:
            if not isinstance(hook, dict):
                continue  # the host names it: it reads all hooks
            command, timeout = hook.get("command"), hook.get("timeout", _TIMEOUT_S)
            if (
                hook.get("type", "command") == "command"
                and isinstance(command, str)
                and isinstance(timeout, int | float)
            ):
                limit = min(float(timeout), _MAX_TIMEOUT_S)
                found.append(OwnCommand(str(entry.get("matcher") or ""), command, limit))
    return found
