"""Lets a person see the auth proxies that run and revoke them (`/revoke`, `ccb proxy`), over a socket for each.
Sessions of a group reach each other over such sockets, too."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from ccb.tunnel.errors import UsageError
from ccb.tunnel.openssh.kept_connections import private
from ccb.tunnel.providers.provider import MAX_BODY
from ccb.tunnel.proxy.policy import MAX_CALLS, MAX_PER_MINUTE, Policy, RequestLimits
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.messages import as_dict
from ccb.tunnel.wire.model_facts import sent_name

from ..config.log import state_dir
from ..config.settings import Settings
from .call_ledger import CallPlace

if TYPE_CHECKING:
    from ccb.tunnel.proxy.auth_proxy import AuthProxy

    from ..session.remote_session import RemoteSession
    from ..telemetry.session_telemetry import SessionTelemetry
    from .audit import SessionAudit
    from .budgets import SessionAccounts

log = logging.getLogger(__name__)

_ANSWER_S = 20.0  # for a question that another session has to answer
_ASK_S = 5.0


def running(environ: Mapping[str, str]) -> list[tuple[Path, ProxyState]]:
    """Return the auth proxies that run, with their sockets. Remove what a killed ccb has left."""
    found = [(path, parse_state(ask(path, {"do": "show"}))) for path in sockets(environ, "*.sock")]
    return [(path, state) for path, state in found if state is not None]


def ask(path: Path, question: Json, limit_s: float = _ASK_S) -> Json | None:
    """Return the answer of the ccb with this socket; None if it does not answer."""
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as connection:
        connection.settimeout(limit_s)
        try:
            connection.connect(str(path))
            connection.sendall(json.dumps(question).encode() + b"\n")
            with connection.makefile("rb") as answer:
                return as_dict(json.loads(answer.readline(MAX_LINE)))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
        except (OSError, ValueError) as error:
            log.info("the ccb behind %s does not answer: %s", path, error)
    return None


@asynccontextmanager
async def answering(path: Path, answer: Callable[[Json], Awaitable[Json]]) -> AsyncIterator[None]:
    """Answer other programs of this user at a socket meanwhile. Raise OSError if it cannot be made."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_ANSWER_S):
                asked = as_dict(json.loads(await reader.readline() or b"{}"))
                writer.write(json.dumps(await answer(asked)).encode() + b"\n")
                await writer.drain()
        except (OSError, TimeoutError, ValueError) as error:
            log.info("a program asked badly at %s: %s", path.name, error)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    if not private(path.parent, make=True):
        raise PermissionError(f"{path.parent} is not private")
    with contextlib.ExitStack() as stack:
        server = await asyncio.start_unix_server(serve, path, limit=MAX_LINE)
        stack.callback(server.close)
        stack.callback(path.unlink, missing_ok=True)
        yield


@asynccontextmanager
async def control_server(
    environ: Mapping[str, str], state: Callable[[], ProxyState], revoke: Callable[[], None]
) -> AsyncIterator[None]:
    """Answer `ccb proxy` meanwhile. Where no socket can be made, a session goes on without."""

    async def answer(asked: Json) -> Json:
        if asked.get("do") == "revoke":
            revoke()
        return asdict(state())

    async with contextlib.AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(answering(new_socket(environ, ".sock"), answer))
        except OSError as error:
            log.warning("`ccb proxy` cannot reach this session: %s", error)
        yield


MAX_LINE = 64 * 1024
_MAX_RUNTIME = 40  # bytes; the path of a socket has at most 104


@dataclass(frozen=True)
class ProxyState:
    """The auth proxy of one running ccb. `expires_s` are the seconds until its session may call no models any more."""

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
    name = hashlib.sha256(os.fsencode(state_dir(environ))).hexdigest()[:12]
    if runtime.startswith("/") and len(os.fsencode(runtime)) <= _MAX_RUNTIME:
        return Path(runtime, f"ccb-{name}")
    return Path(f"/tmp/ccb-{os.getuid()}-{name}")  # noqa: S108 - `private` checks it


def new_socket(environ: Mapping[str, str], ending: str) -> Path:
    return socket_directory(environ) / f"{os.getpid()}-{os.urandom(4).hex()}{ending}"


def sockets(environ: Mapping[str, str], pattern: str) -> list[Path]:
    directory = socket_directory(environ)
    return sorted(directory.glob(pattern)) if private(directory) else []


def parse_state(answer: Json | None) -> ProxyState | None:
    try:
        return ProxyState(**answer or {})
    except TypeError:
        return None


class Warnings:
    """Takes what the proxy, its accounts and its audit have to tell the person, from before there is a session on."""

    def __init__(self) -> None:
        self._early: list[str] = []
        self._tell = self._early.append

    def __call__(self, text: str) -> None:
        self._tell(text)

    def go_to(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        while self._early:
            tell(self._early.pop(0))


class ProxyControl:
    """The auth proxy of a session with its accounts, its audit and its telemetry, which it does not own."""

    def __init__(
        self,
        proxy: AuthProxy,
        accounts: SessionAccounts,
        audit: SessionAudit,
        warnings: Warnings,
        telemetry: SessionTelemetry | None = None,
    ) -> None:
        self.accounts = accounts
        self._warnings = warnings
        self._proxy = proxy
        self._audit = audit
        self._telemetry = telemetry

    def serves(self, place: CallPlace, *, new: bool = False) -> None:
        """Note what the calls are made for from now on. `new`: the session has no history."""
        if new:
            self._audit.begins()
        self.accounts.place = self._audit.place = place

    def tell(self, session: RemoteSession, host: str) -> None:
        """Let `session` show what the proxy warns of, and follow it. `host` is what monitoring may know it by."""
        self._warnings.go_to(session.warn)
        session.watched_by(self._audit)
        if self._telemetry is not None:
            self._telemetry.follow(session, host)

    def state(self) -> ProxyState:
        grant, place = self._proxy.grant, self.accounts.place
        pid, under_way = os.getpid(), self._proxy.under_way
        return ProxyState(pid, place.session, place.host, place.directory, under_way, grant.revoked, grant.left_s())

    def revoke(self) -> None:
        """Let the session call no models any more, until it is connected by another run of ccb."""
        if not self._proxy.grant.revoked:
            self._proxy.revoke()
            self._audit.revoked()
            said = "This session may call no models any more (revoked). Leave, and resume it, to grant it again."
            self._warnings(said)


def check_allowed(model: str, settings: Settings, host: str) -> None:
    """Raise UsageError for a model that the settings do not allow on a host: no call of it would pass."""
    limits = call_policy(settings, host).requests
    if not limits.allows(sent_name(model)):
        raise UsageError(
            f"the settings of this machine do not allow the model {model} on {host}",
            evidence=f"Allowed are {', '.join(limits.models)}.",
            do="Choose another one with --model, or change modelCalls.models.",
        )


def call_policy(settings: Settings, host: str) -> Policy:
    calls = settings.modelCalls.of_host(host)
    per_minute = calls.perMinute or MAX_PER_MINUTE
    return Policy(
        max_body=calls.maxRequestBytes or MAX_BODY,
        max_answer=calls.maxResponseBytes,
        lasts_s=None if calls.expiresHours is None else calls.expiresHours * 3600.0,
        requests=RequestLimits(tuple(calls.models or ()), calls.maxOutputTokens),
        max_calls=calls.maxConcurrent or MAX_CALLS,
        max_burst=per_minute,
        max_per_minute=per_minute,
    )
