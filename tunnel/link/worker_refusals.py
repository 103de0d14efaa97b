"""Turn the refusals of a worker into errors for the person."""

from __future__ import annotations

import re
from collections.abc import Mapping

from .. import errors
from ..plain_text import HostText, make_directory
from ..transports.pipe import THIS_MACHINE
from ..wire.frames import Refused

_MAX_SIMILAR = 8
_MAX_KEY = 40
_TO_DO = ("Go on with it there, or in a copy: --fork-session.", "Look at the list again.", "Stop it.", "Stop it there.")
"""What a worker may tell the person to do about a session in use. Another text would be the advice of a stranger."""

_SIMPLE: Mapping[str, tuple[type[errors.CcbError], str]] = {
    "not_a_directory": (errors.NoSuchPath, "Name the directory to work in."),
    "stopped": (errors.SessionStopped, "Start it again."),
    "no_worktree": (errors.UsageError, "Leave out --worktree, or start in a repository of git with a commit."),
}
"""For each of these refusal codes: the class of the error, what to do."""


def refusal_error(refused: Refused, host: str) -> errors.CcbError:
    """Return the error for `refused`. What the worker says in it is marked as its words, and on one line each."""
    message, data = HostText(refused.message), refused.data
    said = f"{host}: {message}"
    if (simple := _SIMPLE.get(refused.code)) is not None:
        kind, do = simple
        return kind(said, do=do)
    match refused.code:
        case "no_such_path":
            near, missing, do = _similar("There is", refused), data.get("path"), "Check the path."
            if "near" in data and isinstance(missing, str) and (make := make_directory(missing)):
                do = f"Check the path, or c{make[1:]}" if near else make
            return errors.NoSuchPath(said, evidence=near, do=do)
        case "no_session":
            found = _similar("There are", refused)
            do = "Give more of its ID." if found else f"`ccb ps {listed_host(host)}` lists the sessions there."
            return errors.NoSuchSession(said, evidence=found, do=do)
        case "no_storage":
            do = "Free some space, or make the home or runtime directory on the host writable."
            if "file" in data:
                do = "Check that file on the host: this user must be able to read and write it."
            return errors.NoStorage(said, evidence=_evidence(refused), do=do)
        case "no_processes":
            return too_many_processes(host, f"{message}")
        case "in_use":
            kind = errors.KeptElsewhere if "host" in data else errors.UsageError
            return kind(said, do=data["do"] if data.get("do") in _TO_DO else "Use another --session-id.")
        case "bad_attach":
            what = f"{host} cannot start a session with these options: {message}"
            return errors.UsageError(what, do="Change the options.")
        case "waits_for_answer":
            session = data.get("session")
            known = session if isinstance(session, str) and is_session_id(session) else "SESSION"
            named = f"{listed_host(host)} {known}"
            do = f"Answer it with `ccb attach {named}`, or end it with `ccb stop {named}`."
            return errors.WaitsForAnswer(said, do=do)
        case "no_sandbox":
            return _no_sandbox(refused, host)
    return errors.ProtocolError(
        f"{host} refused the session: {message}",
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
