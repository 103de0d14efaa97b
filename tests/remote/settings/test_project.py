"""What the files of a project switch on, and what is said about values that can have no effect."""

from __future__ import annotations

import json
from pathlib import Path

from ccb.remote.settings.project_switches import read_project


def test_a_rule_of_a_project_about_a_tool_that_there_is_not_is_named_with_its_line(tmp_path: Path) -> None:
    rules = {"deny": ["Raed(secret.txt)", "Read(secret.txt)", "mcp__far__greet"], "allow": ["Bash(make *)", "Zzz"]}
    path = tmp_path / "project/.claude/settings.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"permissions": rules}, indent=1))
    found = read_project(str(tmp_path / "project"), str(tmp_path), frozenset({"project"}))
    assert found.problems == (
        f"{path}, line 10: permissions.allow: there is no tool 'Zzz'",
        f"{path}, line 4: permissions.deny: there is no tool 'Raed'; did you mean Read?",
    )
    assert found.switches
