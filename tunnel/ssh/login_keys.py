"""Load keys from files and the agent, and offer them in the order of ssh.

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
from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path

import asyncssh
from asyncssh.packet import PacketDecodeError, SSHPacket

from ..plain_text import neutralise
from ..ssh_config.host_config import HostConfig
from ..transports.login_prompts import LoginMemory, Prompts
from ..wire.dataclass import dataclass
from .past_logins import PastLogin, fingerprint, standing_for

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


def read_key_files(paths: Sequence[Path]) -> tuple[list[KeyFile], list[str]]:
    """Read the identity files. Blocking. Return the keys, and a sentence for each file that gives none.

    A file may be a public key whose private half the agent has. Default files (~/.ssh/id_*) may be missing.
    """
    found, unusable = [], []
    for path in dict.fromkeys(paths):
        key = _read_key_file(path)
        if isinstance(key, KeyFile):
            found.append(key)
        elif key:
            unusable.append(f"{path}: {key}")
    return found, unusable


def _read_key_file(path: Path) -> KeyFile | str:
    """Return the key, or why there is none, "" for a default file that is missing."""
    public = _public_key(path.with_name(path.name + ".pub"))
    try:
        data = path.read_bytes()
    except OSError as error:
        if public is not None:
            return KeyFile(path, b"", None, public)
        is_default = path.parent.name == ".ssh" and path.name.startswith("id_")
        return "" if is_default and isinstance(error, FileNotFoundError) else str(error.strerror)
    try:
        key = asyncssh.import_private_key(data)
        return KeyFile(path, data, key, key)
    except asyncssh.KeyImportError as error:
        if "passphrase" in str(error).lower() or "encrypted" in str(error).lower():
            return KeyFile(path, data, None, _public_half(data) or public)
        own = _public_key(path) or public
        if own is not None:
            return KeyFile(path, b"", None, own)
        log.warning("the key %s cannot be read: %s", path, error)
        return "not a private key that can be read"


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


AGENT_QUIET_S = 3.0
"""Seconds after which the person is told that ccb waits for the agent. It may ask them something first, or hang."""


class LoginKeys:
    """Owns the connection to the agent; `close` ends it.

    `asked` is set once a passphrase was asked for. `offered` are the public halves of the keys, once their order is
    known.
    """

    def __init__(self, config: HostConfig, prompts: Prompts) -> None:
        self.asked = False
        self.offered: list[bytes] = []
        self._user = config.user
        self._identities = config.identities
        self._max_attempts = config.methods.prompts
        self._prompts = prompts
        self._agent: asyncssh.SSHAgentClient | None = None
        self._agent_failed = ""
        self._configured: list[bytes] = []
        self._pairs: list[asyncssh.SSHKeyPair] = []
        self._unnamed: list[KeyFile] = []  # locked, and nothing says which public key belongs to it
        self._certificates: list[asyncssh.SSHCertificate] = []
        self._agent_certificates: list[asyncssh.SSHCertificate] = []
        self._still_locked: list[Path] = []
        self._unusable: list[str] = []

    def load(self) -> None:
        """Read key files and certificates. Blocking."""
        paths = self._identities.files
        files, self._unusable = read_key_files(paths)
        beside = [path.with_name(path.name + "-cert.pub") for path in paths]
        self._certificates = read_certificates([*self._identities.certificates, *beside])
        self._configured = [file.public.public_data for file in files if file.public is not None]
        for file in files:
            if file.key is not None:
                self._pairs += asyncssh.load_keypairs([file.key])
            elif file.data and file.public is not None:
                self._pairs.append(LockedKeyPair(file, file.public, self._unlock, self._still_locked.append))
            elif file.data:
                self._unnamed.append(file)

    async def in_order(self) -> list[asyncssh.SSHKeyPair]:
        """Return the keys in the order in which ssh offers them. Ask the agent for its keys."""
        agent = await self._agent_keys()
        self._agent_certificates = certificates_among(agent)
        only = self._identities.only
        pairs = in_order(agent, self._pairs, self._configured, self._certificates, identities_only=only)
        self.offered = [pair.public_data for pair in pairs]
        return pairs

    async def remembered(self, last: PastLogin, allowed: Collection[bytes]) -> asyncssh.SSHKeyPair | str:
        """Return the key that logged in the last time, ready to sign as it did then, or why it cannot.

        `allowed` are the algorithms that may sign.
        """
        try:
            async with asyncio.timeout(AGENT_QUIET_S):
                return self._as_before(await self.in_order(), last, allowed)
        except TimeoutError:
            await self.close()
            return "the agent does not answer"

    def _as_before(
        self, pairs: Sequence[asyncssh.SSHKeyPair], last: PastLogin, allowed: Collection[bytes]
    ) -> asyncssh.SSHKeyPair | str:
        """Return the one of `pairs` that `last` names, or why none can sign as it did."""
        why = "the key of the last login is neither in a file nor in the agent"
        for number, pair in enumerate(pairs):
            ready = _ready(pair, last)
            if ready is None:
                continue
            if standing_for(self.offered[:number]) != last.before:
                why = "other keys come before the key of the last login now"
            elif not is_unlocked(pair, self._prompts.memory):
                why = "the key of the last login is locked by a passphrase"
            elif pair.get_key_type() == "agent" and (self._identities.agent_keeps or (False, 0))[0]:
                why = "the agent may ask before it signs (AddKeysToAgent confirm)"
            elif ready.sig_algorithm not in allowed:
                why = f"{last.signature} is not among the algorithms that you allow"
            elif self._expired(pair):
                why = "the certificate of the last login is not valid now"
            else:
                return ready
        return why

    def _expired(self, pair: asyncssh.SSHKeyPair) -> bool:
        for certificate in (*self._certificates, *self._agent_certificates):
            if certificate.public_data == pair.public_data and _invalid(certificate, self._user):
                return True
        return False

    async def next_unnamed(self) -> tuple[Path, asyncssh.SSHKey] | None:
        """Unlock and return the next locked key that could not be offered by its public half. None: there is none, or
        the person gave up."""
        if not self._unnamed:
            return None
        file = self._unnamed[0]
        key = await self._unlock(file)
        if key is None:
            return None
        self._unnamed.pop(0)
        return file.path, key

    async def close(self) -> None:
        """Close the connection to the agent."""
        if self._agent is not None:
            with contextlib.suppress(OSError, asyncssh.Error):  # the agent may have died
                self._agent.close()
                await self._agent.wait_closed()
            self._agent = None

    def report(self, tried: Sequence[str], *, asked_for_keys: bool) -> str:
        """Return what was `tried` and what is wrong with the keys, as evidence for an error."""
        if asked_for_keys:
            nothing = "nothing, there was no key" + ("" if self._agent_failed else " and no agent")
        else:
            nothing = "nothing, it asked for no key"
        text = "Tried: " + (", ".join(dict.fromkeys(tried)) or nothing) + "."
        if self._agent_failed:
            text += f" {self._agent_failed}"
        locked = [*self._still_locked, *(file.path for file in self._unnamed)]
        if locked:
            text += " Locked by a passphrase: " + ", ".join(map(str, dict.fromkeys(locked))) + "."
        if self._unusable:
            text += f" Not usable: {neutralise('; '.join(self._unusable))}."
        for certificate in (*self._certificates, *self._agent_certificates):
            if why := _invalid(certificate, self._user):
                where = " in the agent" if certificate in self._agent_certificates else ""
                text += f"\n{why}: the one of {certificate.key.get_fingerprint()}{where}."
        return text

    async def _agent_keys(self) -> list[asyncssh.SSHKeyPair]:
        path = self._identities.agent
        if path is None:
            return []
        text = neutralise(f"Waiting for the agent at {path} …")
        notice = asyncio.get_running_loop().call_later(AGENT_QUIET_S, self._prompts.banner, text)
        try:
            if self._agent is None:
                self._agent = await asyncssh.connect_agent(path)
            return list(await self._agent.get_keys())
        except (OSError, ValueError, asyncssh.Error) as error:
            log.warning("the agent at %s does not answer: %s", path, error)
            self._agent_failed = neutralise(f"The agent at {path} does not answer: {error}.")
            return []
        finally:
            notice.cancel()

    async def _unlock(self, file: KeyFile) -> asyncssh.SSHKey | None:
        """Return the private key of `file`, None if the person gave up.

        Add it to the agent if AddKeysToAgent says so.
        """
        key = await unlocked(file.data, file.path, self._passphrase, self._prompts.memory)
        if key is not None and self._agent is not None and self._identities.agent_keeps is not None:
            confirm, seconds = self._identities.agent_keeps
            try:
                await self._agent.add_keys([key], lifetime=seconds or None, confirm=confirm)
            except (OSError, ValueError, asyncssh.Error) as error:
                log.warning("the agent does not take the key %s: %s", file.path, error)
        return key

    async def _passphrase(self, path: str, attempt: int) -> str | None:
        if attempt > self._max_attempts:
            return None
        self.asked = True
        return await self._prompts.passphrase(path, attempt)


def _invalid(certificate: asyncssh.SSHCertificate, user: str) -> str:
    """Return why the certificate is of no use for `user` now, "" if it is."""
    if isinstance(certificate, asyncssh.public_key.SSHOpenSSHCertificate):
        try:
            certificate.validate(asyncssh.public_key.CERT_TYPE_USER, user)
        except ValueError as error:
            return str(error)
    return ""


def _ready(pair: asyncssh.SSHKeyPair, last: PastLogin) -> asyncssh.SSHKeyPair | None:
    """Return a copy of `pair` that signs as in the last login, None if `pair` is not its key."""
    signature = last.signature.encode()
    if fingerprint(pair.key_public_data) != last.key or signature not in pair.sig_algorithms:
        return None
    ready = copy.copy(pair)
    ready.set_sig_algorithm(signature)
    if ready.algorithm == b"ssh-rsa-cert-v01@openssh.com":  # servers differ in its name, see asyncssh
        ready.algorithm = last.algorithm.encode()
    return ready if ready.algorithm.decode("ascii") == last.algorithm else None
