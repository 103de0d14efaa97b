"""Decide whether what a project switches on may count, and keep that decision."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ccb.tunnel.errors import CcbError, ConfigError
from ccb.tunnel.link.link import Greeting
from ccb.tunnel.plain_text import HostText, one_line
from ccb.tunnel.wire.control_protocol import (
    READS_SERVICES,
    TRUST_PROJECT,
    ProjectTrust,
    Request,
    RequestFailed,
    RequestRefused,
)
from ccb.tunnel.wire.session_options import SettingsOption
from ccb.tunnel.wire.settings_text import lines_in
from ccb.tunnel.wire.tool_traits import BASH

from ..command_line.arguments import Arguments, ConnectionOptions
from ..command_line.transport_choice import TransportKind, host_key, host_label, ssh_target, transport_kind
from ..config.project_records import DIRECTORIES, EVERYWHERE, RULE_KINDS, HostIdentity, ProjectRecord, Projects
from ..config.settings import CLAUDE, KEPT, MANAGED, POLICY, USER, Settings
from .session_request import given_mode

if TYPE_CHECKING:
    from ..session.remote_session import RemoteSession

FOR_WORKER = (
    *("model", "permissions", "hooks", "disableAllHooks", "allowManagedHooksOnly", "env"),
    *("language", "outputStyle", "autoCompactEnabled"),
)
"""The settings that concern the worker. The others stay on this machine, MCP servers of the person's own among them."""
_BOUNDS_OF_WORKER = ("sandbox", "directories", "hooks", "mcpServers", "agents")
ANY_PROJECT = "*"
_MAX_BYTES = 96 * 1024
_KEPT_IN = ("localSettings", "projectSettings", "userSettings")
_MAX_SWITCHES = 12
_MAX_SWITCH = 200  # characters
_READS = f"{BASH.name}({READS_SERVICES})"  # the one rule of "always" that is about the host and not about a project
ASK_READER = replace(
    TRUST_PROJECT, write=lambda about: {"input": {"directory": about.directory, "switches": list(about.switches)}}
)
"""The question as the reader of the session's events gets it: as if it were about the input of a call."""


async def host_identity(connection: ConnectionOptions) -> HostIdentity:
    """Return the identity of a host, after the login, when known_hosts has its key. Raises CcbError."""
    kind = transport_kind(connection)
    if kind is TransportKind.LOCAL:
        keys = ["local"]
    elif kind in (TransportKind.ASYNCSSH, TransportKind.OPENSSH):
        keys = await _ssh_keys(connection)
    else:
        target = connection.target.login if connection.target else ""
        command = f"{connection.ssh_command or connection.transport} {target}"
        keys = [f"command {hashlib.sha256(command.encode()).hexdigest()}"]  # it may contain a password
    place = f" container {connection.container}" if connection.container else ""
    return HostIdentity(host_key(connection), tuple(f"{key}{place}" for key in keys))


async def _ssh_keys(connection: ConnectionOptions) -> list[str]:
    from ccb.tunnel.ssh_config.config_files import resolve
    from ccb.tunnel.transports.command_transport import words_of
    from ccb.tunnel.transports.host_keys import look_up

    words = words_of(connection.ssh_command or "ssh", "--ssh-command")
    trust = (await resolve(ssh_target(connection), words)).trust
    known = await asyncio.to_thread(look_up, trust.known_hosts, trust.name, trust.port)

    keys = [key.get_fingerprint() for key in known.trusted]
    keys += [f"authority {key.get_fingerprint()} {trust.name}" for key in known.authorities]
    return list(dict.fromkeys(keys)) or [f"name {trust.name}:{trust.port}"]


Json = dict[str, object]


