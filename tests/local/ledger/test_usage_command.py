"""`ccb usage` prints sums of the ledger, and says what is wrong with its file."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from tests.local.ledger.test_ledger import PLACE, report
from tests.support.run_words import run_words

from ccb.local.command_line.exit_codes import ExitCode
from ccb.local.ledger.call_ledger import CallLedger, ledger_path


def test_sums_are_printed_with_their_total(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    assert run_words(["usage"], environ) == ExitCode.OK
    assert capsys.readouterr().out == "No model calls yet.\n"
    with CallLedger(ledger_path(tmp_path / "ccb")) as ledger:
        ledger.add(PLACE, report(1.5, model="claude-\x1b[31mred"))
        ledger.add(PLACE, report(0.25))
        ledger.add(PLACE, report(9.0, began=1_000))
    assert run_words(["usage", "--by", "model", "--days", "1"], environ) == ExitCode.OK
    heading, *rows = capsys.readouterr().out.splitlines()
    assert heading.split()[0] == "MODEL" and len({len(row) for row in [heading, *rows]}) == 1
    assert "\x1b" not in "".join(rows)
    assert [(row.split()[0][:6], row.split()[6]) for row in rows] == [
        ("claude", "$1.50"),
        ("claude", "$0.25"),
        ("total", "$1.75"),
    ]
    assert run_words(["usage", "--by", "host", "--json"], environ) == ExitCode.OK
    (line,) = capsys.readouterr().out.splitlines()
    assert (json.loads(line)["host"], json.loads(line)["calls"]) == ("gpu", 3)


def test_wrong_options_and_a_broken_file_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    for args in (["--by", "moon"], ["--days", "-1"], ["--days", "many"]):
        assert run_words(["usage", *args], environ) == ExitCode.USAGE
        assert "error: option '--" in capsys.readouterr().err
    path = ledger_path(tmp_path / "ccb")
    path.parent.mkdir()
    with sqlite3.connect(path) as base:
        base.execute("PRAGMA user_version=9")
    assert run_words(["usage"], environ) == ExitCode.CONFIG
    assert "cannot be read" in capsys.readouterr().err


def test_costs_of_which_some_are_estimated_are_marked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    with CallLedger(ledger_path(tmp_path / "ccb")) as ledger:
        ledger.add(PLACE, report(1.5, model="told"))
        ledger.add(PLACE, replace(report(0.25, model="silent"), estimated=True))
    assert run_words(["usage", "--by", "model"], environ) == ExitCode.OK
    costs = {row.split()[0]: row.split()[6] for row in capsys.readouterr().out.splitlines()}
    assert costs == {"MODEL": "COST", "told": "$1.50", "silent": "~$0.25", "total": "~$1.75"}
