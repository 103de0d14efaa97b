"""What the policy of this machine's owner refuses. It is asked where every way into a session passes."""

from __future__ import annotations

import os
import pwd
import socket
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ccb.tunnel.errors import PolicyRefused
from ccb.tunnel.wire.policy_patterns import Patterns, holds_directory, is_allowed

from ..command_line.arguments import ConnectionOptions, shortened
from ..command_line.transport_choice import TransportKind, transport_kind
from .log import state_dir
from .settings import PolicySettings, Settings, policy_file
from .settings_loading import load_policy

if TYPE_CHECKING:
    from ccb.tunnel.ssh_config.host_config import HostConfig

_ASK = "Ask the owner of this machine: the policy is {}."
_STRICTNESS = ("off", "workspace", "read-only")
_CLOUDS = {
    "bedrock": "bedrock-runtime.*.amazonaws.com",
    "vertex": "*aiplatform.googleapis.com",
    "foundry": "*.services.ai.azure.com",
}


def refused(what: str, key: str) -> PolicyRefused:
    return PolicyRefused(f"the policy of this machine does not allow {what} ({key})", do=_ASK.format(policy_file()))


def check_connection(policy: PolicySettings, connection: ConnectionOptions) -> None:
    """Raise PolicyRefused for a way to a host that is refused whatever is there."""
    kind = transport_kind(connection)
    if kind is TransportKind.LOCAL:
        if policy.remoteOnly:
            raise refused("sessions on this machine", "remoteOnly")
    elif kind is not TransportKind.ASYNCSSH:
        command = connection.ssh_command or connection.transport or ""
        _check_command(policy, command.strip())
        if connection.target is not None and not _is_host_allowed(policy, connection.target.host):
            raise refused(f"the host {connection.target.host}", "hosts")


def check_route(policy: PolicySettings, configs: Sequence[HostConfig]) -> None:
    """Raise PolicyRefused for a host on the way, as ssh_config resolves it, and for a command that makes the way."""
    for config in configs:
        if not _is_host_allowed(policy, config.hostname):
            raise refused(f"the host {config.hostname}", "hosts")
        if config.route.proxy_command:
            _check_command(policy, config.route.proxy_command)
    if policy.remoteOnly and all(_is_loopback(config.hostname) for config in configs):
        raise refused(f"the host {configs[-1].hostname}, which is this machine", "remoteOnly")


def binds_routes(policy: PolicySettings) -> bool:
    return policy.remoteOnly or policy.hosts is not None


def _check_command(policy: PolicySettings, command: str) -> None:
    if binds_routes(policy) and not is_allowed(command, policy.commands or ()):
        raise refused(f"a connection made by {shortened(command)!r}", "commands")


def _is_host_allowed(policy: PolicySettings, host: str) -> bool:
    patterns = policy.hosts
    return patterns is None or any(fnmatchcase(host.lower().rstrip("."), each.lower()) for each in patterns)


def _is_loopback(host: str) -> bool:
    try:
        return socket.inet_aton(host)[0] in (0, 127)
    except OSError:
        return host.lower().rstrip(".") in ("localhost", "::1", "::", socket.gethostname().lower())


def check_directory(policy: PolicySettings, path: str) -> None:
    """Raise PolicyRefused for a directory of a host in which no session may work."""
    if not holds_directory(path, policy.directories):
        raise refused(f"sessions in {shortened(path)}", "directories")


def check_agent(settings: Settings, agent: str) -> None:
    """Raise PolicyRefused for an agent of others that may not work."""
    if not is_allowed(agent, allowed_agents(settings)):
        raise refused(f"the agent {shortened(agent)!r}", "agents")


def allowed_agents(settings: Settings) -> Patterns:
    """Return the patterns of agents of others. Where the policy is about what an agent does, no other may work."""
    policy = settings.policy
    bound = policy.about_agents or (settings.is_managed("permissions") and not settings.may_bypass)
    return policy.agents if policy.agents is not None or not bound else ()


def check_sandbox(policy: PolicySettings, sandbox: str) -> None:
    if policy.sandbox is not None and _STRICTNESS.index(sandbox) < _STRICTNESS.index(policy.sandbox):
        raise refused(f"the sandbox mode {sandbox}, at least {policy.sandbox} is wanted", "sandbox")


def check_provider(policy: PolicySettings, server: str) -> None:
    """Raise PolicyRefused for the server of a provider that may not be asked."""
    from ccb.tunnel.providers.provider_kinds import KINDS

    name = urlsplit(f"//{server}").hostname or ""
    for each in policy.providers if policy.providers is not None else ("*",):
        kind = KINDS.get(each)
        own = kind.base_url.partition("://")[2].partition("/")[0] if kind is not None else ""
        if fnmatchcase(name, _CLOUDS.get(each) or own or each.lower()):
            return
    raise refused(f"model calls to {name}", "providers")


def own_hooks(settings: Settings) -> Mapping[str, Any]:
    """Return the hooks that may run on this machine."""
    by_policy, patterns = settings.is_managed("hooks"), settings.policy.hooks
    if settings.disableAllHooks and (not by_policy or settings.is_managed("disableAllHooks")):
        return {}
    if by_policy:
        return settings.hooks
    if settings.is_managed("allowManagedHooksOnly") and settings.allowManagedHooksOnly:
        return {}
    if patterns is None:
        return settings.hooks
    return {event: _kept(each, patterns) for event, each in settings.hooks.items()}


def _kept(entries: Any, patterns: Sequence[str]) -> list[Any]:
    kept = []
    for entry in entries if isinstance(entries, list) else ():
        hooks = entry.get("hooks") if isinstance(entry, dict) else None
        found = [
            each
            for each in (hooks if isinstance(hooks, list) else ())
            if isinstance(each, dict) and is_allowed(str(each.get("command") or each.get("url")), patterns)
        ]
        kept += [{**entry, "hooks": found}] if found else []
    return kept


def ledger_folder(environ: Mapping[str, str]) -> Path:
    """Return the directory of the ledger. Where there is a policy, no variable moves it. Raise ConfigError."""
    if not os.path.lexists(policy_file()):
        return state_dir(environ)
    account = pwd.getpwuid(os.getuid())
    path = (load_policy().ledger or "~/.local/state/ccb").replace("%u", account.pw_name)
    return Path(account.pw_dir + path[1:] if path.startswith("~/") else path)
