"""What the REPL is told of the session beside what the session says itself, and what it tells when the person leaves."""

from __future__ import annotations

from dataclasses import dataclass

from ccb.tunnel.plain_text import one_line


@dataclass(frozen=True)
class ReplInfo:
    """`host` is how the person called it ("local" without SSH), `path` the directory there, `resume` the command that
    comes back to the session, `who` the name of this client there."""

    host: str
    path: str
    model: str
    mode: str
    version: str
    resume: str = ""
    who: str = ""


@dataclass(frozen=True)
class Left:
    """How the person left: the exit `code`; `stopped`: the session was ended on the host."""

    code: int
    stopped: bool = False


def farewell(
    info: ReplInfo,
    session: str,
    used: str,
    *,
    stopped: bool,
    asked: bool,
    working: bool,
    lost: str = "",
    in_memory: bool = False,
) -> str:
    """What stays on the terminal: which session it was, what it used, what becomes of it and how to come back. `lost`: why it
    ended here while it may go on there. `in_memory`: there is nothing left of it once its worker has ended."""
    where = f"{one_line(info.host)}:{one_line(info.path)}"
    lines = [f"Session {one_line(session)} on {where}" + (f": {used}" if used else "")]
    if stopped:
        lines.append("It was stopped on the host.")
    elif lost:
        lines.append(f"Lost: {one_line(lost)}.")
    elif asked:
        lines.append("The agent waits there for an answer.")
    elif working:
        lines.append("The agent goes on working there.")
    if in_memory:
        lines.append("It was in memory only." if stopped else "It is in memory only, and gone when its worker ends.")
    if info.resume and not (in_memory and stopped):
        lines += ["Come back with:", f"  {one_line(info.resume)}"]
    return "\n".join(lines)
