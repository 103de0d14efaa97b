"""A session of a person who has Claude Code on the laptop, too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.model.model_script import uses
from tests.support.person.laptop import STREAM, Here


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize("how", ["on", "hooks", "off"])
async def test_rules_and_agents_count_and_hooks_only_if_the_person_says_so(
    here: Here, how: str, tmp_path: Path
) -> None:
    folder, work = here.laptop.home / ".claude", tmp_path / "work"
    for each in (folder / "agents", work):
        each.mkdir(parents=True)
    hook = {"matcher": "Bash", "hooks": [{"type": "command", "command": f"touch {tmp_path}/hooked"}]}
    rules = {"allow": ["Bash(touch *)"]}
    (folder / "settings.json").write_text(json.dumps({"permissions": rules, "hooks": {"PreToolUse": [hook]}}))
    (folder / "agents/critic.md").write_text("---\nname: critic\ndescription: looks\n---\nLook.")
    here.laptop.settings(importClaudeSettings=how)
    here.model.add(uses("Bash", command=f"touch {tmp_path}/ran"), {"text": "done"})
    done = await here.laptop.run([str(work), "-p", "go", *STREAM])
    on = how != "off"
    assert done.code == (0 if on else 3), done.stderr
    init = next(each for each in done.messages if each.get("subtype") == "init")
    assert ((tmp_path / "ran").exists(), (tmp_path / "hooked").exists()) == (on, how == "hooks")
    assert ("critic" in init["agents"]) == on
    assert ("hooks do not count" in done.stderr) == (how == "on")
