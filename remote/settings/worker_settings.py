"""The settings of a session, merged from all sources, and whether files of the project may count.

How to use it: `agent.config.settings` is the value for the turn that runs; it changes only between turns. Before you
read any file of the project that switches something on (a hook, command, skill, agent, MCP server), look at `trusted`,
and read only below `trusted_directories`. The layers hold settings of the project only if they may count, so what
`rules`, `hooks`, `mcp_servers`, `env` and `value` return needs no further check.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

from ccb.tunnel.wire.dataclass import dataclass

Json = dict[str, Any]

USER, PROJECT, LOCAL, FLAG, KEPT, MANAGED = "user", "project", "local", "flag", "kept", "managed"
SOURCES = (USER, PROJECT, LOCAL, FLAG, KEPT, MANAGED)
"""All sources, the weakest first. `user` is the person's settings file on the laptop. `project` and `local` are files
of the project. `flag` is `--settings`. `kept` are the rules that "always" has added for this host and directory.
`managed` is the policy of an administrator, on the laptop or on the host."""

OF_PROJECT = (PROJECT, LOCAL)

MEMORIES = {PROJECT: "agent-memory", LOCAL: "agent-memory-local"}
"""The directories in `.claude` that hold the notes of agents, by their scope."""
MEMORY_FILE = "MEMORY.md"


def at_line(path: str, lines: Mapping[str, int], name: str) -> str:
    """Return the file with the number of the line on which a value stands, or the value that holds it."""
    while name and name not in lines:
        name = name.rpartition(".")[0]
    return f"{path}, line {lines[name]}" if name else path


@dataclass(frozen=True)
class Layer:
    """The settings of one source. `path` names its file, or the flag. `on_host`: the file is on the host. `lines` are
    the lines of the values. `broken` says why a file cannot be used: it may hold rules that deny, so it denies all."""

    source: str
    path: str
    values: Mapping[str, Any]
    on_host: bool = False
    lines: Mapping[str, int] = field(default_factory=dict)
    broken: str = ""


@dataclass(frozen=True)
class Sourced:
    """A value and the layer that sets it. The value is as in the file; its reader checks its type. `key` is its name,
    with dots."""

    value: Any
    layer: Layer
    key: str = ""

    @property
    def place(self) -> str:
        """The file of the value, with the line if that is known."""
        return at_line(self.layer.path, self.layer.lines, self.key)


@dataclass(frozen=True)
class Plugin:
    """A directory that a client's command line names. What it brings is known as `name:…`."""

    name: str
    path: str


@dataclass(frozen=True)
class WorkerSettings:
    """`layers` are ordered from the weakest to the strongest. `sources` are those of `--setting-sources`: without
    `project`, instruction files of the project do not count either. `trusted`: what the project switches on may count;
    `trusted_directories` are then the real paths whose `.claude` directories and `.mcp.json` count, the session's
    directory first; otherwise it is empty. `left_open` names what the person has not chosen for a new session (`model`,
    `permission_mode`), which a trusted project may. `trusted_agents` are the digests of the files of its agents that
    have hooks or MCP servers, by path, as the person has trusted them."""

    layers: tuple[Layer, ...] = ()
    sources: frozenset[str] = frozenset((USER, PROJECT, LOCAL))
    trusted: bool = False
    trusted_directories: tuple[str, ...] = field(default=())
    left_open: tuple[str, ...] = field(default=())
    plugins: tuple[Plugin, ...] = ()
    trusted_agents: Mapping[str, str] = field(default_factory=dict)

    @property
    def project_top(self) -> str:
        """The directory that a trusted project is in, "" if none is trusted."""
        return self.trusted_directories[-1] if self.trusted_directories else ""

    def value(self, name: str) -> Sourced | None:
        """Return the strongest value of a key that only one layer can set, such as `model`; None if none sets it."""
        return next((each for each in reversed(list(self.each(name)))), None)

    def each(self, name: str) -> Iterator[Sourced]:
        """Yield the value of a key in each layer that sets it, the weakest first."""
        for layer in self.layers:
            if layer.values.get(name) is not None:
                yield Sourced(layer.values[name], layer)

    @property
    def hooks(self) -> list[Sourced]:
        """The `hooks` objects of all layers, as in the files. All of them run. They run on the host only."""
        return [each for each in self.each("hooks") if self.runs_hooks(each.layer.source)]

    def runs_hooks(self, source: str) -> bool:
        """Return whether the hooks of a source run."""
        disabled = self.value("disableAllHooks")
        if disabled is not None and disabled.value is True:
            return False
        return source == MANAGED or all(each.value is not True for each in self.of("allowManagedHooksOnly", MANAGED))

    def of(self, name: str, source: str) -> list[Sourced]:
        """Return the values of a key that layers of one source set."""
        return [each for each in self.each(name) if each.layer.source == source]

    @property
    def mcp_servers(self) -> dict[str, Sourced]:
        """The MCP servers of the project by name, as in its files. Servers of the person's own settings run on the
        laptop and are not here."""
        return self._merged("mcpServers")

    @property
    def env(self) -> dict[str, str]:
        """The variables for the environment of the tools."""
        return {name: each.value for name, each in self._merged("env").items() if isinstance(each.value, str)}

    def rules(self, behavior: str) -> list[Sourced]:
        """Return the permission rules that allow, ask or deny (`behavior`), as texts, the weakest source first."""
        found = []
        for each in self.each("permissions"):
            rules = each.value.get(behavior) if isinstance(each.value, dict) else None
            if isinstance(rules, list):
                key = f"permissions.{behavior}"
                found += [Sourced(rule, each.layer, f"{key}.{at}") for at, rule in enumerate(rules)]
        return found

    @property
    def directories(self) -> list[str]:
        """The real paths of further working directories, which a trusted project or an earlier answer has added."""
        permissions = [each.value for each in self.each("permissions") if each.layer.source in (*OF_PROJECT, KEPT)]
        return [path for each in permissions for path in each.get("additionalDirectories", [])]

    def of_project(self, name: str) -> str:
        """Return what a trusted project sets for `model` or `defaultMode`, "" for nothing."""
        found = ""
        for layer in self.layers:
            if layer.source in OF_PROJECT:
                holder = layer.values if name == "model" else layer.values.get("permissions", {})
                found = holder.get(name) or found
        return found

    def _merged(self, name: str) -> dict[str, Sourced]:
        found: dict[str, Sourced] = {}
        for each in self.each(name):
            if isinstance(each.value, dict):
                found.update({key: Sourced(value, each.layer) for key, value in each.value.items()})
        return found
