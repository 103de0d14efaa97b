"""The socket of a ccb that drives a session."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Self

from ccb.tunnel.openssh.kept_records import private

from .sockets import MAX_LINE, ProxyState, line_of, socket_directory

log = logging.getLogger(__name__)

_READ_S = 5.0


class ControlServer:
    """Answers `ccb proxy` while its context is open. `state` tells what to show, `revoke` ends all model calls.

    A machine on which no such socket can be made has a session all the same.
    """

    def __init__(self, environ: Mapping[str, str], state: Callable[[], ProxyState], revoke: Callable[[], None]) -> None:
        self._directory = socket_directory(environ)
        self._state = state
        self._revoke = revoke
        self._path: Path | None = None
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        path = self._directory / f"{os.getpid()}-{id(self):x}.sock"
        if not private(self._directory, make=True):
            log.warning("%s is not private: `ccb proxy` cannot reach this session", self._directory)
            return self
        try:
            self._server = await asyncio.start_unix_server(self._serve, path, limit=MAX_LINE)
        except OSError as error:
            log.warning("`ccb proxy` cannot reach this session: %s", error)
        else:
            self._path = path
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_READ_S):
                asked = json.loads(await reader.readline() or b"{}")
                if asked.get("do") == "revoke":
                    self._revoke()
                writer.write(line_of(asdict(self._state())))
                await writer.drain()
        except (OSError, TimeoutError, ValueError, AttributeError) as error:
            log.info("a program asked `ccb proxy` badly: %s", error)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
