"""The callbacks that asyncssh makes during a login, and the errors for a login that failed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import asyncssh
from asyncssh import OPEN_ADMINISTRATIVELY_PROHIBITED
from asyncssh.packet import PacketDecodeError

from ..errors import AuthFailed, ConnectError, Dropped, HostKeyError, Unreachable
from ..plain_text import neutralise
from ..ssh_config.host_config import HostConfig
from ..ssh_config.ssh_target import SshTarget
from ..transports.host_keys import revoked
from ..transports.login_failures import closed_before_login, expired, too_many_logins
from ..transports.login_prompts import NobodyToAsk, Prompts
from .carrier import Carrier, Hop
from .login_keys import LoginKeys
from .pipelined_connection import PipelinedConnection

log = logging.getLogger(__name__)

MAX_PROMPTS = 32
"""How many questions a server may ask at once."""

MAX_TEXT = 4000
"""How many characters of a server's text are shown."""


@dataclass
class LoginRecord:
    """What happened in a login so far, for error messages.

    `banner` is the server's last one. `asked`: the person was asked something other than a passphrase. `gave_up`: they
    did not answer. `wanted` is what the server asks for beside keys. `key_accepted`: a key was right, but not enough.
    """

    banner: str = ""
    asked: bool = False
    gave_up: bool = False
    asked_for_keys: bool = False
    key_accepted: bool = False
    wanted: list[str] = field(default_factory=list)
    tried: list[str] = field(default_factory=list)


class LoginClient(asyncssh.SSHClient):
    """The callbacks of one login.

    `shown_key` is the host key, if it is not a trusted one. `opened` is set when the connection is made, `greeted` when
    the server first asks for a login. `banner_before` is what it said in the attempt before, and is not shown again.
    """

    def __init__(self, name: str, config: HostConfig, prompts: Prompts) -> None:
        self.record = LoginRecord()
        self.shown_key: asyncssh.SSHKey | None = None
        self.banner_before = ""
        self.opened = asyncio.Event()
        self.greeted = asyncio.Event()
        self.keys = LoginKeys(config, prompts)
        self._connection: asyncssh.SSHClientConnection | None = None
        self._first_methods: Sequence[str] = ()
        """What the server offered when it first asked for a key."""
        self._name = name
        self._max_attempts = config.methods.prompts
        # A server may let somebody in without a question, for a confirmation on a phone, but a failed try asks nobody.
        self._max_challenges = min(1, self._max_attempts) if isinstance(prompts, NobodyToAsk) else self._max_attempts
        self._prompts = prompts
        self._passwords = 0
        self._challenges = 0

    @property
    def asked(self) -> bool:
        """Whether the person was asked for anything."""
        return self.record.asked or self.keys.asked

    @property
    def signed_at_once(self) -> bool:
        """Whether the request that logs in was sent without waiting for the server to ask."""
        return isinstance(self._connection, PipelinedConnection) and self._connection.signed_at_once

    def tried(self) -> str:
        """Return what was offered, as evidence for an error."""
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

    async def public_key_auth_requested(self) -> list[asyncssh.SSHKey] | list[asyncssh.SSHKeyPair] | None:
        self.greeted.set()
        if self._connection is not None and not self._first_methods:
            self._first_methods = self._connection.get_server_auth_methods()
        if not self.record.asked_for_keys:
            self.record.asked_for_keys = True
            pairs = await self.keys.in_order()
            for what, held in (("of the agent", True), ("in files", False)):
                count = sum((pair.get_key_type() == "agent") is held for pair in pairs)
                if count:
                    self.record.tried.append(f"{count} public key{'s' if count > 1 else ''} {what}")
            if pairs:
                return pairs
        found = await self.keys.next_unnamed()
        if found is None:
            return None
        path, key = found
        self.record.tried.append(f"publickey ({path})")
        return [key]

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
        """Record that the server asks for `what`. If it offers `method` only after a key, it has accepted that key:
        asyncssh does not say so."""
        if what not in self.record.wanted:
            self.record.wanted.append(what)
            late = bool(self._first_methods) and method not in self._first_methods
            self.record.key_accepted = self.record.key_accepted or late


_GARBLED = asyncssh.ProtocolError | asyncssh.MACError | asyncssh.CompressionError | PacketDecodeError


@dataclass(frozen=True)
class FailedLogin:
    """The known facts about a failed login."""

    hop: Hop
    client: LoginClient
    carrier: Carrier
    prompts: Prompts

    @property
    def name(self) -> str:
        return self.hop.target.shown

    @property
    def place(self) -> str:
        return f"{self.hop.config.hostname} port {self.hop.config.port}"


def untrusted(failed: FailedLogin, error: asyncssh.HostKeyNotVerifiable) -> HostKeyError:
    """Return the error for a host that did not prove its identity. Raise HostKeyError if its key is revoked: no other
    key may be tried."""
    said = neutralise(str(error))
    if "revoked" in said:
        raise revoked(failed.name, said) from error
    return HostKeyError(f"the host key of {failed.name} cannot be verified", evidence=said, do="Check known_hosts.")


