"""The settings of a session. Read files of a project only if it is `trusted`, and below `trusted_directories`."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import Any, Callable

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.settings_text import lines_in, load_settings

from ..system.host import is_under

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")
Json = dict[str, Any]

_ROOT = "${CLAUDE_PLUGIN_ROOT}"


def read_plugins(
    directories: Iterable[str], cwd: str, report: Callable[[str], None]
) -> tuple[list[Plugin], list[Layer]]:
    """Return the plugins in these directories, and their layers. What cannot be used is reported in words."""
    plugins: list[Plugin] = []
    layers: list[Layer] = []
    for given in directories:
        path = os.path.normpath(os.path.join(cwd, os.path.expanduser(given)))
        if not os.path.isdir(path):
            report(f"There is no plugin {path} on this host.")
            continue
        manifest = read_settings(os.path.join(path, ".claude-plugin", "plugin.json"), report)
        name = (manifest.values if manifest is not None else {}).get("name", os.path.basename(path))
        if not isinstance(name, str) or not _NAME.fullmatch(name) or any(name == each.name for each in plugins):
            report(f"{path}: {str(name)[:100]!r} cannot be the name of another plugin")
            continue
        plugins.append(Plugin(name, path))
        for below, key in ((os.path.join("hooks", "hooks.json"), "hooks"), (".mcp.json", "mcpServers")):
            layer = read_settings(os.path.join(path, below), report, FLAG, path)
            value = None if layer is None else layer.broken or layer.values.get(key)
            if layer and (isinstance(value, dict) or (value and key == "hooks")):  # broken hooks are refused by name
                layers.append(replace(layer, values={key: value}, broken=""))
    return plugins, layers


_MAX_BYTES = 256 * 1024


def read_text(path: str, within: str = "") -> str | None:
    """Return the text of a regular file of at most 256 KiB, None without one. Raise ValueError if it cannot be used, as
    one that a link leads to out of the directory `within`: a clone could bring any text of the person's into the
    conversation. Does not block on a FIFO."""
    if within:
        path = os.path.realpath(path)
        if not is_under(path, within):
            raise ValueError("it is behind a link that leads out of the project")
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ValueError("it is not a file")
            data = file.read(_MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror}") from None
    if len(data) > _MAX_BYTES:
        raise ValueError(f"it is larger than {_MAX_BYTES} bytes")
    return data.decode("utf-8-sig")


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def read_layer(path: str, source: str, plugin: str = "") -> tuple[Layer, list[str]] | None:
    """Return the settings in a file, and notes about double keys; None without a file. One that cannot be used is
    `broken`. `plugin` is the directory of the plugin that has the file."""
    try:
        text = read_text(path)
        if text is None:
            return None
        text = text.replace(_ROOT, json.dumps(plugin)[1:-1]) if plugin else text
        values = load_settings(text) if text.strip() else {}
        if not isinstance(values, dict):
            raise ValueError("it is not a JSON object")
    except json.JSONDecodeError as error:
        broken = f"{path}, line {error.lineno}: {error.msg}"
    except UnicodeDecodeError:
        broken = f"{path}: it is not UTF-8 text"
    except (ValueError, RecursionError) as error:
        broken = f"{path}: {error}"
    else:
        lines, again = lines_in(text)
        effect = "stands here again: entries of both count, of single values the last"
        notes = [f"{path}, line {line}: {name} {effect}" for name, line in again.items()]
        return Layer(source, path, values, True, lines), notes
    return Layer(source, path, {}, True, broken=broken), []


def read_settings(path: str, report: Callable[[str], None], source: str = "", plugin: str = "") -> Layer | None:
    """Return the settings in a file, None without one. What is wrong with it is reported."""
    layer, notes = read_layer(path, source, plugin) or (None, [])
    for text in filter(None, (layer.broken, *notes) if layer is not None else ()):
        report(text)
    return layer


_MAX_NAMES = 2000


def markdown_below(top: str) -> Iterator[str]:
    """Yield the files of agents or commands below a directory, in order. Links to directories are not followed."""
    count = 0
    for here, directories, names in os.walk(top):
        directories.sort()
        for name in sorted(names):
            count += 1
            if count > _MAX_NAMES:
                return
            if name.endswith(".md"):
                yield os.path.join(here, name)


def skills_in(top: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the file of each skill in a directory, in order. The directory of a skill may be a link."""
    try:
        names = sorted(os.listdir(top))[:_MAX_NAMES]
    except OSError:
        return
    for name in names:
        path = os.path.join(top, name, "SKILL.md")
        if os.path.lexists(path):
            yield name, path


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
    values: Json
    on_host: bool = False
    lines: Mapping[str, int] = field(default_factory=dict)
    broken: str = ""

    def told(self, found: Iterable[tuple[str, str]]) -> list[str]:
        """Return sentences about what was found of values: their names, and what is to be said of each."""
        return [f"{at_line(self.path, self.lines, name)}: {said}" for name, said in found]


@dataclass(frozen=True)
class Sourced:
    """A value as in the file (its reader checks its type), its layer, and its name with dots."""

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
    """`layers` are ordered from the weakest to the strongest. `sources` are those of `--setting-sources`.
    `trusted_directories` are the real paths whose `.claude` directories and `.mcp.json` count, the session's directory
    first. `left_open` names what a trusted project may choose (`model`, `permission_mode`). `trusted_agents` are the
    digests of the files of its agents that bring hooks or MCP servers."""

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
        disabled = self.value("disableAllHooks")
        if disabled is not None and disabled.value is True:
            return source == MANAGED and disabled.layer.source != MANAGED
        return source == MANAGED or all(each.value is not True for each in self.of("allowManagedHooksOnly", MANAGED))

    def bound(self, name: str) -> Any:
        """Return what the policy of the laptop's owner says of something, None for nothing. No host has a say."""
        bounds = [each.value for each in self.of("policy", MANAGED) if not each.layer.on_host]
        return bounds[-1].get(name) if bounds else None

    def of(self, name: str, source: str) -> list[Sourced]:
        """Return the values of a key that layers of one source set."""
        return [each for each in self.each(name) if each.layer.source == source]

    @property
    def mcp_servers(self) -> dict[str, Sourced]:
        """The MCP servers of the project by name. Servers of the person's own settings run on the laptop."""
        return self._merged("mcpServers")

    @property
    def env(self) -> dict[str, str]:
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
