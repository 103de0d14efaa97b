"""A finding of the doctor, as lines for people and as JSON."""

from __future__ import annotations

import textwrap
from enum import Enum

from ccb.tunnel.errors import CcbError
from ccb.tunnel.plain_text import one_line
from ccb.tunnel.wire.dataclass import dataclass

from ..command_line.exit_codes import evidence_lines

LAPTOP, CONNECTION, HOST = "laptop", "connection", "host"
JUMP_HOST = "jump host "
"""Where a finding belongs. The name of the jump host follows JUMP_HOST."""

_NAME = 15
_MARK = 8
_NARROW = 60  # in a narrower terminal the evidence stands below the name


class FindingState(Enum):
    OK = "ok"
    WARN = "warn"  # works, but not as well as it could
    BLOCK = "block"  # no session will run
    INFO = "info"


_MARKS = {FindingState.OK: "ok", FindingState.WARN: "warn", FindingState.BLOCK: "BLOCK", FindingState.INFO: "-"}


@dataclass(frozen=True)
class Finding:
    """`where` is LAPTOP, CONNECTION, HOST or a jump host; `found` is the evidence, `fix` the one thing to do."""

    where: str
    name: str
    state: FindingState
    found: str
    fix: str = ""


def error_finding(where: str, name: str, error: CcbError) -> Finding:
    return Finding(where, name, FindingState.BLOCK, "\n".join([error.what, *evidence_lines(error)]), error.do)


def judged(where: str, name: str, found: str, fix: str = "") -> Finding:
    """Return a warning if there is something to fix, else a good finding."""
    return Finding(where, name, FindingState.WARN if fix else FindingState.OK, found, fix)


def finding_lines(finding: Finding, width: int) -> list[str]:
    """Return the finding as lines of at most `width` cells (40 or more), without control characters."""
    narrow = width < _NARROW
    indent = " " * (_MARK if narrow else _MARK + _NAME + 1)
    room = max(30, width - len(indent) - 1)
    found = [one_line(line) for line in finding.found.splitlines() if line.strip()] or [""]
    wrapped = [piece for line in found for piece in textwrap.wrap(line, room, break_on_hyphens=False) or [""]]
    head = f"  {_MARKS[finding.state]:<6}{one_line(finding.name):<{_NAME}}"
    lines = [head.rstrip()] if narrow else [f"{head} {wrapped.pop(0)}".rstrip()]
    lines += [indent + line for line in wrapped]
    if finding.fix and finding.state is not FindingState.OK:
        fixes = textwrap.wrap(one_line(finding.fix), room - 3, break_on_hyphens=False, break_long_words=False)
        lines += [indent + ("-> " if number == 0 else "   ") + line for number, line in enumerate(fixes)]
    return lines


def skew_text(seconds: float, exact: float, other: str) -> str:
    """Return how far a clock is off that of `other`, as text. `exact` is the error of the measurement in seconds."""
    far = abs(seconds)
    if far <= exact:
        return f"as {other} says, within {exact:g} s"
    sizes = ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))
    unit, name = next(((unit, name) for unit, name in sizes if far >= 2 * unit), (1.0, "seconds"))
    return f"{far / unit:.{0 if unit > 1 else 1}f} {name} {'ahead of' if seconds > 0 else 'behind'} {other}"


def summary(blocks: int, warnings: int) -> str:
    if not blocks and not warnings:
        return "Nothing is in the way."
    warned = f"{warnings} {'warning' if warnings == 1 else 'warnings'}"
    if not blocks:
        return f"Nothing blocks; {warned}."
    return f"{blocks} {'thing blocks' if blocks == 1 else 'things block'}, {warned}."
