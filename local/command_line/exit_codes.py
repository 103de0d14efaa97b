from __future__ import annotations

from enum import IntEnum
from pathlib import Path
from typing import Self

from ccb.tunnel.errors import CcbError

_MAX_EVIDENCE_LINES = 20
_MAX_LINE = 2_000  # characters; what a host says may have any length
_OWN_PREFIX = ("error:", "Error:", "ccb ", "ccb:")


def error_lines(error: CcbError) -> list[str]:
    what = _cut(error.what)
    lines = [what if what.startswith(_OWN_PREFIX) else f"ccb: {what}"]
    lines += [f"  {line}" for line in evidence_lines(error)]
    if error.do:
        lines.append(f"  -> {_cut(error.do)}")
    return lines


def evidence_lines(error: CcbError) -> list[str]:
    """The evidence of an error without empty lines, cut to about a screenful."""
    lines = [_cut(line) for line in error.evidence.splitlines() if line.strip()]
    more = len(lines) - _MAX_EVIDENCE_LINES
    return lines if more <= 0 else [*lines[:_MAX_EVIDENCE_LINES], f"… and {more} more lines"]


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_LINE else f"{text[:_MAX_LINE]}… and {len(text) - _MAX_LINE} more characters"


def bug_lines(error: BaseException, log_file: Path) -> list[str]:
    return [
        f"ccb: a bug in ccb: {type(error).__name__}",
        f"  The details are in {log_file}",
        "  -> Please report it with that file. Check first that it shows nothing you want to keep private.",
    ]


def code_of(error: CcbError) -> ExitCode:
    return ExitCode[error.exit_name]


class ExitCode(IntEnum):
    meaning: str

    def __new__(cls, code: int, meaning: str) -> Self:
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    OK = 0, "Everything worked."
    AGENT_FAILED = (
        1,
        "The model or the agent failed, the model refused or gave no answer, or a hook blocked the prompt (both "
        "with `-p` in text mode), a turn was interrupted on request, the session does not exist, `ccb stop` or "
        "`ccb clean` had to leave something, `ccb cp` could not copy all, `ccb doctor` found something that "
        "blocks, or `ccb audit` shows tampering.",
    )
    USAGE = 2, "An option, a target or their combination makes no sense."
    PERMISSION_DENIED = 3, "A tool call was denied because nobody could be asked, or a question waits for an answer."
    LIMIT_REACHED = 4, "The run stopped at `--max-turns` or at a budget."
    NO_SUCH_PATH = 66, "The directory does not exist on the host, or what `ccb cp` names does not exist."
    UNREACHABLE = 69, "There is no connection to the host: no such name, no answer in time, or it refuses a channel."
    INTERNAL = 70, "A bug in ccb. The message names the log file."
    NO_PYTHON = 72, "The host has no Python 3.9 or newer."
    NO_STORAGE = 73, "The home or runtime directory cannot be used, or a disk is full."
    LINK_LOST = 75, "The connection was lost during the run. The session on the host may go on."
    PROTOCOL = 76, "The worker on the host and this ccb do not understand each other."
    AUTH_FAILED = 77, "The SSH login failed, or the model credential is missing or was refused."
    CONFIG = 78, "The settings file, ssh_config or the keyring cannot be used."
    HOST_KEY = 79, "The host key has changed, or it is unknown and nobody could be asked."
    HANGUP = 129, "SIGHUP, or nobody reads stdout any more."
    INTERRUPTED = 130, "SIGINT (Ctrl+C)."
    TERMINATED = 143, "SIGTERM."
