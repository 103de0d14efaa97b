"""The callbacks that asyncssh makes during a login."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import asyncssh

from ..plain_text import neutralise
from ..ssh_config.host_config import HostConfig
from ..transports.login_prompts import NobodyToAsk, Prompts
from .login_keys import LoginKeys
from .pipelined_connection import PipelinedConnection

log = logging.getLogger(__name__)

MAX_PROMPTS = 32  # how many questions a server may ask at once
MAX_TEXT = 4000  # how many characters of a server's text are shown


@dataclass
class LoginRecord:
    """What happened so far, for errors. `asked`: for something other than a passphrase. `wanted`: beside keys.
    `key_accepted`: a key was right, but not enough."""

    banner: str = ""
    asked: bool = False
    gave_up: bool = False
    asked_for_keys: bool = False
    key_accepted: bool = False
    wanted: list[str] = field(default_factory=list)
    tried: list[str] = field(default_factory=list)


class LoginClient(asyncssh.SSHClient):
    """The callbacks of one login. `shown_key` is a host key that is not trusted. `opened` is set when the connection is
    made, `greeted` when the server first asks for a login. `banner_before` is not shown again."""

    def __init__(self, name: str, config: HostConfig, prompts: Prompts) -> None:
        self.record = LoginRecord()
        self.shown_key: asyncssh.SSHKey | None = None
        self.banner_before = ""
        self.opened = asyncio.Event()
        self.greeted = asyncio.Event()
        self.keys = LoginKeys(config, prompts)
        self._connection: asyncssh.SSHClientConnection | None = None
        self._first_methods: Sequence[str] = ()  # that the server offered when it first asked for a key
        self._name = name
        self._max_attempts = config.methods.prompts
        # A server may let somebody in without a question, for a confirmation on a phone, but a failed try asks nobody.
        self._max_challenges = min(1, self._max_attempts) if isinstance(prompts, NobodyToAsk) else self._max_attempts
        self._prompts = prompts
        self._passwords = 0
        self._challenges = 0

    @property
    def asked(self) -> bool:
        return self.record.asked or self.keys.asked

    @property
    def signed_at_once(self) -> bool:
        return isinstance(self._connection, PipelinedConnection) and self._connection.signed_at_once

    def tried(self) -> str:
        return self.keys.report(self.record.tried, asked_for_keys=self.record.asked_for_keys)

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        self._connection = conn
        self.opened.set()

    def begin_auth(self, username: str) -> None:
        if self.signed_at_once:
            self.greeted.set()
            self.record.asked_for_keys = True
            self.record.tried.append("1 public key that signed at once")

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        self.shown_key = key
        return False

    def auth_banner_received(self, msg: str, lang: str) -> None:
        self.greeted.set()
        self.record.banner = neutralise(msg[:MAX_TEXT])
        if self.record.banner != self.banner_before:
            self._prompts.banner(self.record.banner)

    async def public_key_auth_requested(self) -> list[asyncssh.SSHKeyPair] | None:
        self.greeted.set()
        if self._connection is not None and not self._first_methods:
            self._first_methods = self._connection.get_server_auth_methods()
        if self.record.asked_for_keys:
            return None
        self.record.asked_for_keys = True
        pairs = await self.keys.in_order()
        for what, held in (("of the agent", True), ("in files", False)):
            count = sum((pair.get_key_type() == "agent") is held for pair in pairs)
            if count:
                self.record.tried.append(f"{count} public key{'s' if count > 1 else ''} {what}")
        return pairs or None

    async def password_auth_requested(self) -> str | None:
        self.greeted.set()
        self._note_wanted("password", "a password")
        if self.record.gave_up or self._passwords >= self._max_attempts:
            return None
        self._passwords += 1
        self.record.asked = True
        password = await self._prompts.password(self._name, self._passwords)
        if password is None:
            self.record.gave_up = True
        else:
            self.record.tried.append("password")
        return password

    def kbdint_auth_requested(self) -> str | None:
        self.greeted.set()
        self._note_wanted("keyboard-interactive", "answers to its questions")
        if self.record.gave_up or self._challenges >= self._max_challenges:
            return None
        self._challenges += 1
        return ""

    async def kbdint_challenge_received(
        self, name: str, instructions: str, lang: str, prompts: Sequence[tuple[str, bool]]
    ) -> list[str] | None:
        if not prompts:
            if name.strip() or instructions.strip():
                self._prompts.banner(neutralise("\n".join(filter(str.strip, (name, instructions)))[:MAX_TEXT]))
            return []
        if len(prompts) > MAX_PROMPTS:
            log.warning("%s asks %d questions at once", self._name, len(prompts))
            self.record.tried.append(f"keyboard-interactive (it asks {len(prompts)} questions at once)")
            return None
        self.record.asked = True
        # Each question names the host, so that no host can ask in the name of another.
        shown = [(f"({self._name}) {neutralise(text[:MAX_TEXT])}", echo) for text, echo in prompts]
        title, text = neutralise(name[:MAX_TEXT]), neutralise(instructions[:MAX_TEXT])
        answers = await self._prompts.challenge(title, text, shown)
        if answers is None:
            self.record.gave_up = True
        else:
            self.record.tried.append("keyboard-interactive")
        return answers

    def _note_wanted(self, method: str, what: str) -> None:
        """Record that the server asks for `what`. If it offers `method` only after a key, it has accepted that key."""
        if what not in self.record.wanted:
            self.record.wanted.append(what)
            late = bool(self._first_methods) and method not in self._first_methods
            self.record.key_accepted = self.record.key_accepted or late
