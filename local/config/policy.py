"""What the policy of this machine's owner refuses. It is asked where every way into a session passes."""

from __future__ import annotations

import os
import pwd
import socket
from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ccb.tunnel.errors import PolicyRefused, UsageError
from ccb.tunnel.wire.messages import as_blocks
from ccb.tunnel.wire.outside_messages import GROUP_SERVER
from ccb.tunnel.wire.policy_patterns import Patterns, holds_directory, is_allowed

from ..command_line.arguments import ConnectionOptions
from ..command_line.option_values import shortened
from ..command_line.transport_choice import TransportKind, transport_kind
from .log import state_dir
from .settings import MANAGED, PolicySettings, Settings, policy_file
from .settings_loading import load_policy

_CLOUDS = {
    "bedrock": "bedrock-runtime.*.amazonaws.com",
    "vertex": "*aiplatform.googleapis.com",
    "foundry": "*.services.ai.azure.com",
}


def require(allowed: bool, what: str, key: str) -> None:
    """Raise PolicyRefused for what the policy does not allow by this key."""
    if not allowed:
        do = f"Ask the owner of this machine: the policy is {policy_file()}."
        raise PolicyRefused(f"the policy of this machine does not allow {what} ({key})", do=do)


def check_connection(policy: PolicySettings, connection: ConnectionOptions) -> None:
    """Raise PolicyRefused for a way to a host that is refused whatever is there."""
    kind = transport_kind(connection)
    if kind is TransportKind.LOCAL:
        require(not policy.remoteOnly, "sessions on this machine", "remoteOnly")
    elif kind is not TransportKind.ASYNCSSH:
        unseen = kind is TransportKind.OPENSSH and binds_routes(policy)  # where its own configuration leads
        require(not unseen, "OpenSSH beside the SSH of ccb", "commands")
        _check_command(policy, (connection.ssh_command or connection.transport or "").strip())
        if connection.target is not None:
            _check_host(policy, connection.target.host)


def check_route(policy: PolicySettings, way: Sequence[tuple[str, str]]) -> None:
    """Raise PolicyRefused for a host on the way, as ssh_config resolves it, and for a command that makes the way."""
    for host, command in way:
        check_hop(policy, host, command)
    here = policy.remoteOnly and all(_is_loopback(host) for host, _ in way)
    require(not here, f"{way[-1][0]}, which is this machine", "remoteOnly")


def check_hop(policy: PolicySettings, host: str, command: str) -> None:
    """Raise PolicyRefused for a host that may not be connected to, or not by this command, if any."""
    _check_host(policy, host)
    if command:
        _check_command(policy, command)


def binds_routes(policy: PolicySettings) -> bool:
    return policy.remoteOnly or policy.hosts is not None


def _check_command(policy: PolicySettings, command: str) -> None:
    allowed = not binds_routes(policy) or is_allowed(command, policy.commands or ())
    require(allowed, f"a connection made by {shortened(command)!r}", "commands")


def _check_host(policy: PolicySettings, host: str) -> None:
    name = host.lower().rstrip(".")
    allowed = policy.hosts is None or any(fnmatchcase(name, each.lower()) for each in policy.hosts)
    require(allowed, f"the host {shortened(host)}", "hosts")


def _is_loopback(host: str) -> bool:
    try:
        return socket.inet_aton(host)[0] in (0, 127)
    except OSError:
        return host.lower().rstrip(".") in ("localhost", "::1", "::", socket.gethostname().lower())


def check_directory(policy: PolicySettings, path: str) -> None:
    """Raise PolicyRefused for a directory of a host in which no session may work."""
    require(holds_directory(path, policy.directories), f"sessions in {shortened(path)}", "directories")


def check_group(policy: PolicySettings, group: str, servers: Collection[str]) -> None:
    """Raise PolicyRefused for a group of sessions that may not be, and UsageError if another server has its name."""
    require(is_allowed(f"{GROUP_SERVER} {group}", policy.mcpServers), f"the group {group}", "mcpServers")
    if GROUP_SERVER in servers:
        raise UsageError(
            f"--group needs the name {GROUP_SERVER!r}, which an MCP server of yours has", do="Rename that server."
        )


def check_provider(policy: PolicySettings, server: str) -> None:
    """Raise PolicyRefused for the server of a provider that may not be asked."""
    from ccb.tunnel.providers.provider_kinds import KINDS

    name = urlsplit(f"//{server}").hostname or ""
    wanted = policy.providers if policy.providers is not None else ["*"]
    own = {each: urlsplit(KINDS[each].base_url).netloc for each in wanted if each in KINDS}
    patterns = [_CLOUDS.get(each) or own.get(each) or each.lower() for each in wanted]
    require(any(fnmatchcase(name, each) for each in patterns), f"model calls to {name}", "providers")


def own_hooks(settings: Settings) -> Mapping[str, Any]:
    """Return the hooks that may run on this machine: those of the policy, and what it allows of the person's."""
    last = {each.source == MANAGED: each.values["hooks"] for each in settings.layers if "hooks" in each.values}
    owners, own = last.get(True, {}), last.get(False, {})
    if settings.disableAllHooks or (settings.is_managed("allowManagedHooksOnly") and settings.allowManagedHooksOnly):
        own = {}
    if settings.disableAllHooks and settings.is_managed("disableAllHooks"):
        owners = {}
    patterns = settings.policy.hooks
    return {event: [*as_blocks(owners.get(event)), *_kept(own.get(event), patterns)] for event in {**owners, **own}}


def _kept(entries: object, patterns: Patterns) -> Iterator[dict[str, Any]]:
    for entry in as_blocks(entries):
        hooks = as_blocks(entry.get("hooks"))
        yield {
            **entry,
            "hooks": [each for each in hooks if is_allowed(str(each.get("command") or each.get("url")), patterns)],
        }


def ledger_folder(environ: Mapping[str, str]) -> Path:
    """Return the directory of the ledger. Where there is a policy, no variable moves it. Raise ConfigError."""
    if not os.path.lexists(policy_file()):
        return state_dir(environ)
    account = pwd.getpwuid(os.getuid())
    path = (load_policy().ledger or "~/.local/state/ccb").replace("%u", account.pw_name)
    return Path(account.pw_dir + path[1:] if path.startswith("~/") else path)
