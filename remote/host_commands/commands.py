"""Run a host command in place of the bridge: answer with `report` frames, then end."""

from __future__ import annotations

from typing import Any

from ..sessions import paths
from ..sessions.refusal import HostRefusal, bug_refusal, no_session, unusable
from ..sessions.registry import by_prefix, described, sessions
from .report import Reports

Json = dict[str, Any]

OLD_S = 30 * 86400.0
"""Seconds. `gc` removes sessions that were not used for that long, unless the command names another age."""

_DEFAULT_LINES = 200


def run_command(params: Json, bundle: str, out: int = 1) -> int:
    """Run `params["command"]`. Answer on `out` with `report` frames, then `bye`; or with `refused`. Return the exit
    code of the channel. The command runs to its end even if the laptop has gone."""
    reports = Reports(out)
    try:
        _run(params, bundle, reports)
    except HostRefusal as refusal:
        reports.refused(refusal)
        return 1
    except OSError as error:
        reason = "%s: %s" % (error.filename, error.strerror) if error.filename else str(error)
        reports.refused(HostRefusal("internal", "the command failed on the host: %s" % reason, {}))
        return 1
    except Exception as error:  # noqa: BLE001 - the person would be shown the traceback
        reports.refused(bug_refusal("the command failed on the host", error))
        return 1
    reports.bye()
    return 0


def _run(params: Json, bundle: str, reports: Reports) -> None:
    command = params.get("command")
    bundles = (bundle, *params.get("more", ())[:1])
    dry_run = bool(params.get("dry_run"))
    if command == "ps":
        for entry in sessions():
            reports.session(described(entry))
    elif command == "logs":
        _show_logs(params, reports)
    elif command == "stop":
        from .stopping import chosen, stop_all

        stop_all(chosen(params), reports)
        if params.get("all"):
            from .gc import end_leftovers

            end_leftovers(reports, dry_run)
    elif command in ("rename", "remove"):
        from . import one_session

        (one_session.rename if command == "rename" else one_session.remove)(params, reports)
    elif command == "gc":
        from .gc import collect

        age = params.get("older_than_s")
        collect(reports, bundles, dry_run=dry_run, older_than_s=age if isinstance(age, (int, float)) else OLD_S)
    elif command == "clean":
        from .clean import clean

        clean(reports, bundles, dry_run=dry_run)
    elif command == "project":
        from .project import describe_project

        describe_project(str(params.get("directory") or ""), reports)
    elif command == "doctor":
        from .doctor.doctor import examine

        examine(reports, bundle)
    else:
        raise HostRefusal("internal", "%r is no command of this host" % str(command)[:80], {})


def _show_logs(params: Json, reports: Reports) -> None:
    from .logs import last_lines

    lines = params.get("lines")
    directory = _named_state_directory(params)
    if not directory:
        reports.log("worker", "", "the session is in memory only: there is no log; attach to see what it does")
        return
    try:
        found = last_lines(directory, lines if isinstance(lines, int) and lines > 0 else _DEFAULT_LINES)
    except OSError as error:
        raise unusable("the journal of the session cannot be read", error) from error
    for line in found:
        reports.log(*line)


def _named_state_directory(params: Json) -> str:
    """Return the state directory of the session that the parameters name, "" when it is in memory only. Raise
    HostRefusal."""
    wanted = str(params.get("session") or "")
    found = by_prefix(wanted) if paths.is_session_id(wanted) else []
    if len(found) != 1:
        raise no_session(wanted, [each.session for each in found])
    return found[0].directory
