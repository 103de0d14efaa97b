"""Ask the running ccbs of this machine."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping
from pathlib import Path

from .sockets import MAX_LINE, Do, ProxyState, line_of, parse_state, sockets

_ANSWER_S = 5.0


def running(environ: Mapping[str, str]) -> list[tuple[Path, ProxyState]]:
    """Return the auth proxies that run, with their sockets. Remove what a killed ccb has left."""
    found = [(path, ask(path, "show")) for path in sockets(environ)]
    return [(path, state) for path, state in found if state is not None]


def ask(path: Path, do: Do) -> ProxyState | None:
    """Let the ccb with this socket do something, and return its state afterwards; None if it does not answer."""
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as connection:
        connection.settimeout(_ANSWER_S)
        try:
            connection.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return None
        except OSError:
            return None
        try:
            connection.sendall(line_of({"do": do}))
            answer = b""
            while not answer.endswith(b"\n") and len(answer) <= MAX_LINE:
                if not (piece := connection.recv(MAX_LINE)):
                    break
                answer += piece
        except OSError:
            return None
    return parse_state(answer)
