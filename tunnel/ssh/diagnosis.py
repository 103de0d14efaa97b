"""Why a login over asyncssh failed, as errors for the person: what the server said, what was tried, and what to do."""

from __future__ import annotations

import asyncssh
from asyncssh import OPEN_ADMINISTRATIVELY_PROHIBITED
from asyncssh.packet import PacketDecodeError

from ..errors import AuthFailed, ConnectError, Dropped, HostKeyError, Unreachable
from ..login.host_keys import revoked
from ..login.prompter import NobodyToAsk, Prompts
from ..login.server_messages import closed_before_login, expired, too_many_logins
from ..plain_text import neutralise
from ..ssh_config.target import SshTarget
from ..wire.dataclass import dataclass
from .client import LoginClient
from .jumps import Hop
from .proxy_command import Carrier

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
