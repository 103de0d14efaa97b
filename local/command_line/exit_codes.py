from __future__ import annotations

from ccb.tunnel.errors import CcbError
from ccb.tunnel.errors import ExitCode as ExitCode

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
