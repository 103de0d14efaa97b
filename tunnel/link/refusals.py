"""What a worker refuses, as errors for the person."""

from __future__ import annotations

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

_MOST_NEAR = 8
_ID = 36


def refusal_error(refused: Refused, host: str) -> CcbError:
    """The error for `refused`, with the worker's evidence neutralised."""
    message = neutralise(refused.message)
    match refused.code:
        case "no_such_path":
            near = refused.data.get("near")
            names = [neutralise(str(name)) for name in near[:_MOST_NEAR]] if isinstance(near, list) else []
            return NoSuchPath(
                f"{host}: {message}",
                evidence="There is: " + ", ".join(names) if names else "",
                do="Check the path.",
            )
        case "not_a_directory":
            return NoSuchPath(f"{host}: {message}", do="Name the directory to work in.")
        case "no_storage":
            shown = [
                f"{neutralise(k)}: {neutralise(_listed(v))}" for k, v in sorted(refused.data.items()) if k != "file"
            ]
            return NoStorage(
                f"{host}: {message}",
                evidence="\n".join(shown),
                do="Look at that file on the host: this user must be able to read and write it."
                if "file" in refused.data
                else "Make room, or a writable home or runtime directory, on the host.",
            )
        case "no_processes":
            return too_many_processes(host, message)
        case "no_session":
            near = refused.data.get("near")
            ids = [neutralise(str(each)) for each in near[:_MOST_NEAR]] if isinstance(near, list) else []
            return NoSuchSession(
                f"{host}: {message}",
                evidence="There are: " + ", ".join(ids) if ids else "",
                do="Give more of its ID." if ids else f"`ccb ps {listed_host(host)}` lists the sessions there.",
            )
        case "stopped":
            return SessionStopped(message, do="Start it again.")
        case "in_use":
            do = refused.data.get("do")
            kind = KeptElsewhere if "host" in refused.data else UsageError
            return kind(f"{host}: {message}", do=neutralise(do) if isinstance(do, str) else "Use another --session-id.")
        case "waits_for_answer":
            named = f"{listed_host(host)} {one_line(str(refused.data.get('session', '')))[:_ID]}"
            return WaitsForAnswer(
                f"{host}: {message}", do=f"Answer it with `ccb attach {named}`, or end it with `ccb stop {named}`."
            )
        case "bad_attach":
            return UsageError(f"{host} cannot start a session with these options: {message}", do="Change the options.")
        case _:
            return ProtocolError(
                f"{host} refused the session: {message}",
                evidence="\n".join(neutralise(f"{k}: {v}") for k, v in sorted(refused.data.items())),
                do="Run again with --debug and report it if it stays.",
            )


def listed_host(host: str) -> str:
    """How the host commands name `host`."""
    return "--local" if host == "local" else host


def too_many_processes(host: str, said: str) -> DeployError:
    """The user may start no more processes or threads on `host`."""
    return DeployError(
        f"{host} lets this user start no more processes",
        evidence=said,
        do="End some of them there, or have the limit raised (ulimit -u, TasksMax).",
    )


def _listed(value: object) -> str:
    return "; ".join(str(each) for each in value) if isinstance(value, list) else str(value)
