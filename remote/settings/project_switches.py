"""What the files of a project would switch on: the question that the person answers before any of it counts."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.tool_traits import no_such_tool, rule_parts

from ..system.owners import is_ours, only_we_write, owner_of
from . import worker_settings
from .front_matter import NESTED, read_markdown, read_nested
from .worker_settings import Json, Layer

_FILES = ((worker_settings.PROJECT, ".claude/settings.json"), (worker_settings.LOCAL, ".claude/settings.local.json"))
_MCP_FILE = ".mcp.json"
_TEXTS = (("agent", ".claude/agents"), ("command", ".claude/commands"))
_SKILLS = ".claude/skills"
_KEYS: dict[str, type] = {
    "permissions": dict, "hooks": dict, "env": dict, "model": str, "outputStyle": str, "language": str,
    "autoCompactEnabled": bool, "disableAllHooks": bool, "mcpServers": dict, "enabledMcpjsonServers": list,
    "disabledMcpjsonServers": list, "enableAllProjectMcpServers": bool,
}  # fmt: skip
_RULES = ("allow", "ask", "deny")
_LISTS = (*_RULES, "additionalDirectories")
_MODES = ("default", "plan", "acceptEdits", "dontAsk")
EVERY_CALL = "every call"
"""What a settings file denies that cannot be read: nobody knows what it would deny."""
_MAX_ITEMS = 500
_MAX_DETAIL = 2000  # characters
_MAX_SHOWN = 200
_NO_EFFECT = "it does not count"
_ALL = "until that is corrected, it covers all that it may have been about"


@dataclass(frozen=True)
class ProjectSwitch:
    """One thing that a project switches on. `detail` shows what it can do, and `owner` whose the file is."""

    kind: str
    name: str
    detail: str = ""
    path: str = ""
    owner: str = field(default="", compare=False)


@dataclass(frozen=True)
class Project:
    """What the files of a project bring. `directories` are the real paths of its directories, the session's first.
    `problems` are sentences about files that cannot be used. `agents` are the digests of the files of agents that have
    hooks or MCP servers, by path."""

    directories: tuple[str, ...]
    layers: tuple[Layer, ...] = ()
    switches: tuple[ProjectSwitch, ...] = ()
    problems: tuple[str, ...] = field(default=())
    agents: Mapping[str, str] = field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """A hash that changes with anything that the project switches on."""
        what = sorted((each.kind, each.name, each.detail, each.path) for each in self.switches)
        return hashlib.sha256(json.dumps([self.directories[0], what]).encode()).hexdigest()


def read_project(cwd: str, home: str, sources: frozenset[str]) -> Project:
    """Read what the project of a session in `cwd` brings. One without such files costs a few system calls."""
    directories = project_directories(cwd, home)
    if not any(os.path.lexists(os.path.join(each, name)) for each in directories for name in (".claude", _MCP_FILE)):
        return Project(directories)
    problems: list[str] = []
    layers = list(_settings_layers(directories, sources, home, problems))
    texts: list[ProjectSwitch] = []
    agents: dict[str, str] = {}
    if worker_settings.PROJECT in sources:
        own = os.path.realpath(home) if home and worker_settings.USER in sources else ""
        layers = [*_server_layers(directories, problems), *layers]
        for directory in directories[::-1]:
            texts += _texts(directory, directories[-1], agents, _TEXTS[:1] if directory == own else _TEXTS)
        texts += _memories(directories[0]) if directories[0] != own else ()
    switches = [*(each for layer in layers for each in switches_of(layer)), *texts]
    if len(switches) > _MAX_ITEMS:
        problems.append(f"{directories[0]}: more than {_MAX_ITEMS} things are switched on; none of them counts")
        return Project(directories, problems=tuple(problems))
    return Project(directories, tuple(layers), _owned(switches), tuple(problems), agents)


def _owned(switches: Sequence[ProjectSwitch]) -> tuple[ProjectSwitch, ...]:
    owners = {path: owner_of(path) for path in {each.path for each in switches}}
    return tuple(replace(each, owner=owners[each.path]) for each in switches)


def _settings_layers(
    directories: Sequence[str], sources: frozenset[str], home: str, problems: list[str]
) -> Iterator[Layer]:
    for source, name in [each for each in _FILES if each[0] in sources]:
        paths = [found for each in directories if os.path.lexists(found := os.path.join(each, name))]
        path = next((each for each in paths if each == os.path.join(directories[0], name) or is_ours(each)), "")
        layer, notes = (worker_settings.read_layer(path, source) if path else None) or (None, [])
        if layer is None:
            continue
        problems += notes
        if layer.broken:
            problems.append(f"{layer.broken}; until that is corrected, every call is denied if the project is trusted")
        problems += [*checked(layer), *unknown_keys(layer), *layer.told(_not_a_projects(layer.values, path, home))]
        problems += layer.told(_rules_without_tool(layer.values))
        yield layer


def _server_layers(directories: Sequence[str], problems: list[str]) -> Iterator[Layer]:
    for directory in directories[::-1]:
        path = os.path.join(directory, _MCP_FILE)
        counts = directory == directories[0] or _is_kept(path)
        layer = worker_settings.read_settings(path, problems.append, worker_settings.PROJECT) if counts else None
        if layer is not None and not layer.broken:
            yield replace(layer, values={"mcpServers": layer.values.get("mcpServers")}, lines={})


def checked(layer: Layer) -> list[str]:
    """Take what has a wrong type out of the values, and return sentences about it."""
    return layer.told(_wrong(layer.values))


def _wrong(values: Json) -> Iterator[tuple[str, str]]:
    for name, kind in _KEYS.items():
        given = values.get(name, kind())
        if isinstance(given, kind):
            continue
        refuses = bool(given) and name in ("permissions", "hooks")
        yield name, f"{name} has a wrong value; {_ALL if refuses else _NO_EFFECT}"
        if not refuses:
            del values[name]
        elif name == "permissions":
            values[name] = {"deny": [given]}
    env, permissions = values.get("env", {}), values.get("permissions", {})
    for name in [name for name, value in env.items() if not isinstance(value, str)]:
        del env[name]
        yield f"env.{name}", f"env.{name} has a wrong value; {_NO_EFFECT}"
    if not isinstance(permissions.get("defaultMode", ""), str):
        del permissions["defaultMode"]
        yield "permissions.defaultMode", f"permissions.defaultMode has a wrong value; {_NO_EFFECT}"
    for key in _LISTS:
        yield from _wrong_entries(permissions, key)


def _wrong_entries(permissions: Json, key: str) -> Iterator[tuple[str, str]]:
    given, name, refuses = permissions.get(key, []), f"permissions.{key}", key in ("ask", "deny")
    if not isinstance(given, list):
        yield name, f"{name} is no list; {'it counts as one entry' if refuses and given else _NO_EFFECT}"
        permissions[key] = given = [given] if refuses and given else []
    for at, each in enumerate(given):
        why = _no_rule(each, key)
        if why:
            yield f"{name}.{at}", f"{name}.{at}: {why}; {_ALL if refuses and each else _NO_EFFECT}"
    if given and not refuses:
        permissions[key] = [each for each in given if not _no_rule(each, key)]


def _no_rule(given: object, key: str = _RULES[0]) -> str:
    if not isinstance(given, str):
        return f"{str(given)[:_MAX_SHOWN]!r} is no text"
    if key not in _RULES:
        return ""
    try:
        rule_parts(given)
    except ValueError as error:
        return str(error)
    return ""


def unknown_keys(layer: Layer, also: Sequence[str] = ()) -> list[str]:
    """Take the keys that have no effect on a host out of the values, and return sentences about them."""
    permissions = layer.values.get("permissions", {})
    found = [name for name in layer.values if name not in (*_KEYS, *also) and not name.startswith("$")]
    nested = [key for key in permissions if key not in (*_LISTS, "defaultMode", *also)]
    for name in found:
        del layer.values[name]
    for key in nested:
        del permissions[key]
    names = [*found, *(f"permissions.{key}" for key in nested)]
    return layer.told((name, f"unknown key {name!r} has no effect") for name in names)


def _not_a_projects(values: Json, path: str, home: str) -> list[tuple[str, str]]:
    """Take what a project cannot choose out of the values, and return it with why. Directories become real paths."""
    permissions = values.get("permissions", {})
    found = []
    mode = permissions.get("defaultMode", "default")
    if mode not in _MODES:
        del permissions["defaultMode"]
        found.append(("permissions.defaultMode", f"a project cannot choose the mode {mode!r}"))
    root = os.path.dirname(os.path.dirname(path))
    given = permissions.get("additionalDirectories", [])
    kept = []
    for each in given:
        real = os.path.realpath(os.path.join(root, home + each[1:] if each == "~" or each.startswith("~/") else each))
        below = os.path.relpath(real, os.path.realpath(home))
        if below.split("/")[-1] == ".." or (below.startswith(".") and not below.startswith("../")):
            why = f"a project cannot add {each!r}: it is or holds the home directory, or is hidden in it"
            found.append(("permissions.additionalDirectories", why))
        else:
            kept.append(real)
    if given:
        permissions["additionalDirectories"] = kept
    return found


def _rules_without_tool(values: Json) -> Iterator[tuple[str, str]]:
    permissions = values.get("permissions", {})
    for key in _RULES:
        for at, rule in enumerate(permissions.get(key, [])):
            wrong = "" if _no_rule(rule) else no_such_tool(rule.strip().partition("(")[0])
            if wrong:
                yield f"permissions.{key}.{at}", f"permissions.{key}: {wrong}"


def project_directories(cwd: str, home: str) -> tuple[str, ...]:
    """Return the real path of `cwd` and of its parents up to the root of its repository, but for those to which others
    may write. The home directory and those above it are no project's, except for a session that works there."""
    first = here = os.path.realpath(cwd)
    found = [first]
    above = os.path.realpath(home)
    while not os.path.lexists(os.path.join(here, ".git")):
        here = os.path.dirname(here)
        if here == os.path.dirname(here) or (above + "/").startswith(here + "/"):
            return (first,)
        found.append(here)
    if here != first and not is_ours(os.path.join(here, ".git")):
        return (first,)
    return (first, *(each for each in found[1:] if only_we_write(each) and _is_kept(os.path.join(each, ".claude"))))


