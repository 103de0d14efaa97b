"""Whether to trust the key that a host shows: known_hosts, StrictHostKeyChecking, and the person."""

from __future__ import annotations

import asyncio
import dataclasses
import ipaddress
import socket
from typing import TYPE_CHECKING

from ..errors import HostKeyError
from ..login.host_keys import KnownKeys, judge, look_up, read_revoked, remember
from ..login.prompter import Prompts, tell_once
from ..plain_text import neutralise
from ..ssh_config.host_config import HostTrust

if TYPE_CHECKING:
    import asyncssh


async def known_keys(trust: HostTrust) -> KnownKeys:
    """Return what known_hosts and RevokedHostKeys say about a host. Raise HostKeyError."""
    known = await asyncio.to_thread(look_up, trust.known_hosts, trust.name, trust.port)
    revoked = await asyncio.to_thread(read_revoked, trust.revoked)
    return dataclasses.replace(known, revoked=known.revoked + revoked)


def trusts_any_key(trust: HostTrust, sock: socket.socket | None) -> bool:
    """Return whether NoHostAuthenticationForLocalhost applies to a connection over `sock`.

    It never does behind a proxy command or jump host (`sock` is None or no TCP socket): nobody knows where those lead.
    """
    if not trust.loopback or trust.alias is not None:
        return False
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return False
    return ipaddress.ip_address(sock.getpeername()[0].partition("%")[0]).is_loopback


async def accept_key(
    trust: HostTrust, known: KnownKeys, shown: asyncssh.SSHKey, prompts: Prompts, listener: Prompts
) -> None:
    """Decide on a key that is not in known_hosts as StrictHostKeyChecking says, and store it. Raise HostKeyError.

    `prompts` asks the person; `listener` shows warnings, also where `prompts` may ask nothing.
    """
    store = trust.known_hosts[0]
    accepted = prompts.memory.accepted
    for sentence in known.unread:
        tell_once(listener, neutralise(sentence))
    try:
        info = judge(known, shown, trust.name, trust.port, store)
    except HostKeyError as error:
        if trust.strict == "no" and shown not in known.revoked:
            error.evidence += (
                "\nStrictHostKeyChecking is no: ssh would connect without passwords; ccb does not connect."
            )
        raise
    if trust.strict == "yes":
        raise HostKeyError(
            f"the host key of {trust.name} is not known and StrictHostKeyChecking is yes",
            evidence=f"It shows {info.algorithm} {info.fingerprint}.",
            do=f"Add the key to {store}.",
        )
    if (trust.name, trust.port, shown.public_data) in accepted:
        return
    if trust.strict not in ("no", "accept-new") and not await prompts.confirm_host_key(info):
        raise HostKeyError(
            f"the host key of {trust.name} was not accepted",
            evidence=info.fingerprint,
            do="Nothing was stored. Ask the host's administrator for the right fingerprint.",
        )
    try:
        remember(store, trust.name, trust.port, shown, hashed=trust.hash_names)
    except OSError as error:  # a read-only home, a container: ssh connects there too
        accepted.add((trust.name, trust.port, shown.public_data))
        why = f"could not be stored in {store}: {error.strerror}"
        tell_once(listener, neutralise(f"The host key of {trust.name} {why}. It is trusted for this run only."))
