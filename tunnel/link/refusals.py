"""Turn the refusals of a worker into errors for the person."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..errors import (
    CcbError,
    DeployError,
    KeptElsewhere,
    NoStorage,
    NoSuchPath,
    NoSuchSession,
    ProtocolError,
    SessionStopped,
    UsageError,
    WaitsForAnswer,
)
from ..plain_text import neutralise, one_line
from ..wire import Refused

_MAX_SIMILAR = 8
_MAX_ID = 36
_MAX_WHY = 500


def refusal_error(refused: Refused, host: str) -> CcbError:
    """Return the error for `refused`, with the worker's evidence neutralised."""
    message = neutralise(refused.message)
    make = _ERRORS.get(refused.code)
    if make is not None:
        return make(refused, host, message)
    return ProtocolError(
        f"{host} refused the session: {message}",
        evidence="\n".join(neutralise(f"{k}: {v}") for k, v in sorted(refused.data.items())),
        do="Run again with --debug, and report it if it happens again.",
    )


def _similar(refused: Refused) -> str:
    """Return the similar names that the worker suggests, on one line, or "" if there are none."""
    near = refused.data.get("near")
    return ", ".join(neutralise(str(each)) for each in near[:_MAX_SIMILAR]) if isinstance(near, list) else ""


def _no_such_path(refused: Refused, host: str, message: str) -> CcbError:
    names = _similar(refused)
    return NoSuchPath(f"{host}: {message}", evidence=f"There is: {names}" if names else "", do="Check the path.")


def _not_a_directory(refused: Refused, host: str, message: str) -> CcbError:
    return NoSuchPath(f"{host}: {message}", do="Name the directory to work in.")


def _no_storage(refused: Refused, host: str, message: str) -> CcbError:
    shown = [f"{neutralise(k)}: {neutralise(_listed(v))}" for k, v in sorted(refused.data.items()) if k != "file"]
    return NoStorage(
        f"{host}: {message}",
        evidence="\n".join(shown),
        do="Check that file on the host: this user must be able to read and write it."
        if "file" in refused.data
        else "Free some space, or make the home or runtime directory on the host writable.",
    )


def _no_processes(refused: Refused, host: str, message: str) -> CcbError:
    return too_many_processes(host, message)


def _no_session(refused: Refused, host: str, message: str) -> CcbError:
    ids = _similar(refused)
    return NoSuchSession(
        f"{host}: {message}",
        evidence=f"There are: {ids}" if ids else "",
        do="Give more of its ID." if ids else f"`ccb ps {listed_host(host)}` lists the sessions there.",
    )


def _stopped(refused: Refused, host: str, message: str) -> CcbError:
    return SessionStopped(message, do="Start it again.")


def _in_use(refused: Refused, host: str, message: str) -> CcbError:
    do = refused.data.get("do")
    kind = KeptElsewhere if "host" in refused.data else UsageError
    return kind(f"{host}: {message}", do=neutralise(do) if isinstance(do, str) else "Use another --session-id.")


def _waits_for_answer(refused: Refused, host: str, message: str) -> CcbError:
    named = f"{listed_host(host)} {one_line(str(refused.data.get('session', '')))[:_MAX_ID]}"
    return WaitsForAnswer(
        f"{host}: {message}", do=f"Answer it with `ccb attach {named}`, or end it with `ccb stop {named}`."
    )


def _bad_attach(refused: Refused, host: str, message: str) -> CcbError:
    return UsageError(f"{host} cannot start a session with these options: {message}", do="Change the options.")


def _no_sandbox(refused: Refused, host: str, message: str) -> CcbError:
    why = one_line(str(refused.data.get("why") or message))[:_MAX_WHY]
    if refused.data.get("place") is True:
        return UsageError(
            f"{host} makes no cage of --sandbox workspace for the session's directories",
            evidence=why,
            do="Leave out --sandbox workspace, or start in the directory of a project.",
        )
    return UsageError(
        f"{host} cannot make the cage of --sandbox workspace",
        evidence=why,
        do="Leave out --sandbox workspace, or let an administrator of the host allow user namespaces.",
    )


def _no_worktree(refused: Refused, host: str, message: str) -> CcbError:
    return UsageError(f"{host}: {message}", do="Leave out --worktree, or start in a repository of git with a commit.")


_ERRORS: Mapping[str, Callable[[Refused, str, str], CcbError]] = {
    "no_such_path": _no_such_path,
    "not_a_directory": _not_a_directory,
    "no_storage": _no_storage,
    "no_processes": _no_processes,
    "no_session": _no_session,
    "stopped": _stopped,
    "in_use": _in_use,
    "waits_for_answer": _waits_for_answer,
    "bad_attach": _bad_attach,
    "no_sandbox": _no_sandbox,
    "no_worktree": _no_worktree,
}
"""For each refusal code: makes the error from the frame, the host's name and the neutralised message."""


def listed_host(host: str) -> str:
    """Return `host` as the argument of a host command such as `ccb ps`."""
    return "--local" if host == "local" else host


def too_many_processes(host: str, said: str) -> DeployError:
    """Return the error for a user who may start no more processes or threads on `host`."""
    return DeployError(
        f"{host} does not let this user start more processes",
        evidence=said,
        do="End some of them there, or raise the limit (ulimit -u, TasksMax).",
    )


def _listed(value: object) -> str:
    return "; ".join(str(each) for each in value) if isinstance(value, list) else str(value)
