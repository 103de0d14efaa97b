"""Find the route to a host over jump hosts, from ProxyJump options, including those of the jump hosts themselves."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from ..errors import ConfigError
from ..ssh_config.host_config import HostConfig
from ..ssh_config.resolve import resolve
from ..ssh_config.target import SshTarget, flags_of

MAX_JUMP_HOSTS = 8


class Hop(NamedTuple):
    """A jump host or the destination, and the options that apply to it."""

    target: SshTarget
    config: HostConfig


async def route(target: SshTarget, ssh: Sequence[str] = ("ssh",)) -> list[Hop]:
    """Return the hosts to log in to, each through the one before it; `target` is the last. Raise ConfigError,
    UsageError.

    `ssh` are the words that start ssh: flags among them count, as on the command line.
    """
    hops = [Hop(target, await resolve(target, ssh))]
    while jump := hops[0].config.route.proxy_jump:
        targets = [SshTarget.of_jump_host(spec) for spec in jump.split(",")]
        if len(hops) + len(targets) > MAX_JUMP_HOSTS + 1:
            raise ConfigError(
                f"there are more than {MAX_JUMP_HOSTS} jump hosts on the way to {target.shown}",
                evidence=f"ProxyJump of {hops[0].target.shown}: {jump}",
                do="If a jump host is its own jump host, add `ProxyJump none` for it to your ssh_config.",
            )
        configs = await asyncio.gather(*(resolve(each, ssh_of_jump_hosts(ssh)) for each in targets))
        found = [Hop(each, config) for each, config in zip(targets, configs, strict=True)]
        hops = [found[0], *(_through_the_last(hop) for hop in (*found[1:], *hops))]
    return hops


def ssh_of_jump_hosts(ssh: Sequence[str]) -> list[str]:
    """Return the words by which ssh starts another ssh for a jump host: of its flags only -F is passed on."""
    return [ssh[0], *(each for flag in flags_of(ssh) if flag[0] == "-F" for each in flag)]


def _through_the_last(hop: Hop) -> Hop:
    """Return `hop` without its own ProxyJump and ProxyCommand, because it is reached through the hop before it."""
    route = dataclasses.replace(hop.config.route, proxy_jump=None, proxy_command=None)
    return hop._replace(config=dataclasses.replace(hop.config, route=route))