def no_answer_through(through: SshTarget, failed: FailedLogin) -> Unreachable:
    """Return the error for a jump host `through` that did not reach the next host in time."""
    return Unreachable(
        f"the jump host {through.shown} got no answer from {failed.place}"
        f" in {failed.hop.config.route.connect_timeout_s:.0f} s",
        evidence="Neither accepted nor refused: a firewall, a wrong address or a host that is down.",
        do="Check host and port as the jump host sees them. A larger ConnectTimeout waits longer.",
    )


def not_reached_through(through: SshTarget, failed: FailedLogin, error: asyncssh.ChannelOpenError) -> Unreachable:
    """Return the error for a jump host `through` that was reached but does not connect to the next host."""
    said = neutralise(error.reason)
    if error.code == OPEN_ADMINISTRATIVELY_PROHIBITED:
        return Unreachable(
            f"the jump host {through.shown} does not lead to {failed.place}",
            evidence=f"It refuses to forward: {said}",
            do=f"Name another jump host, allow forwarding there (AllowTcpForwarding, PermitOpen), or use "
            f"-o ProxyCommand='{through.shell_command(command='nc %h %p')}'.",
        )
    return Unreachable(
        f"the jump host {through.shown} cannot reach {failed.place}",
        evidence=said,
        do="Check host and port as the jump host sees them, and that an SSH server listens there.",
    )


def refused(failed: FailedLogin, error: asyncssh.PermissionDenied) -> AuthFailed:
    """Return the error for a server that accepted no login."""
    name, client, record = failed.name, failed.client, failed.client.record
    nobody_to_ask = isinstance(failed.prompts, NobodyToAsk)
    if record.gave_up and not nobody_to_ask:
        return AuthFailed(
            f"the login to {name} was cancelled",
            evidence=client.tried(),
            do="Answer its questions, or log in with a key or an agent.",
        )
    lines, wanted = [client.tried()], " or ".join(record.wanted)
    if record.key_accepted:
        lines.append("The key was accepted, but this server wants more than a key.")
    if "GSSAPIAuthentication" in failed.hop.config.no_effect and not wanted and not record.asked_for_keys:
        lines.append("GSSAPIAuthentication is set: only --transport ssh logs in by it.")
    if wanted and nobody_to_ask:
        lines.append(f"The server wants {wanted}, and nobody can be asked for it here (headless, or BatchMode).")
        if record.key_accepted or not record.asked_for_keys:
            return AuthFailed(
                f"{name} refused the login",
                evidence="\n".join(lines),
                do="Log in with ccb in a terminal, where it can ask you, or let the server accept a key alone.",
            )
    return AuthFailed(
        f"{name} refused the login",
        evidence="\n".join([*lines, str(error)]),
        do=f"Make `{failed.hop.target.shell_command()}` work first: it needs a key in the host's authorized_keys, an "
        "agent or a password, and an account that is not locked or expired. If it already works, add --transport ssh.",
    )


async def broken_off(failed: FailedLogin, error: Exception) -> ConnectError:
    """Return the error for a connection that broke off, or a server that did not speak SSH in time."""
    name = failed.name
    command_failed = await failed.carrier.command_failed()
    words = failed.carrier.command_output()
    said = neutralise(str(error) or type(error).__name__)
    if words:
        said += f"\nThe ProxyCommand said: {words}"
    if ended := _ended_by_server(failed, said):
        return ended
    dropped = isinstance(error, asyncssh.ConnectionLost | ConnectionResetError | BrokenPipeError | _GARBLED)
    sock = failed.carrier.sock
    if dropped and not command_failed and sock is not None and not sock.spoke_ssh:
        # A pipeline has the exit status of its last command. So if only the command printed something, blame it.
        command_failed = not sock.said and bool(words)
        if too_many_logins(sock.said) and not command_failed:
            return closed_before_login(f"{name} ({failed.place})", _heard(failed.carrier, sock.said, words))
        if sock.said:
            said += f"\nIt said: {sock.said}"
    return (Dropped if dropped and not command_failed else Unreachable)(
        f"no SSH connection to {name} ({failed.place})",
        evidence=said,
        do="Correct the ProxyCommand until it connects."
        if command_failed
        else "Check that an SSH server listens there.",
    )


def _ended_by_server(failed: FailedLogin, said: str) -> AuthFailed | None:
    """Return the error if the server ended the login itself: too many tries, an expired account, or no answer."""
    name, client = failed.name, failed.client
    if "too many authentication failures" in said.lower():
        keys = len(client.keys.offered) > 1
        return AuthFailed(
            f"{name} ended the login after too many {'keys' if keys else 'failed tries'} (MaxAuthTries)",
            evidence=f"{client.tried()}\n{said}",
            do="Choose the key: -i KEY -o IdentitiesOnly=yes (or both in your ssh_config)."
            if keys
            else f"Make `{failed.hop.target.shell_command()}` work first.",
        )
    if account_expired := expired(name, client.record.banner):
        return account_expired
    if client.asked:
        return AuthFailed(
            f"{name} closed the connection during the login",
            evidence=f"{client.tried()}\n{said}",
            do="Log in again. A server waits for LoginGraceTime, 2 minutes by default.",
        )
    return None


def _heard(carrier: Carrier, server: str, command: str) -> str:
    """Return what the server and the ProxyCommand said before the connection closed."""
    lines = [f"It said: {server}" if server else "It said nothing."]
    if carrier.runs_command:
        lines.append(f"The ProxyCommand said: {command}" if command else "The ProxyCommand said nothing, either.")
    return "\n".join(lines)
