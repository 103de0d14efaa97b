"""Skills with more than a text: an agent of their own, files that they are for, rules that they bring."""

from __future__ import annotations

import json
from pathlib import Path

from tests.remote.agent_kit import calls, says
from tests.remote.subagents.delegation import MAIN, Delegation, delegation
from tests.remote.tools_kit import write

from ccb.tunnel.wire.session_options import SettingsOption

ONE = "toolu_one"
TRUSTED = SettingsOption(trusted="*").to_json()


def write_skill(tmp_path: Path, name: str, front: str, text: str) -> None:
    path = tmp_path / "project/.claude/skills" / name / "SKILL.md"
    write(path, f"---\ndescription: Does {name}\n{front}\n---\n{text}")


def skill_tool(d: Delegation) -> str:
    tools = d.model.requests[MAIN][0]["tools"]
    return str(next(each for each in tools if each["name"] == "Skill")["description"])


async def test_a_skill_works_in_an_agent_of_its_own(tmp_path: Path) -> None:
    """Called by the model, and called by the person."""
    write_skill(tmp_path, "dig", "context: fork\nagent: Explore\nallowed-tools: Bash(touch *)", "Dig for $1")
    write_skill(tmp_path, "fix", "context: fork\nallowed-tools: Bash(touch *)", "Fix $1")
    loads = calls((ONE, "Skill", {"skill": "dig", "args": "gold"}), message_id="m1")
    scripts = {
        MAIN: [loads, says("found", "m2"), says("told", "m3")],
        "Dig for gold": [says("In line 7.", "c1")],
        "Fix it": [calls(("b1", "Bash", {"command": "touch made"}), message_id="c2"), says("It is fixed.", "c3")],
    }
    async with delegation(tmp_path, scripts, settings=TRUSTED) as d:
        await d.turn(MAIN + "go")
        assert d.result_text(ONE).startswith("In line 7.")
        (started,) = d.messages("system", "task_started")
        assert (started["tool_use_id"], started["subagent_type"]) == (ONE, "Explore")
        assert d.model.requests["Dig for gold"][0]["model"].startswith("claude-haiku")
        await d.turn("/fix it")
        last = json.dumps(d.model.requests[MAIN][-1]["messages"][-1])
        assert "/fix was done by an agent of its own. Its answer:\\n\\nIt is fixed." in last
        assert (tmp_path / "project/made").exists(), "its rules hold for its agent"


async def test_a_rule_that_denies_an_agent_denies_the_skill_that_works_in_it(tmp_path: Path) -> None:
    write_skill(tmp_path, "dig", "context: fork\nagent: Explore", "Dig for $1")
    scripts = {MAIN: [calls((ONE, "Skill", {"skill": "dig"}), message_id="m1"), says("no", "m2")]}
    async with delegation(tmp_path, scripts, settings=TRUSTED, disallowed_tools=["Task(Explore)"]) as d:
        await d.turn(MAIN + "go")
        assert "The rule Task(Explore) denies this" in d.result_text(ONE)


async def test_a_skill_for_certain_files_is_offered_when_the_model_works_with_one(tmp_path: Path) -> None:
    write_skill(tmp_path, "sql", 'paths: ["db/**/*.sql"]', "Mind the index")
    write_skill(tmp_path, "any", "", "Always")
    for name in ("db/deep/a.sql", "b.txt"):
        write(tmp_path / "project" / name, "x")
    reads = [
        calls((f"r{at}", "Read", {"file_path": path}), message_id=f"m{at}")
        for at, path in enumerate(("b.txt", "db/deep/a.sql"))
    ]
    scripts = {MAIN: [*reads, calls(("s1", "Skill", {"skill": "sql"}), message_id="m3"), says("done", "m4")]}
    async with delegation(tmp_path, scripts, settings=TRUSTED) as d:
        await d.turn(MAIN + "go")
        assert "any: Does any" in skill_tool(d) and "sql" not in skill_tool(d)
        first, second, third = (json.dumps(each["messages"][-1]) for each in d.model.requests[MAIN][1:])
        assert "Another skill" not in first
        assert "Another skill, for the files that you work with: sql: Does sql" in second
        assert "Another skill" not in third and "Mind the index" in d.result_text("s1")


async def test_the_rules_of_a_skill_that_the_model_loads_hold_until_the_turn_ends(tmp_path: Path) -> None:
    write_skill(tmp_path, "make", "allowed-tools: Bash(touch *)", "Make it")
    touches = [calls((f"b{at}", "Bash", {"command": "touch a"}), message_id=f"m{at}") for at in range(3)]
    loads = calls((ONE, "Skill", {"skill": "make"}), message_id="m3")
    scripts = {MAIN: [touches[0], loads, touches[1], says("done", "m4"), touches[2], says("done", "m5")]}
    async with delegation(tmp_path, scripts, settings=TRUSTED, permission_prompts="none") as d:
        ended = await d.turn(MAIN + "go")
        assert [each["tool_use_id"] for each in ended["permission_denials"]] == ["b0"]
        assert (tmp_path / "project/a").exists()
        ended = await d.turn("again")
        assert [each["tool_use_id"] for each in ended["permission_denials"]] == ["b2"]
