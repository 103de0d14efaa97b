"""Errors as text: what a host says may have any length, the screen does not."""

from __future__ import annotations

from ccb.local.command_line.error_text import error_text
from ccb.tunnel.errors import ProtocolError


def test_long_lines_and_many_lines_of_a_host_are_cut() -> None:
    evidence = "\n".join(["e" * 50_000, *map(str, range(1_000))])
    shown = error_text(ProtocolError("w" * 50_000, evidence=evidence, do="Try again."))
    assert len(shown) < 6_000
    assert "… and 48000 more characters" in shown and "… and 981 more lines" in shown
    assert shown.endswith("  -> Try again.\n")
