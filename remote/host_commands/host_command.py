"""Run one in place of the bridge; ccb trust's report."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict

from ccb.tunnel.wire.frames import Json

from ..session.session_settings import MANAGED_FILE
from ..session_store.refusal import HostRefusal, bug_refusal, unusable
from ..session_store.session_paths import absolute_path, home_directory, resolve_directory
from ..session_store.session_registry import described, sessions, the_one
from ..settings.project_switches import ProjectSwitch, read_project, switches_of
from ..settings.worker_settings import LOCAL, MANAGED, PROJECT, USER, read_settings, read_text
from .reports import Reports

OLD_S = 30 * 86400.0
_DEFAULT_LINES = 200


def run_command(params: Json, bundle: str, out: int = 1) -> int:
    """Run the command in place of the bridge, and return the exit code. It runs to its end even without the laptop."""
    reports = Reports(out)
    try:
        _run(params, bundle, reports)
    except Exception as error:  # noqa: BLE001 - the person would be shown the traceback
        reports.refused(_refusal_of(error))
        return 1
    reports.bye()
    return 0


def _refusal_of(error: Exception) -> HostRefusal:
    if isinstance(error, OSError):
        reason = "%s: %s" % (error.filename, error.strerror) if error.filename else str(error)
        return HostRefusal("internal", "the command failed on the host: %s" % reason, {})
    return error if isinstance(error, HostRefusal) else bug_refusal("the command failed on the host", error)


def _run(params: Json, bundle: str, reports: Reports) -> None:
    command = params.get("command")
    bundles = (bundle, *params.get("more", ())[:1])
    dry_run = bool(params.get("dry_run"))
    if command == "ps":
        _list_sessions(params.get("directory"), reports)
    elif command == "watch":
        from .session_watch import watch_sessions

        watch_sessions(reports)
    elif command == "logs":
        _show_logs(params, reports)
    elif command == "stop":
        from .stopping import chosen, stop_all

        stop_all(chosen(params), reports)
        if params.get("all"):
            for entry in [each for each in sessions() if each.elsewhere]:
                reports.kept(entry.session, "it may run on %s: a stop of this session goes there" % entry.elsewhere)
            from .gc import end_leftovers

            end_leftovers(reports, dry_run)
    elif command in ("rename", "remove"):
        from . import stopping

        (stopping.rename if command == "rename" else stopping.remove)(params, reports)
    elif command == "move":
        from .moving import run_step

        run_step(params, reports)
    elif command == "gc":
        from .gc import collect

        age = params.get("older_than_s")
        collect(reports, bundles, dry_run=dry_run, older_than_s=age if isinstance(age, (int, float)) else OLD_S)
    elif command == "clean":
        from .gc import clean_host

        clean_host(reports, bundles, dry_run=dry_run)
    elif command == "project":
        _describe_project(str(params.get("directory") or ""), reports)
    elif command == "doctor":
        from .doctor_checks import examine

        examine(reports, bundle)
    else:
        raise HostRefusal("internal", "%r is no command of this host" % str(command)[:80], {})


def _list_sessions(directory: object, reports: Reports) -> None:
    """Report the sessions, or only those of a directory, which may be gone."""
    path = os.path.realpath(absolute_path(directory)) if isinstance(directory, str) else ""
    for entry in sessions():
        if not path or entry.works_in(path) or entry.is_now_in(path):
            reports.report("session", described(entry))


def _show_logs(params: Json, reports: Reports) -> None:
    from .logs import last_lines

    entry = the_one(str(params.get("session") or ""), sessions())
    lines = params.get("lines")
    if not entry.directory:
        text = "the session is in memory only: there is no log; attach to see what it does"
        reports.report("log", {"source": "worker", "when": "", "text": text})
        return
    try:
        last = last_lines(entry.directory, lines if isinstance(lines, int) and lines > 0 else _DEFAULT_LINES)
    except OSError as error:
        raise unusable("the journal of the session cannot be read", error) from error
    for source, when, text in last:
        reports.report("log", {"source": source, "when": when, "text": text})


_BELOW = {"mcp": ("mcpServers",), **{kind: ("permissions", kind) for kind in ("allow", "ask", "deny")}}


def _describe_project(path: str, reports: Reports) -> None:
    """Report what a project and the host's policy switch on, and problems with their files."""
    directory = resolve_directory(path)
    sources = frozenset((USER, PROJECT, LOCAL))  # those of a session that chooses none
    project = read_project(directory, home_directory() or os.path.expanduser("~"), sources)
    reports.report("project", {"directory": project.directories[0], "fingerprint": project.fingerprint})
    problems = list(project.problems)
    policy = read_settings(MANAGED_FILE, problems.append, MANAGED)
    for text in problems:
        reports.report("problem", {"text": text})
    local = {layer.path for layer in project.layers if layer.source == LOCAL}
    for switch in _with_lines(project.switches):
        reports.report("switch", {**switch, "source": LOCAL if switch["path"] in local else PROJECT})
    for switch in _with_lines(switches_of(policy) if policy is not None and not policy.broken else ()):
        reports.report("policy", {**switch, "source": MANAGED})


def _with_lines(switches: Iterable[ProjectSwitch]) -> Iterable[Json]:
    """Yield the fields of each switch; those of a settings file with the line on which they stand there."""
    texts: dict[str, str] = {}
    for each in switches:
        found = asdict(each)
        if each.path.endswith(".json"):
            if each.path not in texts:
                with suppress(ValueError):
                    texts[each.path] = read_text(each.path) or ""
            found["at"] = _line(texts.get(each.path, ""), _keys(each))
        yield found


def _keys(switch: ProjectSwitch) -> list[str]:
    if switch.kind == "setting":
        return switch.name.split(".")
    if switch.kind == "hook":
        return ["hooks", switch.name.partition(" ")[0], switch.detail]
    return [*_BELOW.get(switch.kind, ()), switch.name]


def _line(text: str, keys: Sequence[str]) -> int:
    at = 0
    for key in keys:
        at = max(at, text.find(json.dumps(key), at), text.find(json.dumps(key, ensure_ascii=False), at))
    return text.count("\n", 0, at) + 1
