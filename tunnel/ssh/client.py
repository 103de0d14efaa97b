"""The person's side of an SSH login: which keys are offered, and what is asked when they do not do."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from pathlib import Path

import asyncssh

from ..login.prompter import Prompts
from ..plain_text import neutralise
from ..ssh_config.resolve import HostConfig
from .keys import KeyFile, LockedKeyPair, in_order, read_certificates, read_key_files, unlocked, unusable_keys

log = logging.getLogger(__name__)

AGENT_QUIET_S = 3.0
"""Seconds after which it is said that the agent is waited for; one may ask the person first, or hang."""

_MOST_PROMPTS = 32
_MOST_TEXT = 4000
"""Characters of a text of the server that are shown."""


class LoginClient(asyncssh.SSHClient):
    """Callbacks of one login. `offered` is the host key that was shown and not found among the trusted ones; `asked`: the
    person was asked something; `gave_up`: and did not want to answer. `greeted` is set when the server has got as far as
    asking for a login; `said` is its last banner. `opened` is set when there is a way to it. `wanted` is what it wants beside
    keys; `key_accepted`: a key was right, but not enough."""

    def __init__(self, name: str, config: HostConfig, prompts: Prompts) -> None:
        self.offered: asyncssh.SSHKey | None = None
        self.asked = False
        self.gave_up = False
        self.said = ""
        self.opened = asyncio.Event()
        self.greeted = asyncio.Event()
        self.wanted: list[str] = []
        self.key_accepted = False
        self._connection: asyncssh.SSHClientConnection | None = None
        self._methods: Sequence[str] = ()
        """What the server offered when it first asked for a key."""
        self._name = name
        self._config = config
        self._prompts = prompts
        self._configured: list[bytes] = []
        self._blind: list[KeyFile] = []  # locked, and nothing says which key it is
        self._files: list[asyncssh.SSHKeyPair] = []
        self._certificates: list[asyncssh.SSHCertificate] = []
        self._agent: asyncssh.SSHAgentClient | None = None
        self._agent_failed = ""
        self._offered_keys = False
        self._tried: list[str] = []
        self._not_unlocked: list[Path] = []
        self._unusable: list[str] = []
        self._passwords = 0
        self._challenges = 0

    def load_keys(self) -> None:
        """Read key files and certificates; blocking."""
        files = read_key_files(self._config.identity_files)
        self._unusable = unusable_keys(self._config.identity_files, files)
        beside = [path.with_name(path.name + "-cert.pub") for path in self._config.identity_files]
        self._certificates = read_certificates([*self._config.certificate_files, *beside])
        self._configured = [file.public.public_data for file in files if file.public is not None]
        for file in files:
            if file.key is not None:
                self._files += asyncssh.load_keypairs([file.key])
            elif file.data and file.public is not None:
                self._files.append(LockedKeyPair(file, file.public, self._unlocked, self._not_unlocked.append))
            elif file.data:
                self._blind.append(file)

    async def _unlocked(self, file: KeyFile) -> asyncssh.SSHKey | None:
        """The key of `file`, None when the person gave up; the agent keeps it when AddKeysToAgent says so."""
        key = await unlocked(file.data, file.path, self._passphrase, self._prompts.memory)
        if key is not None and self._agent is not None and self._config.agent_keeps is not None:
            confirm, seconds = self._config.agent_keeps
            try:
                await self._agent.add_keys([key], lifetime=seconds or None, confirm=confirm)
            except (OSError, ValueError, asyncssh.Error) as error:
                log.warning("the agent does not take the key %s: %s", file.path, error)
        return key

    async def _passphrase(self, path: str, attempt: int) -> str | None:
        if attempt > self._config.prompts:
            return None
        self.asked = True
        return await self._prompts.passphrase(path, attempt)

    async def _agent_keys(self) -> list[asyncssh.SSHKeyPair]:
        if self._config.agent is None:
            return []
        text = neutralise(f"Waiting for the agent at {self._config.agent} …")
        notice = asyncio.get_running_loop().call_later(AGENT_QUIET_S, self._prompts.banner, text)
        try:
            self._agent = await asyncssh.connect_agent(self._config.agent)
            return list(await self._agent.get_keys())
        except (OSError, ValueError, asyncssh.Error) as error:
            log.warning("the agent at %s does not answer: %s", self._config.agent, error)
            self._agent_failed = neutralise(f"The agent at {self._config.agent} does not answer: {error}.")
            return []
        finally:
            notice.cancel()

    async def close(self) -> None:
        """The login is over: leave the agent."""
        if self._agent is not None:
            with contextlib.suppress(OSError, asyncssh.Error):  # an agent that has died has left us
                self._agent.close()
                await self._agent.wait_closed()
            self._agent = None

    @property
    def asked_for_keys(self) -> bool:
        """The server takes keys, whether there was one or not."""
        return self._offered_keys

    def tried(self) -> str:
        """What was offered, for the error message."""
        if self._offered_keys:
            nothing = "nothing, there was no key" + ("" if self._agent_failed else " and no agent")
        else:
            nothing = "nothing, it asked for no key"
        text = "Tried: " + (", ".join(dict.fromkeys(self._tried)) or nothing) + "."
        if self._agent_failed:
            text += f" {self._agent_failed}"
        locked = [*self._not_unlocked, *(file.path for file in self._blind)]
        if locked:
            text += " Locked by a passphrase: " + ", ".join(map(str, dict.fromkeys(locked))) + "."
        if self._unusable:
            text += f" Not usable: {neutralise('; '.join(self._unusable))}."
        for certificate in self._certificates:
            if not isinstance(certificate, asyncssh.public_key.SSHOpenSSHCertificate):
                continue
            try:
                certificate.validate(asyncssh.public_key.CERT_TYPE_USER, self._config.user)
            except ValueError as error:
                text += f"\n{error}: the one of {certificate.key.get_fingerprint()}."
        return text

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        self._connection = conn
        self.opened.set()

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        self.offered = key
        return False

    def auth_banner_received(self, msg: str, lang: str) -> None:
        self.greeted.set()
        self.said = neutralise(msg[:_MOST_TEXT])
        self._prompts.banner(self.said)

    async def public_key_auth_requested(self) -> list[asyncssh.SSHKey] | list[asyncssh.SSHKeyPair] | None:
        self.greeted.set()
        if self._connection is not None and not self._methods:
            self._methods = self._connection.get_server_auth_methods()
        if not self._offered_keys:
            self._offered_keys = True
            agent = await self._agent_keys()
            only = self._config.identities_only
            pairs = in_order(agent, self._files, self._configured, self._certificates, identities_only=only)
            for what, held in (("of the agent", True), ("in files", False)):
                many = sum((pair.get_key_type() == "agent") is held for pair in pairs)
                if many:
                    self._tried.append(f"{many} public key{'s' if many > 1 else ''} {what}")
            if pairs:
                return pairs
        while self._blind:
            file = self._blind[0]
            key = await self._unlocked(file)
            if key is None:
                return None
            self._blind.pop(0)
            self._tried.append(f"publickey ({file.path})")
            return [key]
        return None

    async def password_auth_requested(self) -> str | None:
        self.greeted.set()
        self._wants("password", "a password")
        if self.gave_up or self._passwords >= self._config.prompts:
            return None
        self._passwords += 1
        self.asked = True
        password = await self._prompts.password(self._name, self._passwords)
        if password is None:
            self.gave_up = True
        else:
            self._tried.append("password")
        return password

    def _wants(self, method: str, what: str) -> None:
        """A server that comes up with a method only after a key has taken the key: asyncssh does not tell."""
        if what not in self.wanted:
            self.wanted.append(what)
            self.key_accepted = self.key_accepted or (bool(self._methods) and method not in self._methods)

    def kbdint_auth_requested(self) -> str | None:
        self.greeted.set()
        self._wants("keyboard-interactive", "answers to its questions")
        if self.gave_up or self._challenges >= self._config.prompts:
            return None
        self._challenges += 1
        return ""

    async def kbdint_challenge_received(
        self, name: str, instructions: str, lang: str, prompts: Sequence[tuple[str, bool]]
    ) -> list[str] | None:
        if not prompts:
            if name.strip() or instructions.strip():
                self._prompts.banner(neutralise("\n".join(filter(str.strip, (name, instructions)))[:_MOST_TEXT]))
            return []
        if len(prompts) > _MOST_PROMPTS:
            log.warning("%s asks %d questions at once", self._name, len(prompts))
            self._tried.append(f"keyboard-interactive (it asks {len(prompts)} questions at once)")
            return None
        self.asked = True
        shown = [
            (f"({self._name}) {neutralise(text[:_MOST_TEXT])}", echo) for text, echo in prompts
        ]  # no host asks in another's name
        title, text = neutralise(name[:_MOST_TEXT]), neutralise(instructions[:_MOST_TEXT])
        answers = await self._prompts.challenge(title, text, shown)
        if answers is None:
            self.gave_up = True
        else:
            self._tried.append("keyboard-interactive")
        return answers
