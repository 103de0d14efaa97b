"""What the last login to each host needed, kept between runs. It holds no secret."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import logging
import os
import stat
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from ..wire.dataclass import dataclass

if TYPE_CHECKING:
    from ..ssh_config.host_config import HostConfig


log = logging.getLogger(__name__)

ALWAYS_WAIT = -1  # the number of the first channel where a command that did not wait for it ended the connection

_MAX_BYTES = 4096


@dataclass(frozen=True)
class PastLogin:
    """The last login to a host, for which one key alone was enough. `host_key` and `key` are fingerprints, `before`
    stands for the keys that were refused before, `channel` is the number of the first channel, or ALWAYS_WAIT."""

    host_key: str
    server: str
    key: str
    algorithm: str
    signature: str
    before: str = ""
    channel: int | None = None


class PastLogins:
    """The files of `directory`, one for each user, host and port. Every method blocks, and none raises."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def last(self, config: HostConfig) -> PastLogin | None:
        try:
            fd = os.open(self._path(config), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        with os.fdopen(fd, "rb") as file:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
                return None
            try:
                login = PastLogin(**json.loads(file.read(_MAX_BYTES)))
                texts = (login.host_key, login.server, login.key, login.algorithm, login.signature, login.before)
                known = login.channel is None or type(login.channel) is int
                if not known or not all(isinstance(text, str) for text in texts):
                    raise ValueError("a value of another type")
                return login
            except (OSError, ValueError, TypeError, RecursionError) as error:
                log.info("a remembered login cannot be read: %s", error)
                return None

    def remember(self, config: HostConfig, login: PastLogin) -> None:
        path = self._path(config)
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "w", encoding="utf-8") as file:
                json.dump(asdict(login), file)
        except OSError as error:
            log.info("the login cannot be remembered: %s", error)

    def forget(self, config: HostConfig) -> None:
        with contextlib.suppress(OSError):
            self._path(config).unlink(missing_ok=True)

    def _path(self, config: HostConfig) -> Path:
        # A digest, because people who let ssh hash their known_hosts want no list of hosts.
        place = json.dumps([config.user, config.hostname, config.port, config.trust.alias])
        return self._directory / f"{hashlib.sha256(place.encode()).hexdigest()[:32]}.json"


def fingerprint(public_data: bytes) -> str:
    return "SHA256:" + base64.b64encode(hashlib.sha256(public_data).digest()).decode().rstrip("=")


def standing_for(public: Sequence[bytes]) -> str:
    """Return a text that stands for these public keys in this order, "" for none."""
    return fingerprint(b"".join(public)) if public else ""
