"""The keys of a login: files and their certificates, keys of the agent, in the order in which ssh offers them.

A locked key is offered by its public half; its passphrase is asked for only when the server would take the key.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import itertools
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import asyncssh
from asyncssh.packet import PacketDecodeError, SSHPacket

from ..login.prompter import LoginMemory

log = logging.getLogger(__name__)

_MAGIC = b"openssh-key-v1\0"

AskPassphrase = Callable[[str, int], Awaitable[str | None]]
"""Path of the key and number of the attempt; None: gave up."""


@dataclass(frozen=True)
class KeyFile:
    """An identity file that exists. `key` is None when it is locked or not there, `public` when that is not known."""

    path: Path
    data: bytes
    key: asyncssh.SSHKey | None
    public: asyncssh.SSHKey | None


def read_key_files(paths: Sequence[Path]) -> list[KeyFile]:
    """The identity files; blocking. Missing ones are passed over, as ssh does; one may be a public key whose private half the
    agent holds."""
    return [found for path in dict.fromkeys(paths) if (found := _read_key_file(path)) is not None]


def unusable_keys(paths: Sequence[Path], found: Sequence[KeyFile]) -> list[str]:
    """Which of the identity files give no key and why; blocking. Those that ssh tries by itself may be missing."""
    there = {file.path for file in found}
    return [f"{path}: {why}" for path in dict.fromkeys(paths) if path not in there and (why := _why_unusable(path))]


def _why_unusable(path: Path) -> str:
    try:
        path.read_bytes()
    except FileNotFoundError as error:
        return "" if path.parent.name == ".ssh" and path.name.startswith("id_") else str(error.strerror)
    except OSError as error:
        return str(error.strerror)
    return "no private key that can be read"


def _read_key_file(path: Path) -> KeyFile | None:
    public = _public_key(path.with_name(path.name + ".pub"))
    try:
        data = path.read_bytes()
    except OSError:
        return KeyFile(path, b"", None, public) if public is not None else None
    try:
        key = asyncssh.import_private_key(data)
        return KeyFile(path, data, key, key)
    except asyncssh.KeyImportError as error:
        if "passphrase" in str(error).lower() or "encrypted" in str(error).lower():
            return KeyFile(path, data, None, _public_half(data) or public)
        own = _public_key(path) or public
        if own is None:
            log.warning("the key %s cannot be read: %s", path, error)
        return KeyFile(path, b"", None, own) if own is not None else None


def _public_key(path: Path) -> asyncssh.SSHKey | None:
    try:
        return asyncssh.read_public_key(path)
    except (OSError, asyncssh.KeyImportError, ValueError):
        return None


def _public_half(data: bytes) -> asyncssh.SSHKey | None:
    """The public key that an encrypted private key in OpenSSH's format shows."""
    import base64

    lines = data.decode("ascii", "replace").split("-----")
    if len(lines) < 3 or "OPENSSH PRIVATE KEY" not in lines[1]:
        return None
    try:
        packet = SSHPacket(base64.b64decode(lines[2]).removeprefix(_MAGIC))
        for _ in ("cipher", "kdf", "kdf options"):
            packet.get_string()
        packet.get_uint32()
        blob = base64.b64encode(packet.get_string())
        kind = SSHPacket(base64.b64decode(blob)).get_string()
        return asyncssh.import_public_key(kind + b" " + blob)
    except (ValueError, PacketDecodeError, asyncssh.KeyImportError):
        return None


def read_certificates(paths: Sequence[Path]) -> list[asyncssh.SSHCertificate]:
    """Certificates of users among `paths`; blocking. What is missing or none is passed over."""
    found = []
    for path in dict.fromkeys(paths):
        try:
            found.append(asyncssh.read_certificate(path))
        except FileNotFoundError:
            continue
        except (OSError, asyncssh.KeyImportError, ValueError) as error:
            log.warning("the certificate %s cannot be read: %s", path, error)
    return found


def unlock(data: bytes, passphrase: str) -> asyncssh.SSHKey | None:
    """The key, None when the passphrase is wrong; blocking, takes its time by design."""
    try:
        return asyncssh.import_private_key(data, passphrase)
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError):
        return None


async def unlocked(data: bytes, path: Path, ask: AskPassphrase, memory: LoginMemory) -> asyncssh.SSHKey | None:
    """The key in `data`: from before, or with a passphrase that is asked for until `ask` gives none. None: gave up."""
    name = hashlib.sha256(data).digest()
    if name in memory.keys:
        return memory.keys[name]
    for attempt in itertools.count(1):
        passphrase = await ask(str(path), attempt)
        if passphrase is None:
            break
        key = await asyncio.to_thread(unlock, data, passphrase)
        if key is not None:
            memory.keys[name] = key
            return key
    return None


class LockedKeyPair(asyncssh.SSHKeyPair):
    """A key whose private half is needed, and so asked for, only to sign. `refused` is called when it was not given."""

    _key_type = "local"

    def __init__(
        self,
        file: KeyFile,
        public: asyncssh.SSHKey,
        unlock: Callable[[KeyFile], Awaitable[asyncssh.SSHKey | None]],
        refused: Callable[[Path], None],
    ) -> None:
        kinds = public.sig_algorithms
        super().__init__(public.algorithm, public.algorithm, kinds, kinds, public.public_data, None)
        self._file = file
        self._unlock = unlock
        self._refused = refused

    async def sign_async(self, data: bytes) -> bytes:
        """asyncssh's hook for keys that take their time. ValueError makes it go on with the next key."""
        key = await self._unlock(self._file)
        if key is None or key.public_data != self.key_public_data:
            self._refused(self._file.path)
            raise ValueError("the key was not unlocked")
        return key.sign(data, self.sig_algorithm)


def in_order(
    agent: Sequence[asyncssh.SSHKeyPair],
    files: Sequence[asyncssh.SSHKeyPair],
    configured: Sequence[bytes],
    certificates: Sequence[asyncssh.SSHCertificate],
    *,
    identities_only: bool,
) -> list[asyncssh.SSHKeyPair]:
    """As ssh does: certificates, keys of the agent that are configured (public halves), its other ones unless only configured
    ones count, then files. No key twice: a server counts every attempt."""
    known = [pair for pair in agent if pair.public_data in configured]
    others = [] if identities_only else [pair for pair in agent if pair.public_data not in configured]
    held = {pair.public_data for pair in agent}
    plain = [*known, *others, *(pair for pair in files if pair.public_data not in held)]
    certified = []
    for certificate in certificates:
        for pair in [*agent, *files]:
            if pair.public_data == certificate.key.public_data:
                wearing = copy.copy(pair)
                wearing.set_certificate(certificate)
                certified.append(wearing)
                break
    shown = {pair.public_data for pair in certified}
    return certified + [pair for pair in plain if pair.public_data not in shown]
