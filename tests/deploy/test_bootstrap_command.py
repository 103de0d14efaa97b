"""The command line that carries the stub: one short line, which every shell reads alike."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from ccb.deploy.bootstrap_command import bootstrap_command
from ccb.deploy.bundle import Bundle, load

MARKER = "ab" * 16


def test_the_command_line_is_one_short_line_that_every_shell_reads_alike() -> None:
    command = bootstrap_command(MARKER, load(), {"session": "s", "cwd": "/srv/app"})
    assert "\n" not in command
    assert command.count("'") == 2
    assert command.startswith("exec /bin/sh -c '")
    assert "!" not in command, "csh expands ! even between single quotes"
    assert len(command) < 16 * 1024


@given(st.dictionaries(st.text(max_size=10), st.text(max_size=60), max_size=4))
def test_parameters_cannot_break_out_of_the_command_line(params: dict[str, str]) -> None:
    command = bootstrap_command(MARKER, Bundle.of(b"bundle"), params)
    assert command.count("'") == 2
    assert re.fullmatch(r"[A-Za-z0-9+/=]*", command.split(f"{MARKER} ")[1].split()[2])
