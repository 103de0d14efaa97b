"""What the doctor finds, as lines that fit the terminal."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from ccb.local.command_line.parser import parse_arguments
from ccb.local.doctor.doctor import headings
from ccb.local.doctor.doctor_findings import CONNECTION, Finding, FindingState, finding_lines

LONG = Finding(
    "host",
    "home",
    FindingState.WARN,
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


@pytest.mark.parametrize("command", ["docker exec -e TOKEN=hunter2 web", "sshpass -p hunter2 ssh web"])
def test_the_heading_shows_only_the_program_of_a_transport(command: str) -> None:
    program = command.partition(" ")[0]
    titles = headings(parse_arguments(["doctor", "--transport", command]), {})
    assert titles[CONNECTION] == f"Connection to {program} [redacted]"