def _is_kept(path: str) -> bool:
    return is_ours(path) or not os.path.lexists(path)


def switches_of(layer: Layer) -> Iterator[ProjectSwitch]:
    if layer.broken:
        yield ProjectSwitch("deny", EVERY_CALL, layer.broken, layer.path)
    for name, value in sorted(layer.values.items()):
        if name == "hooks" and isinstance(value, dict):
            yield from _hooks(value, layer.path)
        elif name == "mcpServers" and isinstance(value, dict):
            for server, given in sorted(value.items()):
                yield ProjectSwitch("mcp", server, _command_line(given), layer.path)
        elif name == "permissions" and isinstance(value, dict):
            yield from _permissions(value, layer.path)
        elif not name.startswith("$"):
            yield ProjectSwitch("setting", name, _short(value), layer.path)


def _permissions(permissions: Json, path: str) -> Iterator[ProjectSwitch]:
    for key, rules in sorted(permissions.items()):
        for rule in map(str, rules if isinstance(rules, list) else [rules]):
            if key in _RULES:
                yield ProjectSwitch(key, rule, "", path)
            else:
                yield ProjectSwitch("setting", f"permissions.{key}", rule, path)


def _hooks(events: Json, path: str) -> Iterator[ProjectSwitch]:
    for event, matchers in sorted(events.items()):
        for entry in matchers if isinstance(matchers, list) else [matchers]:
            matcher = entry.get("matcher") or "" if isinstance(entry, dict) else ""
            given = entry.get("hooks") if isinstance(entry, dict) else entry
            for hook in given if isinstance(given, list) else [given]:
                whole = hook if isinstance(hook, dict) else {}
                command = whole.get("command") if whole.keys() <= {"type", "command", "timeout"} else None
                yield ProjectSwitch("hook", f"{event} {matcher}".strip(), command or _short(hook), path)