class ProjectDesk:
    def __init__(self, arguments: Arguments, settings: Settings, projects: Projects) -> None:
        self._arguments = arguments
        self._settings = settings
        self._projects = projects
        self._identity: HostIdentity | None = None
        self._directory = ""
        self._kept: ProjectRecord | None = None

    @property
    def kept_rules(self) -> Mapping[str, Sequence[str]]:
        """The rules of "always" for the project: those of the moment when this client attached, with its changes."""
        return self._kept.permissions if self._kept is not None else {}

    async def option(self, hello: Greeting) -> SettingsOption:
        """Return what the worker is told about settings when this client begins to drive. Raises CcbError."""
        sources = self._arguments.sdk.setting_sources
        self._directory = hello.cwd.raw
        kept = self._kept = await self._record(hello.cwd.raw)
        layers: list[Json] = []
        for layer in self._settings.layers:
            source = USER if layer.source == CLAUDE else layer.source
            values = {name: value for name, value in layer.values.items() if name in FOR_WORKER}
            if layer.source == MANAGED:  # what of the policy only the worker can see being passed
                bounds = {name: getattr(self._settings.policy, name) for name in _BOUNDS_OF_WORKER}
                values[POLICY] = {name: value for name, value in bounds.items() if value is not None}
            if values:
                layers.append({"source": source, "path": layer.path, "values": values, **_lines(layer.text, values)})
        if kept is not None and kept.permissions:
            values = {"permissions": kept.permissions}
            layers.append({"source": KEPT, "path": str(self._projects.path), "values": values})
        if len(json.dumps(layers)) > _MAX_BYTES:
            raise ConfigError(f"the settings for the worker are larger than {_MAX_BYTES} bytes", do="Shorten them.")
        trusted = ANY_PROJECT if self._arguments.permissions.trust else kept.trusted if kept is not None else ""
        chosen = None if sources is None else sources.split(",") if sources else []
        return SettingsOption(layers, chosen, trusted, [] if hello.seq else self._left_open())

    def _left_open(self) -> list[str]:
        """Return what the person has not chosen, so that a trusted project may."""
        settings = self._settings
        mode = given_mode(self._arguments, settings) or settings.permissionMode or settings.permissions.defaultMode
        chosen = {"model": self._arguments.agent.model or settings.model, "permission_mode": mode}
        return [name for name, value in chosen.items() if not value]

    async def answer(self, session: RemoteSession, question: ProjectTrust) -> Json:
        """Answer the worker's question, by asking the reader where nothing is kept. Raises RequestRefused."""
        for problem in question.problems:
            session.warn(f"on the host: {HostText(problem)}")
        if not question.switches:
            return {"trusted": True}
        try:
            return {"trusted": await self._trusts(session, question)}
        except CcbError as error:
            session.warn(error.what)
            raise RequestRefused(error.what) from error

    async def keep(self, updates: Sequence[Mapping[str, Any]]) -> None:
        """Keep the lasting rules and directories of permission updates, never in the clone. Raises CcbError."""
        changed = False
        for update in updates:
            what = str(update.get("type"))
            kind, texts = _kept(update)
            if update.get("destination") not in _KEPT_IN or not kind:
                continue
            where = EVERYWHERE if texts == [_READS] else self._directory
            change = partial(self._projects.change_rules, await self._host(), where, kind, texts)
            await asyncio.to_thread(partial(change, add=not what.startswith("remove"), only=what == "replaceRules"))
            changed = True
        if changed:
            self._kept = await self._record(self._directory)

    @property
    def ignored_ports(self) -> tuple[int, ...]:
        """The ports that are not offered in this project, by its record and by the settings."""
        kept = self._kept.ignored_ports if self._kept is not None else ()
        return (*kept, *self._settings.ports.ignore)

    async def ignore_port(self, port: int) -> None:
        """Do not offer a port of this project any more. Raises CcbError."""
        await asyncio.to_thread(self._projects.ignore_port, await self._host(), self._directory, port)
        self._kept = await self._record(self._directory)

    async def command(self, argument: str) -> list[str]:
        """Answer `/trust`: say what is kept of the project, or with `revoke` forget it. Raises CcbError."""
        if argument not in ("", "revoke"):
            return ["/trust shows what is kept of this project, /trust revoke takes it back."]
        record = await self._record(self._directory)
        where = f"{host_label(self._arguments.connection)}:{HostText(self._directory).path}"
        if record is None or not (record.trusted or record.permissions):
            return [f'Nothing is kept of {where}: it is not trusted, and has no rules of "always".']
        if argument:
            host = await self._host()
            gone = partial(self._projects.forget, lambda each: each.fits(host, self._directory))
            await asyncio.to_thread(gone)
            return [f"Nothing is kept of {where} any more. This session goes on as it began; the next one asks."]
        rules = [f"  {kind} {rule}" for kind, each in record.permissions.items() for rule in each]
        trusted = "is trusted" if record.trusted else "is not trusted"
        more = f"`ccb trust {where}` shows all that it switches on, /trust revoke takes it back."
        return [f"{where} {trusted}.", *(['Rules of "always":', *rules] if rules else []), more]

    async def _trusts(self, session: RemoteSession, question: ProjectTrust) -> bool:
        if self._arguments.permissions.trust:
            return True
        kept = await self._record(question.directory)
        if kept is not None and kept.trusted == question.fingerprint:
            return True
        try:
            if not await session.ask_reader(Request(ASK_READER, question)):
                return False
        except RequestFailed:  # nobody can be asked
            session.warn(_untrusted(question))
            return False
        host = await self._host()
        await asyncio.to_thread(self._projects.trust, host, question.directory, question.fingerprint)
        return True

    async def _record(self, directory: str) -> ProjectRecord | None:
        """Return what is known of a project. The host is identified only if that matters: it takes time."""
        if not await asyncio.to_thread(self._projects.knows, directory):
            return None
        return await asyncio.to_thread(self._projects.find, await self._host(), directory)

    async def _host(self) -> HostIdentity:
        if self._identity is None:
            self._identity = await host_identity(self._arguments.connection)
        return self._identity


def _lines(text: str, values: Mapping[str, object]) -> Json:
    if "hooks" not in values:
        return {}
    return {"lines": {name: line for name, line in lines_in(text)[0].items() if name.startswith("hooks")}}


def _kept(update: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Return the kind of what an update adds or removes, "" for nothing that is kept, and its texts."""
    kind, rules, directories = str(update.get("behavior")), update.get("rules"), update.get("directories")
    if update.get("type") in ("addRules", "removeRules", "replaceRules") and kind in RULE_KINDS:
        named = [(each.get("toolName"), each.get("ruleContent")) for each in rules or () if isinstance(each, dict)]
        return kind, [f"{name}({content})" if content else str(name) for name, content in named]
    if update.get("type") in ("addDirectories", "removeDirectories"):
        return DIRECTORIES, [each for each in directories or () if isinstance(each, str)]
    return "", []


def _untrusted(question: ProjectTrust) -> str:
    shown = [" ".join(filter(None, (each["kind"], each["name"], each.get("detail")))) for each in question.switches]
    names = "; ".join(one_line(text)[:_MAX_SWITCH] for text in shown[:_MAX_SWITCHES])
    more = f"; and {len(shown) - _MAX_SWITCHES} more" if len(shown) > _MAX_SWITCHES else ""
    where = HostText(question.directory)
    return f"{where} is not trusted, so this does not count: {names}{more} (--trust lets it count)"
