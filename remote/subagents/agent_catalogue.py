"""The definitions of agents from all sources, and the MCP servers that they bring."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from ccb.tunnel.wire.model_facts import ModelNames
from ccb.tunnel.wire.session_options import SessionOptions

from ..mcp.host_servers import Wanted, wanted_server
from ..settings.worker_settings import PROJECT, USER, WorkerSettings, digest_of, markdown_below, read_text
from ..system.process import without_ccb
from ..tools.agent_definitions import AgentDefinition, from_fields, from_markdown

CLIENT = "client"
PROJECT_AGENTS = ".claude/agents"


class Catalogue:
    """Agents besides the built-in ones. Of one name the last counts: the person's, the project's, the client's."""

    def __init__(self, options: SessionOptions, settings: WorkerSettings) -> None:
        self.problems: list[str] = []
        self._names = ModelNames(options.model_aliases)
        self._trusted_agents = settings.trusted_agents
        found: dict[str, AgentDefinition] = {}
        if USER in settings.sources:
            found.update(self._files(USER, ((path, text) for path, text in options.own_agents.items())))
        for plugin in settings.plugins:
            for name, each in self._files(USER, self._texts(os.path.join(plugin.path, "agents"))):
                found[f"{plugin.name}:{name}"] = replace(each, name=f"{plugin.name}:{name}")
        if settings.trusted and PROJECT in settings.sources:
            for directory in reversed(settings.trusted_directories):
                texts = self._texts(os.path.join(directory, PROJECT_AGENTS), settings.project_top)
                found.update(self._files(PROJECT, texts))
        for name, fields in (options.agents or {}).items():
            try:
                found[name], unused = from_fields(name, fields if isinstance(fields, dict) else {}, CLIENT, self._names)
                self.problems += unused
            except ValueError as error:
                self.problems.append(str(error))
        self.definitions = tuple(found.values())

    def _files(self, source: str, files: Iterable[tuple[str, object]]) -> Iterator[tuple[str, AgentDefinition]]:
        for path, text in files:
            try:
                definition, unused = from_markdown(str(text), source, self._names)
            except ValueError as error:
                self.problems.append(f"{path}: {error}")
                continue
            self.problems += [f"{path}: {each}" for each in unused]
            if definition is None:
                continue
            if source == PROJECT and self._trusted_agents.get(path) != digest_of(str(text)):
                if definition.hooks or definition.servers:
                    self.problems.append(f"{path}: it has changed, so its hooks and MCP servers do not count")
                definition = replace(definition, hooks=(), servers=())
            yield definition.name, replace(definition, path=path)

    def _texts(self, top: str, within: str = "") -> Iterator[tuple[str, str]]:
        for path in markdown_below(top):
            try:
                text = read_text(path, within)
            except ValueError as error:
                self.problems.append(f"{path}: {error}")
            else:
                if text is not None:
                    yield path, text


_STRICT = "this session uses only those of --mcp-config"


def own_servers(
    definition: AgentDefinition, taken: Collection[str], settings: WorkerSettings, cwd: str, *, strict: bool
) -> tuple[dict[str, Wanted], list[str]]:
    """Return the servers that an agent starts, and what the person is told of others."""
    environ = {**without_ccb(os.environ), **settings.env}
    wanted: dict[str, Wanted] = {}
    told: list[str] = []
    for name, described in definition.servers:
        about = f"The MCP server {name[:100]}"
        if described is None and name not in taken:
            whose = f"The agent {definition.name} names"
            told.append(f"{whose} the MCP server {name[:100]}, which the session does not have.")
        elif described is not None and name in taken:
            told.append(f"{about} of the session is used, and not the one that the agent calls so.")
        elif described is not None and strict and definition.source != CLIENT:
            told.append(f"{about} of the agent {definition.name} does not start: {_STRICT}.")
        elif described is not None:
            wanted[name] = wanted_server(name, described, environ, cwd, settings)
    return wanted, told
