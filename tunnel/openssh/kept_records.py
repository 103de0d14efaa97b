"""The connections that are kept for later runs: one socket and one record for each, in a private directory."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import signal
import stat
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import ccb

from ..ssh_config.host_config import HostConfig
from ..wire.dataclass import dataclass
from .keeper import has_slept

_MAX_RECORD = 64 * 1024
_POLL_S = 0.02
_GONE_S = 4.0


@dataclass(frozen=True)
class Kept:
    """A connection that is kept. `host` is the name that the person used, `until` the wall-clock time of its end.

    `slept` and `addresses` are the seconds that this machine had slept and the addresses that it had at the login.
    """

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
        """End it with all that runs on it. Return whether it has ended."""
        return self._signal(signal.SIGTERM)

    def _signal(self, number: int) -> bool:
        """Blocking: wait until its keeper has removed the record."""
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
    """Return the name of the connection that these options make: every option counts, on every hop, and ccb's
    version."""
    parts = [ccb.__version__, host, *(config.digest for config in configs)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def read_record(path: Path) -> Kept | None:
    """Return the connection that the record is about, None if its keeper has ended or is still logging in."""
    try:
        about = json.loads(_held(path) or b"{}")
        socket, addresses = path.with_suffix(""), tuple(about["addresses"])
        return Kept(str(about["host"]), socket, path, about["pid"], about["until"], about["slept"], addresses)
    except (ValueError, KeyError, TypeError):
        return None


def has_keeper(path: Path) -> bool:
    """Return whether a keeper has the record, also one that is still logging in."""
    return _held(path) is not None


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


def all_kept(env: Mapping[str, str], host: str | None = None) -> list[Kept]:
    """Return the connections that are kept; with `host` (`[user@]host`), those to it."""
    directory = kept_directory(env)
    if not private(directory):
        return []
    found = [kept for path in sorted(directory.glob("*.json")) if (kept := read_record(path)) is not None]
    return [kept for kept in found if host is None or _same_host(kept.host, host)]


def _same_host(kept: str, asked: str) -> bool:
    return kept == asked or ("@" not in asked and kept.rpartition("@")[2] == asked)
