"""The strict judgement, for hosts where no cage stands behind it: only lines of literal words are read-only."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.worker.permission_desk import Desk

from ccb.remote.permissions.command_matcher import BashPolicy
from ccb.remote.permissions.modes import Trust
from ccb.remote.permissions.rules import COMMAND_LINE, Behavior, RuleSet, parse_rules

ALLOW, ASK = Behavior.ALLOW, Behavior.ASK


def strictly(desk: Desk, command: str, allowed: str = "") -> Behavior:
    rules = RuleSet()
    rules.add(COMMAND_LINE, ALLOW, parse_rules([allowed] if allowed else []))
    engine_places = desk.places()
    return (
        BashPolicy(rules, engine_places, False, engine_places.cwd, trust=Trust.LITERAL_LINES).decide(command).behavior
    )


@pytest.mark.parametrize(
    "command",
    [
        *("ls", "ls -la src", "cat a.txt | head -3", "grep -n 'a b' a.txt && wc -l a.txt", "! test -f a.txt; pwd"),
        *("sed -n '1,5p' a.txt", 'grep "x" a.txt', "grep 'a\\.b' a.txt", "ls\npwd", "find . -type f -name '*.py'"),
    ],
)
def test_a_line_of_literal_words_is_read_only(tmp_path: Path, command: str) -> None:
    assert strictly(Desk(tmp_path), command) is ALLOW


@pytest.mark.parametrize(
    "command",
    [
        *("ls *.py", "ls a?", "ls [a]*", "echo ~", "cat a=~/x", "echo $HOME", 'echo "$x"', "echo ${x}"),
        *("echo $(ls)", "echo `ls`", "cat <(ls)", "x=1", "LC_ALL=C ls", "x=1; ls", "ls 2>/dev/null", "ls 2>&1"),
        *("cat < a.txt", "cat <<< x", "cat <<E\nx\nE", "ls > /dev/null", "(ls)", "{ ls; }", "(ls) 2>&1"),
        *("ls \\\n -l", "l\\\ns", "f() { ls; }; f"),
    ],
)
def test_a_line_with_anything_else_is_not(tmp_path: Path, command: str) -> None:
    assert strictly(Desk(tmp_path), command) is ASK


def test_rules_of_the_person_hold_as_before(tmp_path: Path) -> None:
    assert strictly(Desk(tmp_path), "make *.o", "Bash(make *)") is ALLOW