def _command_line(server: object) -> str:
    """Return how a server is started. The names of its variables stand first, so that no long argument hides them."""
    if isinstance(server, dict) and isinstance(server.get("command"), str):
        given, env = server.get("args"), server.get("env")
        args = given if isinstance(given, list) else []
        line = " ".join([server["command"], *map(str, args), *([_short(env)] if env else [])])
        names = ", ".join(" ".join(name.split()) for name in sorted(env)) if isinstance(env, dict) else ""
        return f"env: {names}\n{line}" if names else line
    if isinstance(server, dict) and isinstance(server.get("url"), str):
        return " ".join([server["url"], *([_short(server["headers"])] if server.get("headers") else [])])
    return _short(server)


def _short(value: object) -> str:
    return _cut(json.dumps(value, ensure_ascii=False, sort_keys=True))


def _cut(text: str) -> str:
    if len(text) <= _MAX_DETAIL:
        return text
    return f"{text[:_MAX_DETAIL]}… ({hashlib.sha256(text.encode()).hexdigest()[:16]})"


def _texts(
    directory: str, top: str, agents: dict[str, str], kinds: Sequence[tuple[str, str]]
) -> Iterator[ProjectSwitch]:
    """Yield the agents, commands and skills in the `.claude` directory of a directory, and the hooks and MCP servers of
    agents, whose files are added to `agents`. `top` is the directory of the project. What counts of a text is its front
    matter and the commands that it runs. Skills are left out where commands are: those in the home directory are the
    person's own and count anyway."""
    for kind, below in kinds:
        place = os.path.join(directory, below)
        for path in worker_settings.markdown_below(place):
            name = os.path.relpath(path, place)[: -len(".md")]
            text = _text(path, top)
            yield ProjectSwitch(kind, name, _powers(text), path)
            if kind == "agent":
                own = list(_of_agent(name, text, path))
                if own:
                    agents[path] = worker_settings.digest_of(text)
                yield from own
    for name, path in worker_settings.skills_in(os.path.join(directory, _SKILLS)) if kinds is _TEXTS else ():
        yield ProjectSwitch("skill", name, _powers(_text(path, top)), path)


