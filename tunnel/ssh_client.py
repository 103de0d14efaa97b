"""The person's side of an SSH login: which keys are offered, and what is asked when they do not do."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import asyncssh

from .login import Prompts
from .plain_text import neutralise
from .ssh_config import HostConfig

log = logging.getLogger(__name__)

_TRIES = 3


class LoginClient(asyncssh.SSHClient):
    """Callbacks of one login. `offered` is the host key that was shown and not found among the trusted ones."""

    def __init__(self, name: str, config: HostConfig, prompts: Prompts) -> None:
        self.offered: asyncssh.SSHKey | None = None
        self._name = name
        self._config = config
        self._prompts = prompts
        self._locked: list[tuple[Path, bytes]] = []
        self._files: list[asyncssh.SSHKeyPair] = []
        self._public: list[bytes] = []  # of the configured keys
        self._agent: asyncssh.SSHAgentClient | None = None
        self._offered_keys = False
        self._tried: list[str] = []
        self._passwords = 0
        self._challenges = 0

    def load_keys(self) -> None:
        """Read the key files; blocking. Missing ones are passed over, as ssh does, and locked ones are asked for only when
        nothing else did."""
        plain: list[asyncssh.SSHKey] = []
        for path in self._config.identity_files:
            self._load_public(path)
            try:
                data = path.read_bytes()
            except OSError:
                continue
            try:
                plain.append(asyncssh.import_private_key(data))
            except asyncssh.KeyImportError as error:
                if "passphrase" in str(error).lower() or "encrypted" in str(error).lower():
                    self._locked.append((path, data))
                else:
                    log.warning("the key %s cannot be read: %s", path, error)
        self._public += [key.public_data for key in plain]
        certificates = [str(path) for path in self._config.certificate_files if path.is_file()]
        self._files = list(asyncssh.load_keypairs(plain, certlist=certificates)) if plain else []

    def _load_public(self, path: Path) -> None:
        try:
            self._public.append(asyncssh.read_public_key(str(path) + ".pub").public_data)
        except (OSError, asyncssh.KeyImportError):
            return

    async def _agent_keys(self) -> list[asyncssh.SSHKeyPair]:
        """What the agent holds, keys that are configured first; only those under IdentitiesOnly."""
        if self._config.agent is None:
            return []
        try:
            self._agent = await asyncssh.connect_agent(self._config.agent)
            keys = list(await self._agent.get_keys())
        except (OSError, ValueError, asyncssh.Error) as error:
            log.warning("the agent at %s does not answer: %s", self._config.agent, error)
            return []
        configured = [key for key in keys if key.public_data in self._public]
        others = [] if self._config.identities_only else [key for key in keys if key.public_data not in self._public]
        return configured + others

    async def close(self) -> None:
        """The login is over: leave the agent."""
        if self._agent is not None:
            self._agent.close()
            await self._agent.wait_closed()
            self._agent = None

    def tried(self) -> str:
        """What was offered, for the error message."""
        text = "Tried: " + (", ".join(dict.fromkeys(self._tried)) or "nothing, there was no key and no agent") + "."
        if self._locked:
            text += " Locked by a passphrase: " + ", ".join(str(path) for path, _ in self._locked) + "."
        return text

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        self.offered = key
        return False

    def auth_banner_received(self, msg: str, lang: str) -> None:
        self._prompts.banner(neutralise(msg))

    async def public_key_auth_requested(self) -> list[asyncssh.SSHKey] | list[asyncssh.SSHKeyPair] | None:
        if not self._offered_keys:
            self._offered_keys = True
            agent, files = await self._agent_keys(), self._files
            for what, keys in (("of the agent", agent), ("in files", files)):
                if keys:
                    self._tried.append(f"{len(keys)} public key{'s' if len(keys) > 1 else ''} {what}")
            if agent or files:
                return [*agent, *files]
        while self._locked:
            path, data = self._locked[0]
            for attempt in range(1, _TRIES + 1):
                passphrase = await self._prompts.passphrase(str(path), attempt)
                if passphrase is None:
                    break
                try:
                    key = asyncssh.import_private_key(data, passphrase)
                except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError):
                    continue
                self._locked.pop(0)
                self._tried.append(f"publickey ({path})")
                return [key]
            return None
        return None

    async def password_auth_requested(self) -> str | None:
        if self._passwords >= _TRIES:
            return None
        self._passwords += 1
        password = await self._prompts.password(self._name, self._passwords)
        if password is not None:
            self._tried.append("password")
        return password

    def kbdint_auth_requested(self) -> str | None:
        if self._challenges >= _TRIES:
            return None
        self._challenges += 1
        return ""

    async def kbdint_challenge_received(
        self, name: str, instructions: str, lang: str, prompts: Sequence[tuple[str, bool]]
    ) -> list[str] | None:
        if not prompts:
            return []
        shown = [(neutralise(text), echo) for text, echo in prompts]
        answers = await self._prompts.challenge(neutralise(name), neutralise(instructions), shown)
        if answers is None:
            self._challenges = _TRIES
        else:
            self._tried.append("keyboard-interactive")
        return answers
