"""Reads the keys of a login and puts them in the order in which ssh offers them.

A locked key is offered by its public half. Its passphrase is asked for only when the server would accept the key.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import copy
import hashlib
import itertools
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import asyncssh
from asyncssh.packet import PacketDecodeError, SSHPacket

from ..login.prompter import LoginMemory
from ..wire.dataclass import dataclass

log = logging.getLogger(__name__)

_MAGIC = b"openssh-key-v1\0"

AskPassphrase = Callable[[str, int], Awaitable[str | None]]
"""Takes the path of the key and the number of the attempt. Returns the passphrase, None if the person gave up."""


@dataclass(frozen=True)
class KeyFile:
    """An identity file, or only its public half.

    `key` is None if the private key is locked or missing; `public` is None if it is unknown.
    """

    path: Path
    data: bytes
    key: asyncssh.SSHKey | None
    public: asyncssh.SSHKey | None


def read_key_files(paths: Sequence[Path]) -> list[KeyFile]:
    """Read the identity files. Blocking. Skip missing ones, as ssh does.

    A file may be a public key whose private half the agent has.
    """
    return [found for path in dict.fromkeys(paths) if (found := _read_key_file(path)) is not None]


def unusable_keys(paths: Sequence[Path], found: Sequence[KeyFile]) -> list[str]:
    """Return a sentence for each identity file that gives no key. Blocking. Default files (~/.ssh/id_*) may be
    missing."""
    there = {file.path for file in found}
    return [f"{path}: {why}" for path in dict.fromkeys(paths) if path not in there and (why := _why_unusable(path))]


def _why_unusable(path: Path) -> str:
    try:
        path.read_bytes()
    except FileNotFoundError as error:
        return "" if path.parent.name == ".ssh" and path.name.startswith("id_") else str(error.strerror)
    except OSError as error:
        return str(error.strerror)
    return "not a private key that can be read"


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
    """Return the public key inside an encrypted private key in OpenSSH's format, None if it has none."""
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
    """Read the user certificates among `paths`. Blocking. Skip files that are missing or are no certificates."""
    found = []
    for path in dict.fromkeys(paths):
        try:
            found.append(asyncssh.read_certificate(path))
        except FileNotFoundError:
            continue
        except (OSError, asyncssh.KeyImportError, ValueError) as error:
            log.warning("the certificate %s cannot be read: %s", path, error)
    return found


def certificates_among(agent: Sequence[asyncssh.SSHKeyPair]) -> list[asyncssh.SSHCertificate]:
    """Return the certificates that an agent holds. Skip those of kinds that asyncssh cannot read."""
    found = []
    for pair in agent:
        if pair.has_cert:
            with contextlib.suppress(asyncssh.KeyImportError, ValueError):
                text = pair.algorithm + b" " + base64.b64encode(pair.public_data)
                found.append(asyncssh.import_certificate(text))
    return found


def unlock(data: bytes, passphrase: str) -> asyncssh.SSHKey | None:
    """Return the private key, None if the passphrase is wrong. Blocking, and slow by design."""
    try:
        return asyncssh.import_private_key(data, passphrase)
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError):
        return None


async def unlocked(data: bytes, path: Path, ask: AskPassphrase, memory: LoginMemory) -> asyncssh.SSHKey | None:
    """Return the private key in `data` from `memory`, or ask for its passphrase until it is right.

    None: the person gave up.
    """
    name = _name_in_memory(data)
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


def is_unlocked(pair: asyncssh.SSHKeyPair, memory: LoginMemory) -> bool:
    """Return whether `pair` signs without a passphrase, perhaps because `memory` has its key."""
    return not isinstance(pair, LockedKeyPair) or _name_in_memory(pair.file.data) in memory.keys


def _name_in_memory(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


class LockedKeyPair(asyncssh.SSHKeyPair):
    """A locked key that is unlocked only to sign. `refused` is called if the person does not unlock it."""

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
        self.file = file
        self._unlock = unlock
        self._refused = refused

    async def sign_async(self, data: bytes) -> bytes:
        """Sign `data`. asyncssh calls this for a key that may take time.

        ValueError makes it go on with the next key.
        """
        key = await self._unlock(self.file)
        if key is None or key.public_data != self.key_public_data:
            self._refused(self.file.path)
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
    """Return the keys in the order of ssh, none of them twice: a server counts every attempt.

    First come certificates, then configured keys that the agent has, its other keys (not with `identities_only`), then
    files. `configured` are the public halves of the configured keys.
    """
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
