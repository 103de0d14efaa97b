"""Load keys from files and the agent. A locked key is unlocked when the server accepts its public half."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import hashlib
import logging
from collections.abc import Collection, Sequence
from pathlib import Path

import asyncssh

from ..plain_text import neutralise
from ..ssh_config.host_config import HostConfig
from ..transports.login_prompts import Prompts
from ..wire.dataclass import dataclass
from .past_logins import PastLogin, fingerprint, standing_for

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class KeyFile:
    """An identity file, or only its `public` half. `key` is None if the private key is locked or missing."""

    path: Path
    data: bytes
    key: asyncssh.SSHKey | None
    public: asyncssh.SSHKey


def _read_key_file(path: Path) -> KeyFile | str:
    """Return the key, or its public half alone. Without a key return the reason: "" if a default file is missing."""
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
        locked = "passphrase" in str(error).lower() or "encrypted" in str(error).lower()
        own = _public_key(path) or public
        if own is not None:
            return KeyFile(path, data if locked else b"", None, own)
        if locked:
            return f"it is locked, and {path.name}.pub, which names it, is missing"
        log.warning("the key %s cannot be read: %s", path, error)
        return "not a private key that can be read"


def _public_key(path: Path) -> asyncssh.SSHKey | None:
    """Return the key of a file, which may be the public half that a locked private key of OpenSSH names."""
    try:
        return asyncssh.read_public_key(path)
    except (OSError, asyncssh.KeyImportError, ValueError):
        return None


class LockedKeyPair(asyncssh.SSHKeyPair):
    _key_type = "local"

    def __init__(self, file: KeyFile, keys: LoginKeys) -> None:
        public, kinds = file.public, file.public.sig_algorithms
        super().__init__(public.algorithm, public.algorithm, kinds, kinds, public.public_data, None)
        self.file = file
        self._keys = keys

    async def sign_async(self, data: bytes) -> bytes:
        """Sign `data`. ValueError makes asyncssh go on with the next key."""
        key = await self._keys.unlock(self.file)
        if key is None or key.public_data != self.key_public_data:
            self._keys.still_locked.append(self.file.path)
            raise ValueError("the key was not unlocked")
        return key.sign(data, self.sig_algorithm)


AGENT_QUIET_S = 3.0  # seconds until the person is told that ccb waits for the agent. It may ask them, or hang


class LoginKeys:
    """The keys of one login, and the connection to the agent. `asked`: a passphrase was asked for. `offered` are the
    public halves of the keys, once their order is known."""

    def __init__(self, config: HostConfig, prompts: Prompts) -> None:
        self.asked = False
        self.offered: list[bytes] = []
        self.still_locked: list[Path] = []
        self._user = config.user
        self._identities = config.identities
        self._max_attempts = config.methods.prompts
        self._prompts = prompts
        self._agent: asyncssh.SSHAgentClient | None = None
        self._agent_failed = ""
        self._configured: list[bytes] = []
        self._pairs: list[asyncssh.SSHKeyPair] = []
        self._certificates: list[asyncssh.SSHCertificate] = []
        self._unusable: list[str] = []

    def load(self) -> None:
        """Read key files and certificates. Blocking."""
        paths = list(dict.fromkeys(self._identities.files))
        for path in (*self._identities.certificates, *(path.with_name(path.name + "-cert.pub") for path in paths)):
            try:
                self._certificates.append(asyncssh.read_certificate(path))
            except FileNotFoundError:
                continue
            except (OSError, asyncssh.KeyImportError, ValueError) as error:
                log.warning("the certificate %s cannot be read: %s", path, error)
        for path in paths:
            file = _read_key_file(path)
            if isinstance(file, str):
                self._unusable += [f"{path}: {file}"] if file else []
                continue
            self._configured.append(file.public.public_data)
            if file.key is not None:
                self._pairs += asyncssh.load_keypairs([file.key])
            elif file.data:
                self._pairs.append(LockedKeyPair(file, self))

    async def in_order(self) -> list[asyncssh.SSHKeyPair]:
        """Return the keys, none of them twice, because a server counts attempts: certificates, configured keys that the
        agent has, its other keys (not with IdentitiesOnly), files."""
        agent = await self._agent_keys()
        certified = self._certified([*agent, *self._pairs])
        held = {pair.public_data for pair in agent}
        plain = [pair for pair in agent if pair.public_data in self._configured]
        if not self._identities.only:
            plain += [pair for pair in agent if pair.public_data not in self._configured]
        plain += [pair for pair in self._pairs if pair.public_data not in held]
        shown = {pair.public_data for pair in certified}
        pairs = certified + [pair for pair in plain if pair.public_data not in shown]
        self.offered = [pair.public_data for pair in pairs]
        return pairs

    def _certified(self, pairs: Sequence[asyncssh.SSHKeyPair]) -> list[asyncssh.SSHKeyPair]:
        certified = []
        for certificate in dict.fromkeys(self._certificates):
            for pair in pairs:
                if pair.public_data == certificate.key.public_data:
                    wearing = copy.copy(pair)
                    wearing.set_certificate(certificate)
                    certified.append(wearing)
                    break
        return certified

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

    async def remembered(self, last: PastLogin, allowed: Collection[bytes]) -> asyncssh.SSHKeyPair | str:
        """Return the key of the last login, ready to sign as then by an algorithm among `allowed`, or why it cannot."""
        try:
            async with asyncio.timeout(AGENT_QUIET_S):
                pairs = await self.in_order()
        except TimeoutError:
            await self.close()
            return "the agent does not answer"
        why = "the key of the last login is neither in a file nor in the agent"
        for number, pair in enumerate(pairs):
            ready = _ready(pair, last)
            if ready is None:
                continue
            if standing_for(self.offered[:number]) != last.before:
                why = "other keys come before the key of the last login now"
            elif isinstance(pair, LockedKeyPair) and _name_in_memory(pair.file) not in self._prompts.memory.keys:
                why = "the key of the last login is locked by a passphrase"
            elif pair.get_key_type() == "agent" and (self._identities.agent_keeps or (False, 0))[0]:
                why = "the agent may ask before it signs (AddKeysToAgent confirm)"
            elif ready.sig_algorithm not in allowed:
                why = f"{last.signature} is not among the algorithms that you allow"
            elif any(certificate.public_data == pair.public_data for certificate in self._invalid_certificates()):
                why = "the certificate of the last login is not valid now"
            else:
                return ready
        return why

    async def close(self) -> None:
        if self._agent is not None:
            with contextlib.suppress(OSError, asyncssh.Error):  # the agent may have died
                self._agent.close()
                await self._agent.wait_closed()
            self._agent = None

    def report(self, tried: Sequence[str], *, asked_for_keys: bool) -> str:
        nothing = "nothing, it asked for no key"
        if asked_for_keys:
            nothing = "nothing, there was no key" + ("" if self._agent_failed else " and no agent")
        text = "Tried: " + (", ".join(dict.fromkeys(tried)) or nothing) + "."
        if self._agent_failed:
            text += f" {self._agent_failed}"
        if self.still_locked:
            text += " Locked by a passphrase: " + ", ".join(map(str, dict.fromkeys(self.still_locked))) + "."
        if self._unusable:
            text += f" Not usable: {neutralise('; '.join(self._unusable))}."
        for certificate, why in self._invalid_certificates().items():
            text += f"\n{why}: the one of {certificate.key.get_fingerprint()}."
        return text

    def _invalid_certificates(self) -> dict[asyncssh.SSHCertificate, str]:
        found: dict[asyncssh.SSHCertificate, str] = {}
        for certificate in self._certificates:
            if isinstance(certificate, asyncssh.public_key.SSHOpenSSHCertificate):
                try:
                    certificate.validate(asyncssh.public_key.CERT_TYPE_USER, self._user)
                except ValueError as error:
                    found[certificate] = str(error)
        return found

    async def unlock(self, file: KeyFile) -> asyncssh.SSHKey | None:
        """Return the private key, from memory or by its passphrase, or None. AddKeysToAgent may give it to the
        agent."""
        memory, name = self._prompts.memory.keys, _name_in_memory(file)
        for attempt in range(1, self._max_attempts + 1):
            if name in memory:
                break
            self.asked = True
            passphrase = await self._prompts.passphrase(str(file.path), attempt)
            if passphrase is None:
                break
            with contextlib.suppress(asyncssh.KeyImportError, asyncssh.KeyEncryptionError):
                # in a thread: it is slow by design
                memory[name] = await asyncio.to_thread(asyncssh.import_private_key, file.data, passphrase)
        key = memory.get(name)
        if key is not None and self._agent is not None and self._identities.agent_keeps is not None:
            confirm, seconds = self._identities.agent_keeps
            try:
                await self._agent.add_keys([key], lifetime=seconds or None, confirm=confirm)
            except (OSError, ValueError, asyncssh.Error) as error:
                log.warning("the agent does not take the key %s: %s", file.path, error)
        return key


def _name_in_memory(file: KeyFile) -> bytes:
    return hashlib.sha256(file.data).digest()


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
