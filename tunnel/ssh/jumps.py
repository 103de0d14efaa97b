"""The hosts on the way to a host: ProxyJump, also that of a jump host itself."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence

from ..errors import ConfigError
from ..ssh_config.resolve import HostConfig, SshTarget, flags_of, resolve

_MOST = 8

Hop = tuple[SshTarget, HostConfig]


async def route(target: SshTarget, words: Sequence[str] = ("ssh",)) -> list[Hop]:
    """Who is logged in to, one through the other, `target` last, by the ssh that `words` start. Raises ConfigError, UsageError."""
    hops = [(target, await resolve(target, words))]
    while jump := hops[0][1].proxy_jump:
        names = [_named(spec) for spec in jump.split(",")]
        if len(hops) + len(names) > _MOST + 1:
            raise ConfigError(
                f"there are more than {_MOST} jump hosts on the way to {target.shown}",
                evidence=f"ProxyJump of {hops[0][0].shown}: {jump}",
                do="A jump host that is its own jump host needs `ProxyJump none` in your ssh_config.",
            )
        found = list(
            zip(names, await asyncio.gather(*(resolve(name, of_jump_hosts(words)) for name in names)), strict=True)
        )
        hops = [found[0], *(_reached_through(hop) for hop in found[1:]), *(_reached_through(hop) for hop in hops)]
    return hops


def of_jump_hosts(words: Sequence[str]) -> list[str]:
    """How an ssh that `words` start starts that of a jump host."""
    return [words[0], *(each for flag in flags_of(words) if flag[0] == "-F" for each in flag)]


def _reached_through(hop: Hop) -> Hop:
    """Without a way of its own: the hop before it is the way."""
    return hop[0], dataclasses.replace(hop[1], proxy_jump=None, proxy_command=None)


def _named(spec: str) -> SshTarget:
    """A jump host with what the configuration says of it: as for ssh, the options of the command line are the host's own."""
    user, _, rest = spec.strip().removeprefix("ssh://").rstrip("/").rpartition("@")
    host, port = rest, None
    if rest.startswith("["):
        host, _, tail = rest[1:].partition("]")
        port = int(tail[1:]) if tail[1:].isdigit() else None
    elif rest.count(":") == 1:
        host, _, tail = rest.partition(":")
        port = int(tail) if tail.isdigit() else None
    return SshTarget(host, user or None, port)
