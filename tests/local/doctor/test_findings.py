"""What the doctor finds, as lines that fit the terminal."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from ccb.local.doctor.doctor_findings import Finding, State, finding_lines

LONG = Finding(
    "host",
    "home",
    State.WARN,
    "/home/alice, writable, exec, 75.1G free\n" + "/srv/" + "x" * 70,
    "Make room in /home/alice.",
)


@pytest.mark.parametrize("width", [40, 59, 60, 80, 120])
def test_no_line_is_wider_than_the_terminal_and_nothing_is_lost(width: int) -> None:
    lines = finding_lines(LONG, width)
    assert all(cell_len(line) <= width for line in lines)
    assert lines[0].split()[:2] == ["warn", "home"]
    joined = "".join("".join(lines).split())
    for part in ("/home/alice,writable,exec,75.1Gfree", "/srv/" + "x" * 70, "->Makeroomin/home/alice."):
        assert part in joined


def test_on_a_narrow_terminal_the_evidence_stands_below_the_name() -> None:
    assert finding_lines(LONG, 40)[:2] == ["  warn  home", "        /home/alice, writable, exec,"]
    assert finding_lines(LONG, 80)[0] == "  warn  home            /home/alice, writable, exec, 75.1G free"
