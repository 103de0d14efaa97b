"""Keep an OpenSSH connection after the run that logged in, and find it again in later runs."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import fcntl
import hashlib
import json
import logging
import os
import shutil
import signal
import stat
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import ccb

from ..errors import Unreachable
from ..reconnecting import source_addresses
from ..secret import without_secrets
from ..ssh_config.config_files import ssh_says
from ..ssh_config.host_config import HostConfig, Identities
from ..ssh_config.ssh_target import SshTarget
from ..transports.askpass import askpass_in, peer_problem
from ..transports.command_transport import said_by
from ..transports.login_prompts import Prompts, tell_once
from ..transports.pipe import Transport
from ..wire.dataclass import dataclass
from . import connection_keeper
from .connection_keeper import has_slept, slept_s
from .openssh_transport import NO_COMMAND, OpenSshTransport, log_in
from .shared_master import LogIn, MasterTrial, client_command, client_env

log = logging.getLogger(__name__)

_UNDOUBTED_ANSWER_S = 5.0  # for the first answer over a kept connection that nothing speaks against

_AGENT_S = 2.0
_TOUCHED = (b"sk-ssh-ed25519@openssh.com", b"sk-ecdsa-sha2-nistp256@openssh.com")
_MAX_KEY = 64 * 1024


@dataclass(frozen=True)
class KeptRoute:
    """Which connection is kept: the options of every hop, for how long. `plain` logs in without keeping anything."""

    configs: Sequence[HostConfig]
    target: SshTarget
    keep_s: float
    plain: LogIn


async def share_kept(route: KeptRoute, prompts: Prompts) -> Transport:
    """Return a transport over the connection that is kept for this route, or log in and keep it; where nothing may be
    kept, log in with `route.plain`, and tell the person once."""
    directory = kept_directory(os.environ)
    record = directory / f"{key_of(route.configs, route.target.host)}.json"
    found = await asyncio.to_thread(read_record, record) if private(directory) else None
    slept, addresses = prompts.memory.kept_connections.get(record, (0.0, None))
    if found is None and addresses == source_addresses() and not has_slept(slept):
        return await route.plain()  # its end was wanted: this run must not bring it back when it reconnects
    prompts.memory.kept_connections[record] = slept_s(), source_addresses()
    if found is None or found.over or peer_problem(found.socket):
        return await _log_in(route, prompts, record, found)
    config = route.configs[-1]
    trial = MasterTrial(found.socket, route.target, config, prompts, lambda: _log_in(route, prompts, record, found))
    if found.addresses == source_addresses():
        trial.answer_s = _UNDOUBTED_ANSWER_S
    return trial


async def _log_in(route: KeptRoute, prompts: Prompts, record: Path, old: KeptConnection | None) -> Transport:
    if problem := await not_kept(route, record.parent):
        tell_once(prompts, f"The connection to {route.target.shown} is not kept: {problem}.")
        return await route.plain()
    if old is not None and not await asyncio.to_thread(old.stop_sharing):
        log.warning("the kept connection to %s does not end", old.host)
        return await route.plain()
    return await _keep(route, prompts, record)


async def not_kept(route: KeptRoute, directory: Path) -> str:
    """Return why no connection may be kept for this route, "" if one may be."""
    if shutil.which("ssh") is None:
        return "this machine has no OpenSSH client"
    if not private(directory, make=True):
        return f"other users can enter {directory}"
    for config in route.configs:
        keys = config.identities
        if keys.agent_keeps is not None and keys.agent_keeps[0]:
            return "its key asks for confirmation (AddKeysToAgent confirm)"
        if await asyncio.to_thread(_needs_touch, keys.files) or (not keys.only and await _agent_needs_touch(keys)):
            return "a key on a security key asks for a touch at each login (IdentitiesOnly leaves it out)"
    return ""


def _needs_touch(files: Sequence[Path]) -> bool:
    for path in files:
        for each in (path, path.with_name(path.name + ".pub")):
            try:
                with each.open("rb") as file:
                    text = file.read(_MAX_KEY)
            except OSError:
                continue
            if text.startswith(_TOUCHED) or any(name in _decoded(text) for name in _TOUCHED):
                return True
    return False


def _decoded(text: bytes) -> bytes:
    if not text.startswith(b"-----BEGIN OPENSSH PRIVATE KEY-----"):
        return b""
    try:
        return base64.b64decode(b"".join(text.split(b"\n")[1:-1]), validate=False)
    except ValueError:
        return b""


async def _agent_needs_touch(keys: Identities) -> bool:
    if keys.agent is None or shutil.which("ssh-add") is None:
        return False
    env = {**without_secrets(os.environ), "SSH_AUTH_SOCK": keys.agent}
    try:
        _, listed, _ = await said_by(["ssh-add", "-L"], env=env, deadline_s=_AGENT_S)
    except TimeoutError:
        return True
    return any(line.encode().startswith(_TOUCHED) for line in listed.splitlines())


async def _keep(route: KeptRoute, prompts: Prompts, record: Path) -> Transport:
    env, target, socket = without_secrets(os.environ), route.target, record.with_suffix("")
    configured = await ssh_says(["ssh", *NO_COMMAND, *target.flags(), "-G"], target.host, env)
    async with AsyncExitStack() as stack:
        askpass = await askpass_in(stack, prompts, env)
        user = route.configs[-1].user
        about = json.dumps({"host": target.shown, "user": user, "addresses": source_addresses()})
        keeper = [sys.executable, "-I", "-S", connection_keeper.__file__]
        keeper += [str(socket), str(record), str(route.keep_s), about]
        try:
            master = await log_in(target, socket, configured, askpass, prompts, runner=keeper)
        except Unreachable:
            if await asyncio.to_thread(_held, record) is None:
                raise
            log.info("another ccb is making the connection that is kept")
            return await route.plain()
        await master.let_go()
    minutes = max(1, round(route.keep_s / 60))
    tell_once(
        prompts,
        f"The connection to {target.shown} is kept for {minutes} minute{'s' if minutes > 1 else ''}: a password or a "
        f"code is asked once in that time. `ccb disconnect {target.shown}` ends it.",
    )
    return OpenSshTransport(client_command(socket, target, route.configs[-1].given), socket, env=client_env())


_MAX_RECORD = 64 * 1024
_POLL_S = 0.02
_GONE_S = 4.0


@dataclass(frozen=True)
class KeptConnection:
    """A kept connection: its wall-clock end `until`, and at the login the sleep and the addresses of this machine."""

    host: str
    socket: Path
    record: Path
    pid: int
    until: float
    slept: float
    addresses: tuple[str | None, ...]

    @property
    def left_s(self) -> float:
        return max(0.0, self.until - time.time())

    @property
    def over(self) -> bool:
        """Whether its time is over, or this machine has slept since. Its keeper may not have noticed yet."""
        return self.left_s == 0 or has_slept(self.slept)

    def stop_sharing(self) -> bool:
        """Let nobody else use it; what runs on it goes on. Return whether another may be made in its place."""
        return self._signal(signal.SIGUSR1)

    def end(self) -> bool:
        return self._signal(signal.SIGTERM)

    def _signal(self, number: int) -> bool:
        deadline = time.monotonic() + _GONE_S
        if read_record(self.record) is not None:  # its keeper lives, so the number is not another process's
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)
        while read_record(self.record) is not None:
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True


def kept_directory(env: Mapping[str, str]) -> Path:
    """Return the directory of kept connections; it may not exist. Its path is short enough for sockets."""
    runtime = env.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/") and len(os.fsencode(runtime)) <= 40:
        return Path(runtime, "ccb-kept")
    return Path(f"/tmp/ccb-kept-{os.getuid()}")  # noqa: S108 - `private` checks it


def private(directory: Path, *, make: bool = False) -> bool:
    """Return whether `directory` is there and nobody else can enter it. With `make`, make it first."""
    if make:
        with contextlib.suppress(OSError):
            directory.mkdir(mode=0o700)
    try:
        found = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not stat.S_IMODE(found.st_mode) & 0o077


def key_of(configs: Sequence[HostConfig], host: str) -> str:
    """Return the name of the connection: every option counts, on every hop, and ccb's version."""
    parts = [ccb.__version__, host, *(config.digest for config in configs)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def read_record(path: Path) -> KeptConnection | None:
    try:
        about = json.loads(_held(path) or b"{}")
        socket, addresses = path.with_suffix(""), tuple(about["addresses"])
        return KeptConnection(str(about["host"]), socket, path, about["pid"], about["until"], about["slept"], addresses)
    except (ValueError, KeyError, TypeError):
        return None


def _held(path: Path) -> bytes | None:
    """Return the content of a record that its keeper has locked, None for any other one."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file:
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return file.read(_MAX_RECORD)
        return None


def all_kept(env: Mapping[str, str], host: str | None = None) -> list[KeptConnection]:
    """Return the connections that are kept; with `host` (`[user@]host`), those to it."""
    directory = kept_directory(env)
    if not private(directory):
        return []
    found = [kept for path in sorted(directory.glob("*.json")) if (kept := read_record(path)) is not None]
    return [kept for kept in found if host in (None, kept.host, kept.host.rpartition("@")[2])]
