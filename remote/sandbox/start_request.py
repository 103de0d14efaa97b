"""The request with which a zygote starts a command, and the reading of answers."""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Mapping, Sequence
from typing import IO

from .rules import CageKind, CageRules

_BLOCK = 1 << 16
_MAX_REPORT = 1 << 16
_NO_RULES = CageRules(CageKind.READ_ONLY, (), (), ())


def start_request(
    argv: Sequence[str],
    cwd: str,
    env: Mapping[str, str],
    rules: CageRules | None,
    temporary: str,
    abi: int,
    program: str | None = None,
) -> dict[str, object]:
    """Return what the zygote is asked, so that it starts a command, without a cage if there are no rules. The `program`
    is by default what the first word names. Raise FileNotFoundError if there is no such program."""
    import shutil

    program = program or (argv[0] if "/" in argv[0] else shutil.which(argv[0], path=env.get("PATH", os.defpath)))
    if program is None:
        raise FileNotFoundError(2, os.strerror(2), argv[0])
    whole = {**env, **dict.fromkeys(("TMPDIR", "TMP", "TEMP"), temporary)} if temporary else dict(env)
    caged, rules = rules is not None, rules or _NO_RULES
    return {
        "ask": "start",
        "caged": caged,
        "abi": abi,
        "program": os.fsencode(program),
        "argv": [os.fsencode(each) for each in argv],
        "cwd": os.fsencode(cwd),
        "environment": [os.fsencode(part) for pair in whole.items() for part in pair],
        "workspace": rules.kind is CageKind.WORKSPACE,
        "read": [os.fsencode(each) for each in rules.read],
        "write": [os.fsencode(each) for each in rules.write],
        "execute": [os.fsencode(each) for each in rules.execute],
        "protected": [os.fsencode(each) for each in rules.protected],
        "linked": [os.fsencode(each) for each in rules.linked],
        "temporary": os.fsencode(temporary),
        "network": rules.network,
        "own": rules.own,
    }


def read_report(report: IO[bytes], seconds: float, most: int = _MAX_REPORT) -> bytes:
    """Return what a process reports that could not become the command, b"" if it could. Raise socket.timeout, also for
    more than `most` bytes."""
    until = time.monotonic() + seconds
    poll = select.poll()
    poll.register(report, select.POLLIN)
    said = b""
    while len(said) <= most and poll.poll(max(0, until - time.monotonic()) * 1000):
        data = report.read(_BLOCK)
        if not data:
            return said
        said += data
    raise socket.timeout


def read_exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise EOFError("it has ended")
        data += more
    return bytes(data)
