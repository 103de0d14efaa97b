"""The agents of a session from all sources: built-in, of the person, of the trusted project, of the client."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ccb.tunnel.wire import SessionOptions
from ccb.tunnel.wire.models import ModelNames

from ..settings.settings_files import digest_of, read_text
from ..settings.worker_settings import PROJECT, USER, WorkerSettings
from ..tools.agents.definition import AgentDefinition
from ..tools.agents.reading import from_fields, from_markdown
from .sub_agents import PROJECT_AGENTS

CLIENT = "client"
_MAX_FILES = 200


class Catalogue:
    """What can be started besides the built-in agents. Of several definitions of one name the last one counts: the
    person's, the project's (the nearest directory last), the client's. `problems` are sentences about what cannot be
    used."""

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
            yield definition.name, definition

    def _texts(self, top: str, within: str = "") -> Iterator[tuple[str, str]]:
        """Yield the path and the text of each Markdown file below `top`."""
        count = 0
        for here, directories, names in os.walk(top):
            directories.sort()
            for name in sorted(names):
                count += 1
                if count > _MAX_FILES:
                    self.problems.append(f"{top}: more than {_MAX_FILES} files; the others do not count")
                    return
                path = os.path.join(here, name)
                try:
                    text = read_text(path, within) if name.endswith(".md") else None
                except ValueError as error:
                    self.problems.append(f"{path}: {error}")
                    continue
                if text is not None:
                    yield path, text
