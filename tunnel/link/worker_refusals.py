"""Turn the refusals of a worker into errors for the person."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from .. import errors
from ..plain_text import HostText
from ..wire.frames import Refused

_MAX_SIMILAR = 8
_MAX_KEY = 40
_TO_DO = ("Go on with it there, or in a copy: --fork-session.", "Look at the list again.", "Stop it.", "Stop it there.")
"""What a worker may tell the person to do about a session in use. Another text would be the advice of a stranger."""


def refusal_error(refused: Refused, host: str) -> errors.CcbError:
    """Return the error for `refused`. What the worker says in it is marked as its words, and on one line each."""
    message = HostText(refused.message)
    if (simple := _SIMPLE.get(refused.code)) is not None:
        kind, what, do = simple
        return kind(what.format(host=host, message=message), do=do)
    make = _ERRORS.get(refused.code)
    if make is not None:
        return make(refused, host, message)
    return errors.ProtocolError(
        f"{host} refused the session: {message}",
        evidence=_evidence(refused),
        do="Run again with --debug, and report it if it happens again.",
    )


def _similar(refused: Refused) -> str:
    near = refused.data.get("near")
    return ", ".join(HostText(str(each)).path for each in near[:_MAX_SIMILAR]) if isinstance(near, list) else ""


def _evidence(refused: Refused) -> str:
    """Return the data of a refusal, a line each. A `file` is in the message."""
    lines = []
    for key, value in sorted(refused.data.items()):
        if key != "file":
            listed = "; ".join(map(str, value)) if isinstance(value, list) else str(value)
            lines.append(f"{HostText(key).cell[:_MAX_KEY]}: {HostText(listed)}")
    return "\n".join(lines)


def _no_such_path(refused: Refused, host: str, message: HostText) -> errors.CcbError:
    names = _similar(refused)
    return errors.NoSuchPath(f"{host}: {message}", evidence=f"There is: {names}" if names else "", do="Check the path.")


def _no_storage(refused: Refused, host: str, message: HostText) -> errors.CcbError:
    return errors.NoStorage(
        f"{host}: {message}",
        evidence=_evidence(refused),
        do="Check that file on the host: this user must be able to read and write it."
        if "file" in refused.data
        else "Free some space, or make the home or runtime directory on the host writable.",
    )


def _no_session(refused: Refused, host: str, message: HostText) -> errors.CcbError:
    ids = _similar(refused)
    return errors.NoSuchSession(
        f"{host}: {message}",
        evidence=f"There are: {ids}" if ids else "",
        do="Give more of its ID." if ids else f"`ccb ps {listed_host(host)}` lists the sessions there.",
    )


def _in_use(refused: Refused, host: str, message: HostText) -> errors.CcbError:
    do = refused.data.get("do")
    kind = errors.KeptElsewhere if "host" in refused.data else errors.UsageError
    return kind(f"{host}: {message}", do=do if do in _TO_DO else "Use another --session-id.")


def _waits_for_answer(refused: Refused, host: str, message: HostText) -> errors.CcbError:
    session = refused.data.get("session")
    known = session if isinstance(session, str) and is_session_id(session) else "SESSION"
    named = f"{listed_host(host)} {known}"
    return errors.WaitsForAnswer(
        f"{host}: {message}", do=f"Answer it with `ccb attach {named}`, or end it with `ccb stop {named}`."
    )


def _no_sandbox(refused: Refused, host: str, message: HostText) -> errors.CcbError:
    why = f"{HostText(str(refused.data.get('why') or refused.message))}"
    if refused.data.get("place") is True:
        return errors.UsageError(
            f"{host} makes no cage of --sandbox workspace for the session's directories",
            evidence=why,
            do="Leave out --sandbox workspace, or start in the directory of a project.",
        )
    return errors.UsageError(
        f"{host} cannot make the cage of --sandbox workspace",
        evidence=why,
        do="Leave out --sandbox workspace, or let an administrator of the host allow user namespaces.",
    )


_SIMPLE: Mapping[str, tuple[type[errors.CcbError], str, str]] = {
    "not_a_directory": (errors.NoSuchPath, "{host}: {message}", "Name the directory to work in."),
    "stopped": (errors.SessionStopped, "{host}: {message}", "Start it again."),
    "bad_attach": (
        errors.UsageError,
        "{host} cannot start a session with these options: {message}",
        "Change the options.",
    ),
    "no_worktree": (
        errors.UsageError,
        "{host}: {message}",
        "Leave out --worktree, or start in a repository of git with a commit.",
    ),
}
"""For each of these refusal codes: the class of the error, what happened, what to do."""

_ERRORS: Mapping[str, Callable[[Refused, str, HostText], errors.CcbError]] = {
    "no_such_path": _no_such_path,
    "no_storage": _no_storage,
    "no_processes": lambda refused, host, message: too_many_processes(host, f"{message}"),
    "no_session": _no_session,
    "in_use": _in_use,
    "waits_for_answer": _waits_for_answer,
    "no_sandbox": _no_sandbox,
}


def listed_host(host: str) -> str:
    return "--local" if host == "local" else host


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
