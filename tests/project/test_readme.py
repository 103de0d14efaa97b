"""What the README promises in tables is what the code has."""

from __future__ import annotations

import re
from pathlib import Path

from ccb.local.exit_codes import ExitCode

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")


def test_the_table_of_exit_codes_is_the_enum() -> None:
    rows = re.findall(r"^\| (\d+) \| ([A-Z_]+) \|", README, re.MULTILINE)
    assert [(int(code), name) for code, name in rows] == sorted((int(code), code.name) for code in ExitCode)
