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
        self._plain: list[asyncssh.SSHKey] = []
        self._public: list[asyncssh.SSHKey] = []
        self._tried: list[str] = []
        self._passwords = 0
        self._challenges = 0

    def load_keys(self) -> tuple[list[asyncssh.SSHKey], list[str]]:
        """The private keys that need no passphrase, and the certificates. Missing files are passed over, as ssh does."""
        for path in self._config.identity_files:
            self._load_public(path)
            try:
                data = path.read_bytes()
            except OSError:
                continue
            try:
                self._plain.append(asyncssh.import_private_key(data))
            except asyncssh.KeyImportError as error:
                if "passphrase" in str(error).lower() or "encrypted" in str(error).lower():
                    self._locked.append((path, data))
                else:
                    log.warning("the key %s cannot be read: %s", path, error)
        if self._plain:
            self._tried.append(f"publickey ({len(self._plain)} key file{'s' if len(self._plain) > 1 else ''})")
        certificates = [str(path) for path in self._config.certificate_files if path.is_file()]
        return self._plain, certificates

    def _load_public(self, path: Path) -> None:
        try:
            self._public.append(asyncssh.read_public_key(str(path) + ".pub"))
        except (OSError, asyncssh.KeyImportError):
            return

    def agent_identities(self) -> list[bytes]:
        """Public keys the agent may offer under IdentitiesOnly."""
        return [key.public_data for key in (*self._public, *self._plain)]

    def tried(self) -> str:
        """What was offered, for the error message."""
        names = self._tried + (["agent"] if self._config.agent else [])
        text = "Tried: " + (", ".join(dict.fromkeys(names)) or "nothing, there was no key and no agent") + "."
        if self._locked:
            text += " Locked by a passphrase: " + ", ".join(str(path) for path, _ in self._locked) + "."
        return text

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        self.offered = key
        return False

    def auth_banner_received(self, msg: str, lang: str) -> None:
        self._prompts.banner(neutralise(msg))

    async def public_key_auth_requested(self) -> list[asyncssh.SSHKey] | None:
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
