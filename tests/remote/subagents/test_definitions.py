"""Agents that a person, a project or a client defines."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.remote.agent_kit import Json, calls, says
from tests.remote.subagents.delegation import ONE, worked

from ccb.remote.settings.front_matter import read_markdown
from ccb.remote.settings.worker_settings import WorkerSettings
from ccb.remote.subagents.agent_catalogue import Catalogue
from ccb.remote.tools.agent_definitions import AgentDefinition, from_fields, from_markdown
from ccb.tunnel.wire.session_options import SessionOptions, SettingsOption

REVIEWER = """---
name: reviewer
description: "Reviews code: finds bugs"
tools: Read, Grep , Bash
disallowedTools: [Bash]
model: opus   # thorough
permissionMode: plan
maxTurns: 7
color: red
---

You review code.
"""
BY_REVIEWER = {"subagent_type": "reviewer"}


def test_a_file_defines_an_agent() -> None:
    definition, unused = from_markdown(REVIEWER, "user")
    assert definition == AgentDefinition(
        "reviewer", "Reviews code: finds bugs", "You review code.", ("Read", "Grep", "Bash"), ("Bash",), "opus", "plan",
        max_turns=7, source="user",
    )  # fmt: skip
    assert definition is not None and unused == []
    assert [name for name in ("Read", "Grep", "Bash", "Edit") if definition.offers(name)] == ["Read", "Grep"]


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("---\na: |\n  one\n  two\nb: x\n---\n", {"a": "one\ntwo", "b": "x"}),
        ("---\na: >\n  one\n  two\n---", {"a": "one two"}),
        ("---\na:\n  - x\n  - 'it''s'\n---\n", {"a": ["x", "it's"]}),
        ('---\na:\n- x\n# no\nb: [p, "q"]\n---\n', {"a": ["x"], "b": ["p", "q"]}),
        ("---\r\na: b\r\n---\r\n", {"a": "b"}),
        ("no front matter", None),
    ],
)
def test_front_matter_is_read(text: str, fields: object) -> None:
    assert read_markdown(text).fields == fields


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (REVIEWER.replace("name: reviewer\n", ""), "no `name`"),
        (REVIEWER.replace("name: reviewer", "name: a b"), "is not a name"),
        (REVIEWER.replace("plan", "anything"), "unknown permissionMode"),
        (REVIEWER.replace("model: opus ", "model: foo bar "), "a model that is none: 'foo bar'"),
        (REVIEWER.replace("maxTurns: 7", "maxTurns: -1"), "maxTurns must be"),
        (REVIEWER.replace("Read, Grep", "Bash(git *)"), "only the names of tools"),
        (REVIEWER.replace("color: red", "isolation: remote"), "unknown isolation"),
        ("---\nname: x\nno colon here\n---\ntext", "not `name: value`"),
        ("---\nname: x\n", "has no end"),
    ],
)
def test_a_broken_file_says_what_is_wrong(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        from_markdown(text, "user")


def test_what_is_not_supported_is_told() -> None:
    given = {"description": "d", "prompt": "p", "hooks": {"Nothing": []}}
    _, unused = from_fields("a", given, "client")
    assert unused == ["the agent a: hooks.Nothing: there is no such event"]


def test_the_last_definition_counts_and_a_project_only_when_it_is_trusted(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    for place, text in ((tmp_path, "of the root"), (inner, "of the directory")):
        (place / ".claude/agents/deep").mkdir(parents=True)
        (place / ".claude/agents/deep/r.md").write_text(REVIEWER.replace("You review code.", text))
    (inner / ".claude/agents/broken.md").write_text("---\nname: x")
    (inner / ".claude/agents/notes.md").write_text("Only notes.")
    options = SessionOptions(own_agents={"/laptop/r.md": REVIEWER})
    closed = Catalogue(options, WorkerSettings())
    assert [(each.prompt, each.source) for each in closed.definitions] == [("You review code.", "user")]
    trusted = WorkerSettings(trusted=True, trusted_directories=(str(inner), str(tmp_path)))
    opened = Catalogue(options, trusted)
    assert [(each.prompt, each.source) for each in opened.definitions] == [("of the directory", "project")]
    assert [problem.partition(": ")[0] for problem in opened.problems] == [str(inner / ".claude/agents/broken.md")]
    asked = SessionOptions(agents={"reviewer": {"description": "d", "prompt": "of the client"}, "b": 7})
    given = Catalogue(asked, trusted)
    assert [(each.prompt, each.source) for each in given.definitions] == [("of the client", "client")]
    assert given.problems[-1] == "the agent b has no `description`"
    assert Catalogue(options, WorkerSettings(sources=frozenset())).definitions == ()


async def test_an_agent_has_the_effort_and_the_skills_of_its_file(tmp_path: Path) -> None:
    skill = tmp_path / "project/.claude/skills/house-style/SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: house-style\ndescription: d\n---\nNo puzzles in names.")
    own = {"/laptop/r.md": REVIEWER.replace("color: red", "effort: low\nskills: house-style, other")}
    options: Json = {"own_agents": own, "settings": SettingsOption(trusted="*").to_json()}
    async with worked(tmp_path, says("good"), call=BY_REVIEWER, **options) as d:
        (request,) = d.model.requests["edit it"]
        prompt = request["system"][0]["text"]
        assert "You review code." in prompt and "No puzzles in names." in prompt
        assert "There is no skill 'other'." in prompt
        assert request["output_config"] == {"effort": "low"}
    with pytest.raises(ValueError, match="unknown effort 'huge'"):
        from_markdown(REVIEWER.replace("color: red", "effort: huge"), "user")


async def test_a_session_offers_the_agents_of_its_options_and_warns_of_broken_ones(tmp_path: Path) -> None:
    both = calls(("b1", "Bash", {"command": "true"}), ("w1", "Write", {"file_path": "x", "content": "y"}))
    own = {"/laptop/r.md": REVIEWER, "/laptop/b.md": "---\nname: b\n---\n"}
    options: Json = {"own_agents": own, "permission_mode": "acceptEdits"}
    async with worked(tmp_path, both, says("good"), call=BY_REVIEWER, **options) as d:
        request = d.model.requests["edit it"][0]
        assert [tool["name"] for tool in request["tools"]] == ["Grep", "Read"]
        assert request["model"].startswith("claude-opus") and "You review code." in request["system"][0]["text"]
        assert "No such tool" in d.result_text("b1", ONE)
        warned = [each["content"] for each in d.messages("system", "informational")]
        assert warned == ["/laptop/b.md: the agent b has no `description`"]
        assert "reviewer" in d.messages("system", "init")[0]["agents"]
        listed = str((await d.turn("/agents"))["result"]).splitlines()
        assert [line.partition(" (")[0] for line in listed] == ["general-purpose", "Explore", "Plan", "reviewer"]
        assert listed[1].startswith("Explore (built-in; the small model; only reads): ")
        assert listed[3].startswith("reviewer (yours, from the laptop; model opus; tools Read, Grep, Bash; mode plan")
