"""The facts about the session from the command line, and the text that stays on the terminal after the REPL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ccb.tunnel.errors import CcbError
from ccb.tunnel.plain_text import HostText, neutralise, one_line
from ccb.tunnel.wire.control_protocol import RequestFailed
from ccb.tunnel.wire.dataclass import dataclass


class ErrorDisplay(Protocol):
    """Shows what came of a request: an error as a card in the conversation, a hint in the status line."""

    def show_error(self, error: CcbError | RequestFailed) -> None: ...

    def hint(self, text: str) -> None: ...


_SHORT_ID = 8
_MAX_ANSWER_LINES = 60


@dataclass(frozen=True)
class ReplInfo:
    """`host` is the name that the person gave ("local" without SSH), `path` the directory there, `version` that of ccb,
    `resume` the command that returns to the session, `client_name` the name of this client at the host, `first_prompt`
    the prompt of the command line, `sandbox` the cage of commands that run without a question, in words ("" if the
    worker has none). `revoke` lets the session call no models any more."""

    host: str
    path: str
    model: str
    mode: str
    version: str
    resume: str = ""
    client_name: str = ""
    first_prompt: str = ""
    sandbox: str = ""
    revoke: Callable[[], None] = lambda: None

    @property
    def place(self) -> str:
        """Host and directory on one line."""
        return f"{one_line(self.host)}:{HostText(self.path).path}"


@dataclass(frozen=True)
class LeftSession:
    """The state in which the person leaves a session. `used`: tokens and cost in words. `in_memory`: the host keeps
    it only as long as its worker lives. `stopped`, `lost` (the reason), `asking` and `working` say what becomes of
    it; the first one that applies is shown. `answer` is the last one of the agent, "" for none."""

    session_id: str
    used: str
    in_memory: bool
    stopped: bool
    lost: str
    asking: bool
    working: bool
    answer: str = ""


def farewell(info: ReplInfo, left: LeftSession) -> list[str]:
    """Return the lines that stay on the terminal: the end of the last answer, the session, its tokens and cost, its
    state, and how to return to it."""
    lines = [
        *_end_of(left.answer),
        f"Session {left.session_id} on {info.place}" + (f": {left.used}" if left.used else ""),
    ]
    lines += _fate(left)
    if info.resume and not (left.in_memory and left.stopped):
        lines += ["Come back with:", f"  {info.resume}"]
    return lines


def _end_of(answer: str) -> list[str]:
    """Return the last lines of an answer, and a blank one below them."""
    lines = neutralise(answer).strip().splitlines()
    left_out = len(lines) - _MAX_ANSWER_LINES
    more = [f"… {left_out:,} earlier lines of the last answer are in the session"] if left_out > 0 else []
    return [*more, *lines[-_MAX_ANSWER_LINES:], ""] if lines else []


def way_back(left: LeftSession) -> str:
    """Return what the person reads above the next session: what becomes of the one before, and how to return to it."""
    name = left.session_id[:_SHORT_ID]
    return " ".join([f"Before this: session {name}.", *_fate(left), f"/resume {name} goes back to it."])


def _fate(left: LeftSession) -> list[str]:
    """Return what becomes of a session that the person leaves, in sentences."""
    sentences = []
    if left.stopped:
        sentences.append("It was stopped on the host.")
    elif left.lost:
        sentences.append(f"Lost: {left.lost}.")
    elif left.asking:
        sentences.append("The agent waits there for an answer.")
    elif left.working:
        sentences.append("The agent keeps working there.")
    if left.in_memory:
        end = "It was in memory only." if left.stopped else "It is in memory only, and gone when its worker ends."
        sentences.append(end)
    return sentences