def _memories(directory: str) -> Iterator[ProjectSwitch]:
    """Yield the memories of agents. Their content is not part of what is trusted: the agent itself changes it."""
    for place in worker_settings.MEMORIES.values():
        top = os.path.join(directory, ".claude", place)
        names = sorted(os.listdir(top)) if os.path.isdir(top) else []
        for path in (os.path.join(top, name, worker_settings.MEMORY_FILE) for name in names):
            if os.path.lexists(path):
                yield ProjectSwitch("memory", os.path.basename(os.path.dirname(path)), "", path)


def _text(path: str, top: str) -> str:
    try:
        return worker_settings.read_text(path, top) or ""
    except ValueError as error:
        return f"---\n({error})\n---"


def _of_agent(name: str, text: str, path: str) -> Iterator[ProjectSwitch]:
    """Yield the hooks and the MCP servers in the file of an agent. A file that cannot be read defines no agent."""
    try:
        lines = read_markdown(text).lines
        hooks, servers = (read_nested(lines[key]) if key in lines else None for key in NESTED)
    except ValueError:
        return
    for each in _hooks(hooks, path) if isinstance(hooks, dict) else ():
        yield replace(each, name=f"{each.name} (agent {name})")
    for server in servers if isinstance(servers, list) else [servers]:
        for called, given in server.items() if isinstance(server, dict) else ():
            if given is not None:
                yield ProjectSwitch("mcp", f"{called} (agent {name})", _command_line(given), path)


def _powers(text: str) -> str:
    lines = text.replace("\r\n", "\n").split("\n")
    marks = [number for number, line in enumerate(lines) if line.strip() == "---"]  # as `read_markdown` finds them
    end = marks[1] if marks[:1] == [0] and len(marks) > 1 else 0
    found = [*lines[1:end], *(line for line in lines[end:] if "!`" in line or line.startswith("```!"))]
    return _cut("\n".join(found)) if found else ""
