"""The doctor's checks of a host: the reports of its login shell and its worker, then the measurements over their
channel."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal

from ccb.deploy.bootstrap import launch
from ccb.deploy.bootstrap_command import Heard
from ccb.deploy.bundle import Bundle
from ccb.tunnel.errors import CcbError, NoPython, ProtocolError
from ccb.tunnel.plain_text import neutralise
from ccb.tunnel.transports.pipe import Pipe, Transport

from ..connect.session_list import ReportRow, Text, row_of
from .connection import rights_findings
from .findings import HOST, Finding, State, error_finding
from .measurements import measured_findings
from .worker_channel import WorkerChannel

_MAX_CHECKS = 1000
_SHOWN_NOISE = 200
_SSHD_MESSAGE = "Could not chdir to home directory"


class CheckRow(ReportRow):
    """One check that the worker made on the host."""

    name: Text
    state: Literal["ok", "warn", "block", "info"]
    found: Text = ""
    fix: Text = ""


class ReadyRow(ReportRow):
    """Says that the worker has made all checks, so measuring may begin. `socket` is the path of a socket it listens
    on."""

    socket: Text = ""


async def host_findings(transport: Transport, bundle: Bundle) -> AsyncIterator[Finding]:
    """Yield every finding about the host, even if the worker cannot run there. A CcbError becomes a finding."""
    heard = Heard()
    try:
        launched = await launch(transport, {"command": "doctor", "keep": False}, bundle, heard=heard)
    except CcbError as error:
        for finding in _shell_findings(heard, used=""):
            yield finding
        yield error_finding(HOST, "Python" if isinstance(error, NoPython) else "worker", error)
        return
    channel = WorkerChannel(transport, launched.pipe, launched.rest)
    try:
        for finding in _shell_findings(heard, used=str(launched.facts.get("exe") or "")):
            yield finding
        yield _noise_finding(heard, launched.pipe)
        if launched.uploaded:
            yield Finding(
                HOST,
                "deployment",
                State.INFO,
                "the worker was not on the host: it was sent for this check and is not kept",
            )
        count = 0
        while (report := await channel.report("check", "ready")).kind == "check":
            row = row_of(CheckRow, report.body, transport.name)
            yield Finding(HOST, row.name, State(row.state), row.found, row.fix)
            count += 1
            if count > _MAX_CHECKS:
                raise ProtocolError(f"{transport.name} sends too many reports")
        socket_path = row_of(ReadyRow, report.body, transport.name).socket
        for finding in await measured_findings(channel):
            yield finding
        for finding in await rights_findings(transport, socket_path):
            yield finding
    except CcbError as error:
        yield error_finding(HOST, "worker", error)
    finally:
        await channel.close()


def _shell_findings(heard: Heard, used: str) -> list[Finding]:
    """Yield what the login shell reported before any Python ran. `used` is the Python that runs the worker."""
    facts = heard.facts
    found = []
    if facts:
        text = "\n".join(f"{name} {facts[name]}" for name in ("umask", "path") if facts.get(name))
        if not used:
            text = "\n".join(f"{name} {value}" for name, value in facts.items())
        found.append(Finding(HOST, "shell", State.INFO, neutralise(text)))
    pythons = list(dict.fromkeys(neutralise(each) for each in heard.pythons))
    lines = [f"{each}{' (used)' if each.rpartition(' ')[0] == used else ''}" for each in pythons]
    if used:
        found.append(Finding(HOST, "Pythons", State.OK, "\n".join(lines)))
    elif lines:
        found.append(Finding(HOST, "Pythons", State.INFO, "\n".join(lines)))
    return found


def _noise_finding(heard: Heard, pipe: Pipe) -> Finding:
    """Return a finding about output that the login shell prints before the worker starts."""
    lines = pipe.stderr_tail().splitlines(keepends=True)
    errors = "".join(line for line in lines if not line.startswith(_SSHD_MESSAGE))
    text = f"{heard.noise} bytes on stdout, {len(errors.encode())} on stderr before the worker"
    if not heard.noise and not errors:
        return Finding(HOST, "shell noise", State.OK, text)
    texts = (heard.noise_text.decode("utf-8", "replace"), errors)
    start = "\n".join(neutralise(each.strip()[:_SHOWN_NOISE]) for each in texts if each.strip())
    fix = "Let start-up files print only in interactive shells: ccb copes with it, other programs over ssh do not."
    return Finding(HOST, "shell noise", State.WARN, f"{text}\n{start}", fix)
