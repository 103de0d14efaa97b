"""Turn the refusals of a worker into errors for the person."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from .. import errors
from ..plain_text import HostText, make_directory
from ..transports.pipe import THIS_MACHINE
from ..wire.frames import Refused

_MAX_SIMILAR = 8
_MAX_KEY = 40
_MAX_NODE = 400
_TO_DO = (
    *("Go on with it there, or in a copy: --fork-session.", "Look at the list again.", "Stop it.", "Stop it there."),
    *("Go on with it there, or give the same `ccb move` again.", "Finish that first: give the same `ccb move` again."),
    *("Wait until it is over, or interrupt it.", "Leave it there first.", "Move it again."),
    "Name the directory when you resume it: a session need not move for that.",
    "Commit or stash what is there, or move without files: --no-files.",
    "Move without files: --no-files.",
)
"""What a worker may tell the person to do about a session in use. Another text would be the advice of a stranger."""


def refusal_error(refused: Refused, host: str) -> errors.CcbError:
    """Return the error for `refused`. What the worker says in it is marked as its words, and on one line each."""
    if refused.code in _SIMPLE:
        kind, do = _SIMPLE[refused.code]
        return kind(_said(refused, host), do=do)
    return _BY_CODE.get(refused.code, _of_unknown_kind)(refused, host)


def _said(refused: Refused, host: str) -> str:
    return f"{host}: {HostText(refused.message)}"


def _no_such_path(refused: Refused, host: str) -> errors.CcbError:
    near, missing, do = _similar("There is", refused), refused.data.get("path"), "Check the path."
    if "near" in refused.data and isinstance(missing, str) and (make := make_directory(missing)):
        do = f"Check the path, or c{make[1:]}" if near else make
    return errors.NoSuchPath(_said(refused, host), evidence=near, do=do)


def _no_session(refused: Refused, host: str) -> errors.CcbError:
    found = _similar("There are", refused)
    do = "Give more of its ID." if found else f"`ccb ps {listed_host(host)}` lists the sessions there."
    return errors.NoSuchSession(_said(refused, host), evidence=found, do=do)


def _no_storage(refused: Refused, host: str) -> errors.CcbError:
    do = "Free some space, or make the home or runtime directory on the host writable."
    if "file" in refused.data:
        do = "Check that file on the host: this user must be able to read and write it."
    return errors.NoStorage(_said(refused, host), evidence=_evidence(refused), do=do)


def _no_processes(refused: Refused, host: str) -> errors.CcbError:
    return too_many_processes(host, f"{HostText(refused.message)}")


def _in_use(refused: Refused, host: str) -> errors.CcbError:
    kind = errors.KeptElsewhere if "host" in refused.data else errors.UsageError
    do = refused.data["do"] if refused.data.get("do") in _TO_DO else "Use another --session-id."
    error = kind(_said(refused, host), do=do)
    if isinstance(error, errors.KeptElsewhere):
        error.node = _node(refused.data)
    return error


def _node(data: Mapping[str, object]) -> errors.Node | None:
    """Return the node that a worker names as the owner of a session, if it is another machine."""
    name, boot, job = (str(data.get(key) or "") for key in ("host", "boot", "job"))
    return errors.Node(name, boot, job) if boot and len(name) + len(boot) < _MAX_NODE else None


def _bad_attach(refused: Refused, host: str) -> errors.CcbError:
    what = f"{host} cannot start a session with these options: {HostText(refused.message)}"
    return errors.UsageError(what, do="Change the options.")


def _waits_for_answer(refused: Refused, host: str) -> errors.CcbError:
    session = refused.data.get("session")
    known = session if isinstance(session, str) and is_session_id(session) else "SESSION"
    named = f"{listed_host(host)} {known}"
    do = f"Answer it with `ccb attach {named}`, or end it with `ccb stop {named}`."
    return errors.WaitsForAnswer(_said(refused, host), do=do)


def _of_unknown_kind(refused: Refused, host: str) -> errors.CcbError:
    return errors.ProtocolError(
        f"{host} refused the session: {HostText(refused.message)}",
        evidence=_evidence(refused),
        do="Run again with --debug, and report it if it happens again.",
    )


def _similar(there: str, refused: Refused) -> str:
    near = refused.data.get("near")
    names = near[:_MAX_SIMILAR] if isinstance(near, list) else []
    return f"{there}: {', '.join(HostText(str(each)).path for each in names)}" if names else ""


def _evidence(refused: Refused) -> str:
    """Return the data of a refusal, a line each. A `file` is in the message."""
    lines = []
    for key, value in sorted(refused.data.items()):
        if key != "file":
            listed = "; ".join(map(str, value)) if isinstance(value, list) else str(value)
            lines.append(f"{HostText(key).cell[:_MAX_KEY]}: {HostText(listed)}")
    return "\n".join(lines)


def _no_sandbox(refused: Refused, host: str) -> errors.CcbError:
    what = f"{host} cannot make the cage of --sandbox workspace"
    do = "let an administrator of the host allow user namespaces"
    if refused.data.get("place") is True:
        what = f"{host} makes no cage of --sandbox workspace for the session's directories"
        do = "start in the directory of a project"
    why = f"{HostText(str(refused.data.get('why') or refused.message))}"
    return errors.UsageError(what, evidence=why, do=f"Leave out --sandbox workspace, or {do}.")


_SIMPLE: Mapping[str, tuple[type[errors.CcbError], str]] = {
    "not_a_directory": (errors.NoSuchPath, "Name the directory to work in."),
    "stopped": (errors.SessionStopped, "Start it again."),
    "bad_archive": (errors.UsageError, "Export the session again."),
    "no_worktree": (errors.UsageError, "Leave out --worktree, or start in a repository of git with a commit."),
}
"""For each of these refusal codes: the class of the error, what to do."""
_BY_CODE: Mapping[str, Callable[[Refused, str], errors.CcbError]] = {
    "no_such_path": _no_such_path,
    "no_session": _no_session,
    "no_storage": _no_storage,
    "no_processes": _no_processes,
    "in_use": _in_use,
    "bad_attach": _bad_attach,
    "waits_for_answer": _waits_for_answer,
    "no_sandbox": _no_sandbox,
}


def listed_host(host: str) -> str:
    return "--local" if host == THIS_MACHINE else host


def too_many_processes(host: str, said: str) -> errors.DeployError:
    return errors.DeployError(
        f"{host} does not let this user start more processes",
        evidence=said,
        do="End some of them there, or raise the limit (ulimit -u, TasksMax).",
    )


SESSION_ID = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"


def is_session_id(text: str) -> bool:
    """Whether a text of the host can stand for a session in a line or a command: it has no room for words."""
    return re.fullmatch(SESSION_ID, text) is not None
