"""Errors as text: what a host says may have any length, the screen does not."""

from __future__ import annotations

from ccb.local.command_line.exit_codes import error_lines
from ccb.tunnel.errors import ProtocolError


def test_long_lines_and_many_lines_of_a_host_are_cut() -> None:
    evidence = "\n".join(["e" * 50_000, *map(str, range(1_000))])
    shown = error_lines(ProtocolError("w" * 50_000, evidence=evidence, do="Try again."))
    assert len("".join(shown)) < 6_000
    assert "… and 48000 more characters" in shown[0] and "… and 981 more lines" in shown[-2]
    assert shown[-1] == "  -> Try again."
