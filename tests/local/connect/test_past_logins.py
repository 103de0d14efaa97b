"""Whether a login may use what the last one needed: the option and the setting that switch that off."""

from __future__ import annotations

from pathlib import Path

import pytest

from ccb.local.command_line.parser import parse_arguments
from ccb.local.connect.open_transport import past_logins


@pytest.mark.parametrize(
    ("settings", "words", "used"),
    [
        (None, [], True),
        ("{}", [], True),
        ('{"pipelinedLogin": true}', [], True),
        ('{"pipelinedLogin": true}', ["--no-pipelined-login"], False),
        ('{"pipelinedLogin": false}', [], False),
        ('{"pipelinedLogin": "no"}', [], False),
        ("no JSON", [], False),
    ],
)
def test_an_option_and_a_setting_switch_it_off(
    tmp_path: Path, settings: str | None, words: list[str], used: bool
) -> None:
    if settings is not None:
        directory = tmp_path / ".config" / "ccb"
        directory.mkdir(parents=True)
        (directory / "settings.json").write_text(settings, encoding="utf-8")
    connection = parse_arguments(["ssh", "h", *words]).connection
    assert (past_logins(connection, {"HOME": str(tmp_path)}) is not None) is used
