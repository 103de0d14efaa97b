"""Starts the worker's bridge over a transport, with one command on one exec channel."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

from ccb.tunnel.errors import AuthFailed, CcbError, ConnectionLost, DeployError, NoPython, NoStorage
from ccb.tunnel.link.worker_refusals import too_many_processes
from ccb.tunnel.plain_text import neutralise
from ccb.tunnel.transports.login_failures import expired
from ccb.tunnel.transports.pipe import Pipe, Transport
from ccb.tunnel.wire.dataclass import dataclass

from .bootstrap_command import (
    CANDIDATES,
    NO_PYTHON_STATUS,
    RUNNING,
    SHOWN_NOISE,
    TERMINAL_STATUS,
    ProbeAnswers,
    bootstrap_command,
    program_command,
)
from .bundle import Bundle

MAX_NOISE = 2 * 1024 * 1024  # bytes a login shell may print before the stub's marker

DEADLINE_S = 30.0  # seconds from the exec request to the first message of the stub

_GO_ON = b"\n"
_MAX_FACTS = 64 * 1024


@dataclass(frozen=True)
class Launched:
    """A pipe on which the bridge speaks frames. `rest` was already read from it, `facts` is the first message of the
    stub. `uploaded`: a bundle had to be sent."""

    pipe: Pipe
    rest: bytes
    facts: Mapping[str, Any]
    uploaded: bool = False


async def launch(
    transport: Transport,
    params: Mapping[str, object],
    bundle: Bundle,
    *,
    candidates: Sequence[str] = CANDIDATES,
    deadline_s: float = DEADLINE_S,
    heard: ProbeAnswers | None = None,
) -> Launched:
    """Start the worker on a host, in one round trip if it has the bundle, else in another and the upload. On trial, the
    stub waits for a word from here, sent when the host's shell runs. With `heard`, that reports facts. Raise NoPython,
    NoStorage, AuthFailed (an expired account), DeployError or ConnectionLost."""
    marker = secrets.token_hex(16)
    if transport.on_trial:
        params = {**params, "wait": True}
    bundles = await asyncio.to_thread(bundle.with_commands) if "command" in params else [bundle]
    for more in bundles[1:]:
        params = {**params, "more": [more.sha256, len(more.data)]}
    command = bootstrap_command(marker, bundle, params, candidates, probe=heard is not None, python=transport.python)
    launched = await _launched(transport, command, marker, deadline_s, heard)
    need = launched.facts.get("need")
    missing = [each for each in bundles if isinstance(need, list) and each.sha256 in need]
    if not missing:
        return launched
    async with AsyncExitStack() as on_failure:
        on_failure.push_async_callback(launched.pipe.close)
        form = str(launched.facts.get("packed", ""))
        for each in missing:
            await launched.pipe.write(await asyncio.to_thread(_upload, each, form, raw=bool(transport.python)))
        on_failure.pop_all()
    return replace(launched, uploaded=True)


async def launch_program(transport: Transport, program: bytes) -> Launched:
    """Run the Python source `program` on the host (see `program_command`). Raise as `launch` does."""
    marker = secrets.token_hex(16)
    command = program_command(marker, program, wait=transport.on_trial, python=transport.python)
    return await _launched(transport, command, marker)


async def _launched(
    transport: Transport, command: str, marker: str, deadline_s: float = DEADLINE_S, heard: ProbeAnswers | None = None
) -> Launched:
    pipe = await transport.execute(command)
    async with AsyncExitStack() as on_failure:
        on_failure.push_async_callback(pipe.close)
        reader = _MarkerReader(pipe, marker.encode(), heard or ProbeAnswers())
        try:
            async with asyncio.timeout(deadline_s):
                facts = await reader.next()
        except TimeoutError:
            what = f"the host did not start the worker within {deadline_s:.0f} s"
            raise _no_marker(transport, reader, what, pipe) from None
        except _Ended:
            raise await _explain(transport, reader, pipe) from None
        if facts.get("input") is False:
            raise _no_input(transport, reader, pipe)
        on_failure.pop_all()
        return Launched(pipe, reader.buffer, facts)


def job_input(bundle: Bundle) -> bytes:
    """Return what stdin of `job_command` has, in a form that every Python can read."""
    return _GO_ON + _upload(bundle, "zlib")


def _upload(bundle: Bundle, form: str, *, raw: bool = False) -> bytes:
    """Return what the stub reads, in the `form` that it has asked for. On this machine the bundle goes as it is."""
    letter, data = b"r", bundle.data
    if not raw:
        try:
            letter, data = (b"x", bundle.packed("xz")) if form == "xz" else (b"z", bundle.packed("zlib"))
        except ImportError:  # this Python has no lzma
            letter, data = b"z", bundle.packed("zlib")
    return b"%s%09d%s" % (letter, len(data), data)


class _Ended(Exception):
    """The command ended before the first message of the stub."""


class _MarkerReader:
    """Skips everything before the marker, which only our own command line has, then reads the JSON line behind it."""

    def __init__(self, pipe: Pipe, marker: bytes, heard: ProbeAnswers) -> None:
        self._pipe = pipe
        self.heard = heard
        self._marker = b"\n" + marker + b" "
        self.buffer = b""  # read, but behind the last message

    async def next(self) -> dict[str, Any]:
        """Return the next message of the stub, and tell the command line to go on when it runs."""
        while True:
            line = await self._line()
            if line.startswith((b"probe ", b"python ")):
                self.heard.word(line.decode("utf-8", "replace"))
                continue
            if line == RUNNING.encode():
                await self._pipe.write(_GO_ON)
                continue
            try:
                facts = json.loads(line)
            except (ValueError, RecursionError):
                facts = None
            if not isinstance(facts, dict):
                raise DeployError(
                    "the first message of the worker was garbled on the way",
                    evidence=line[:200].decode("utf-8", "replace"),
                    do="Look for something that rewrites the output of commands on the host, then try again.",
                )
            return facts

    def shown_noise(self) -> str:
        text = (self.heard.noise_text + self.buffer)[:SHOWN_NOISE]
        return neutralise(text.decode("utf-8", "replace").strip())

    async def _line(self) -> bytes:
        while (found := self.buffer.find(self._marker)) < 0:
            keep = len(self._marker) - 1
            drop = max(0, len(self.buffer) - keep)
            self._note_noise(self.buffer[:drop])
            self.buffer = self.buffer[drop:]
            await self._more()
        self._note_noise(self.buffer[:found])
        self.buffer = self.buffer[found + len(self._marker) :]
        while (end := self.buffer.find(b"\n")) < 0:
            if len(self.buffer) > _MAX_FACTS:
                raise DeployError("the first message of the worker has no end", do="Run again with --debug.")
            await self._more()
        line, self.buffer = self.buffer[:end], self.buffer[end + 1 :]
        return line

    def _note_noise(self, data: bytes) -> None:
        self.heard.skipped(data)
        if self.heard.noise > MAX_NOISE:
            raise DeployError(
                f"the login shell printed more than {MAX_NOISE // 1024 // 1024} MB before the worker could start",
                evidence=self.shown_noise(),
                do="Make the start-up files of the shell print nothing in non-interactive logins.",
            )

    async def _more(self) -> None:
        data = await self._pipe.read()
        if not data:
            raise _Ended
        self.buffer += data


async def _explain(transport: Transport, reader: _MarkerReader, pipe: Pipe) -> CcbError:
    try:
        async with asyncio.timeout(5):
            status = await pipe.exit_status()
    except TimeoutError:
        status = None
    silent = not (reader.heard.noise or reader.buffer)
    if silent and (error := transport.failure(status, neutralise(pipe.stderr_tail().strip()))):
        return error
    if status == NO_PYTHON_STATUS:
        found = ", ".join(dict.fromkeys(map(neutralise, reader.heard.pythons)))
        return NoPython(
            f"{transport.name} has no Python 3.9 or newer",
            evidence=f"Found: {found}" if found else "Found no Python at all.",
            do="Install Python 3.9 or newer on the host (no pip and no packages are needed), or put it on the PATH.",
        )
    if status == TERMINAL_STATUS:
        return DeployError(
            f"{transport.name} gives a terminal instead of a pipe, and has no stty to make it transparent",
            evidence=_evidence(reader, pipe),
            do="Leave out the option that asks for a terminal (--pty, -t).",
        )
    if status is None:
        return ConnectionLost(
            f"{transport.name} closed the connection before the worker started",
            evidence=_evidence(reader, pipe),
            do="Try again. If it happens again, read the host's SSH log.",
        )
    return _no_marker(transport, reader, f"{transport.name} did not run our command (exit code {status})", pipe)


def _no_marker(transport: Transport, reader: _MarkerReader, what: str, pipe: Pipe) -> DeployError | AuthFailed:
    evidence = _evidence(reader, pipe)
    if account_expired := expired(transport.name, evidence):
        return account_expired
    if re.search(r"cannot fork|resource temporarily unavailable", evidence, re.IGNORECASE):
        return too_many_processes(transport.name, evidence)
    if "No space left" in evidence or "Read-only file system" in evidence:
        return NoStorage(what, evidence=evidence, do="Free some space on the host.")
    return DeployError(
        what,
        evidence=evidence,
        do="The login shell must be able to run `sh`: "
        "check for ForceCommand, nologin, a restricted shell or an sftp-only account, "
        "and for a start-up file that ends the shell or waits for input.",
    )


def _no_input(transport: Transport, reader: _MarkerReader, pipe: Pipe) -> DeployError:
    from ccb.tunnel.transports.askpass import AskingTransport

    evidence = "\n".join(["The input of our command ended before anything was sent.", *_said(reader, pipe)])
    if isinstance(transport, AskingTransport):
        return DeployError(
            f"{transport.name} does not pass input on",
            evidence=evidence,
            do="Add the option for it (-i), or look for a start-up file that closes stdin (`exec </dev/null`).",
        )
    return DeployError(
        f"a start-up file of the login shell on {transport.name} closes stdin",
        evidence=evidence,
        do="Let it do so on terminals only: put `[ -t 0 ] || return` before that line (`exec </dev/null`, `exec <&-`).",
    )


def _evidence(reader: _MarkerReader, pipe: Pipe) -> str:
    said = _said(reader, pipe)
    return "It said: " + "\n".join(said) if said else "It said nothing."


def _said(reader: _MarkerReader, pipe: Pipe) -> list[str]:
    return [text for text in (reader.shown_noise(), neutralise(pipe.stderr_tail().strip())) if text]
