"""Read known_hosts as ssh does, and judge the key that a host shows."""

from __future__ import annotations

import base64
import contextlib
import hmac
import logging
import os
import secrets
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import HostKeyError
from ..wire.dataclass import dataclass

if TYPE_CHECKING:
    import asyncssh


log = logging.getLogger(__name__)

_MARKERS = ("@revoked", "@cert-authority")
_KRL = b"SSHKRL\n\0"


@dataclass(frozen=True)
class HostKeyInfo:
    """An unknown host key, which would be written to `store`. `others` are places (file:line) of other kinds."""

    host: str
    port: int
    algorithm: str
    fingerprint: str
    store: Path
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class KnownKeys:
    """What known_hosts says about one host. `places` (file:line) and `kinds` are of keys stored for exactly this host
    and port. A key stored without a port is trusted on other ports too, unless those have a key of its kind; a
    different key there does not count as changed. `unread` has a sentence for each file that cannot be read."""

    trusted: tuple[asyncssh.SSHKey, ...]
    authorities: tuple[asyncssh.SSHKey, ...]
    revoked: tuple[asyncssh.SSHKey, ...]
    places: tuple[str, ...]
    kinds: tuple[str, ...]
    unread: tuple[str, ...] = ()


def pattern_for(host: str, port: int) -> str:
    return host if port == 22 else f"[{host}]:{port}"


def look_up(files: Sequence[Path], host: str, port: int) -> KnownKeys:
    names = [pattern_for(host, port)] if port == 22 else [pattern_for(host, port), host]
    trusted: list[asyncssh.SSHKey] = []
    without_port: list[asyncssh.SSHKey] = []
    marked: dict[str, list[asyncssh.SSHKey]] = {marker: [] for marker in _MARKERS}
    places: list[str] = []
    unread: list[str] = []
    for place, marker, entry in _entries(files, unread):
        name, keys = next(((name, keys) for name in names if (keys := _keys_for(entry, name))), ("", []))
        if marker:
            marked[marker] += keys
        elif name == names[0]:
            trusted += keys
            places += [place] * len(keys)
        else:
            without_port += keys
    kinds = tuple(key.get_algorithm() for key in trusted)
    trusted += [key for key in without_port if key.get_algorithm() not in kinds]
    authorities, revoked = tuple(marked["@cert-authority"]), tuple(marked["@revoked"])
    return KnownKeys(tuple(trusted), authorities, revoked, tuple(places), kinds, tuple(unread))


def read_revoked(files: Sequence[Path]) -> tuple[asyncssh.SSHKey, ...]:
    """Return the keys of RevokedHostKeys. Raise HostKeyError if a file cannot be read: then no host is trusted."""
    import asyncssh

    keys = []
    for path in files:
        try:
            data = path.read_bytes()
        except OSError as error:
            raise HostKeyError(
                f"the revoked host keys in {path} cannot be read", evidence=str(error), do="Make the file readable."
            ) from error
        if data.startswith(_KRL):
            raise HostKeyError(
                f"the revoked host keys in {path} cannot be read",
                evidence="It is a key revocation list (KRL), which ccb's own SSH does not know.",
                do="Connect with ssh itself: --transport ssh.",
            )
        for line in data.decode("utf-8", "replace").splitlines():
            with contextlib.suppress(asyncssh.KeyImportError):
                keys.append(asyncssh.import_public_key(line))
    return tuple(keys)


def _entries(files: Sequence[Path], unread: list[str]) -> Iterator[tuple[str, str, str]]:
    """Yield place (`file:line`), marker or "", and rest of each line; add unreadable files to `unread`."""
    for path in files:
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            log.warning("the known hosts in %s cannot be read: %s", path, error)
            unread.append(f"{path} cannot be read, so the keys in it are not used: {error.strerror}.")
            continue
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            marker = words.pop(0) if words[0].startswith("@") else ""
            if not marker or marker in _MARKERS:
                yield f"{path}:{number}", marker, " ".join(words)


def _keys_for(entry: str, name: str) -> list[asyncssh.SSHKey]:
    import asyncssh

    patterns, _, _ = entry.partition(" ")
    try:
        if patterns.startswith("|"):
            _, _, salt, digest = patterns.split("|")
            if not hmac.compare_digest(base64.b64decode(digest), _hash_of(name, base64.b64decode(salt))):
                return []
        elif not set("*?!/") & set(patterns) and name not in (*patterns.lower().split(","), *patterns.split(",")):
            return []
        return list(asyncssh.import_known_hosts(entry + "\n").match(name, "", None)[0])
    except (ValueError, asyncssh.KeyImportError):
        return []


def _hash_of(name: str, salt: bytes) -> bytes:
    """Return the hash of HashKnownHosts. The format prescribes HMAC-SHA1."""
    return hmac.new(salt, name.encode(), "sha1").digest()


def judge(known: KnownKeys, shown: asyncssh.SSHKey, host: str, port: int, store: Path) -> HostKeyInfo:
    """Return the question about an unknown key. Raise HostKeyError if it is revoked, or if another one of its kind is
    known: it has changed."""
    fingerprint = shown.get_fingerprint()
    algorithm = shown.get_algorithm()
    if shown in known.revoked:
        raise revoked(host, f"{algorithm} {fingerprint} is marked as revoked.")
    changed = [place for place, kind in zip(known.places, known.kinds, strict=True) if kind == algorithm]
    if changed:
        pattern, file = shlex.quote(pattern_for(host, port)), shlex.quote(changed[0].rpartition(":")[0])
        raise HostKeyError(
            f"the host key of {host} has changed: somebody may be intercepting the connection",
            evidence=f"It shows {algorithm} {fingerprint}; another one is stored at {', '.join(changed)}.",
            do=f"If the host was really reinstalled: ssh-keygen -f {file} -R {pattern}",
        )
    return HostKeyInfo(host, port, algorithm, fingerprint, store, known.places)


def revoked(host: str, said: str) -> HostKeyError:
    return HostKeyError(
        f"the host key of {host} is revoked", evidence=said, do="Do not connect. Ask its administrator for the new key."
    )


def remember(store: Path, host: str, port: int, key: asyncssh.SSHKey, *, hashed: bool) -> None:
    """Append `key` to the file `store`, which is made with the modes that ssh expects. Raise OSError."""
    entry = pattern_for(host, port)
    if hashed:
        salt = secrets.token_bytes(20)
        digest = _hash_of(entry, salt)
        entry = f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"
    line = f"{entry} {key.export_public_key('openssh').decode().strip()}\n"
    store.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(store, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(fd, "r+b") as file:
        size = file.seek(0, os.SEEK_END)
        if size:
            file.seek(size - 1)
            if file.read(1) != b"\n":
                line = "\n" + line
        file.write(line.encode())
