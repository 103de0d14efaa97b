"""Where the sockets are, and what crosses them: one JSON object in each direction, a line each."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from ccb.tunnel.openssh.kept_records import private
from ccb.tunnel.wire.dataclass import dataclass

from ..config.log import state_dir

Json = dict[str, Any]
Do = Literal["show", "revoke"]

MAX_LINE = 64 * 1024
_MAX_RUNTIME = 40  # bytes; the path of a socket has at most 104


@dataclass(frozen=True)
class ProxyState:
    """The auth proxy of one running ccb. `expires_s` are the seconds until its session may call no models any more,
    None without such a limit."""

    pid: int
    session: str
    host: str
    directory: str
    under_way: int
    revoked: bool
    expires_s: float | None


def socket_directory(environ: Mapping[str, str]) -> Path:
    """Return the directory of the sockets; it may not exist. ccbs with another directory for state use another one."""
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    short = runtime.startswith("/") and len(os.fsencode(runtime)) <= _MAX_RUNTIME
    name = hashlib.sha256(os.fsencode(state_dir(environ))).hexdigest()[:12]
    if short:
        return Path(runtime, f"ccb-{name}")
    return Path(f"/tmp/ccb-{os.getuid()}-{name}")  # noqa: S108 - `private` checks it


def sockets(environ: Mapping[str, str]) -> list[Path]:
    """Return the sockets that may belong to running ccbs."""
    directory = socket_directory(environ)
    return sorted(directory.glob("*.sock")) if private(directory) else []


def line_of(message: Mapping[str, object]) -> bytes:
    """Return a message as it crosses a socket."""
    return json.dumps(message).encode() + b"\n"


def parse_state(line: bytes) -> ProxyState | None:
    """Read the answer of a ccb; None if it is not one."""
    try:
        found: Json = json.loads(line)
        expires = found["expires_s"]
        return ProxyState(
            int(found["pid"]),
            str(found["session"]),
            str(found["host"]),
            str(found["directory"]),
            int(found["under_way"]),
            bool(found["revoked"]),
            None if expires is None else float(expires),
        )
    except (ValueError, KeyError, TypeError):
        return None
