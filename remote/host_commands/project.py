"""What the files of a project would switch on, for `ccb trust` and `ccb config show`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from ..session.settings import MANAGED_FILE
from ..sessions.directory import resolve_directory
from ..sessions.paths import home_directory
from ..settings.project import Switch, read_project, switches_of
from ..settings.settings_files import read_settings, read_text
from ..settings.worker_settings import LOCAL, MANAGED, PROJECT, USER, Layer
from .report import Reports

_BELOW = {"hook": "hooks", "mcp": "mcpServers", "allow": "permissions", "ask": "permissions", "deny": "permissions"}
"""The keys of a settings file under which the kinds of switches stand."""


_SOURCES = frozenset((USER, PROJECT, LOCAL))  # those of a session that chooses none


def describe_project(path: str, reports: Reports) -> None:
    """Report the project of a directory, each problem with its files, each thing that it switches on, and what the
    policy of the host sets. Raise HostRefusal if there is no such directory."""
    directory = resolve_directory(path)
    project = read_project(directory, home_directory() or os.path.expanduser("~"), _SOURCES)
    reports.report("project", {"directory": project.directories[0], "fingerprint": project.fingerprint})
    problems = list(project.problems)
    values = read_settings(MANAGED_FILE, problems.append)
    for text in problems:
        reports.report("problem", {"text": text})
    local = {layer.path for layer in project.layers if layer.source == LOCAL}
    for path, switch in _by_file(project.switches):
        source = LOCAL if path in local else PROJECT
        reports.report("switch", {**switch, "source": source})
    policy = [] if values is None else switches_of(Layer(MANAGED, MANAGED_FILE, values, on_host=True))
    for _, switch in _by_file(policy):
        reports.report("policy", {**switch, "source": MANAGED})


def _by_file(switches: Iterable[Switch]) -> Iterable[tuple[str, dict[str, Any]]]:
    """Yield each switch with the path of its file. Those of a settings file have the line there."""
    texts: dict[str, str] = {}
    for each in switches:
        found = asdict(each)
        if each.path.endswith(".json"):
            if each.path not in texts:
                texts[each.path] = _text(each.path)
            found["at"] = _line(texts[each.path], _keys(each))
        yield each.path, found


def _keys(switch: Switch) -> list[str]:
    if switch.kind == "setting":
        return switch.name.split(".")
    words = [_BELOW[switch.kind]] if switch.kind in _BELOW else []
    if switch.kind in ("allow", "ask", "deny"):
        words.append(switch.kind)
    words.append(switch.name.partition(" ")[0] if switch.kind == "hook" else switch.name)
    return [*words, switch.detail] if switch.kind == "hook" else words


def _line(text: str, keys: Sequence[str]) -> int:
    """Return the number of the line on which the last of these nested keys stands."""
    at = 0
    for key in keys:
        at = max(at, text.find(json.dumps(key), at), text.find(json.dumps(key, ensure_ascii=False), at))
    return text.count("\n", 0, at) + 1


def _text(path: str) -> str:
    try:
        return read_text(path) or ""
    except ValueError:
        return ""
