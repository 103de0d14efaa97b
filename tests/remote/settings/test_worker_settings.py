"""How the sources of settings are merged, and what a project is found to switch on."""

from __future__ import annotations

import json
from pathlib import Path

from tests.remote.tools_kit import write

from ccb.remote.settings.project_switches import project_directories, read_project
from ccb.remote.settings.worker_settings import FLAG, MANAGED, PROJECT, USER, Layer, WorkerSettings
from ccb.remote.slash_commands.command_files import discover
from ccb.remote.subagents.agent_catalogue import Catalogue
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.session_options import SessionOptions

ALL = WorkerSettings().sources


def test_the_strongest_layer_sets_a_value_and_lists_keep_every_layer() -> None:
    user = Layer(USER, "u", {"model": "opus", "permissions": {"deny": ["Read"]}, "hooks": {"Stop": []}})
    flag = Layer(FLAG, "f", {"model": "haiku", "permissions": {"deny": ["Bash"]}, "hooks": {"Stop": [1]}})
    settings = WorkerSettings((user, flag))
    model = settings.value("model")
    assert model is not None and (model.value, model.layer) == ("haiku", flag)
    assert [(each.value, each.layer.source) for each in settings.rules("deny")] == [("Read", USER), ("Bash", FLAG)]
    assert [each.layer for each in settings.hooks] == [user, flag]


def test_only_a_policy_switches_its_hooks_off() -> None:
    policy: Json = {"hooks": {"Stop": []}}
    person = Layer(USER, "u", {"hooks": {"Stop": []}, "disableAllHooks": True})
    managed = Layer(MANAGED, "m", policy)
    assert [each.layer for each in WorkerSettings((person, managed)).hooks] == [managed]
    assert WorkerSettings((person, Layer(MANAGED, "m", {**policy, "disableAllHooks": True}))).hooks == []


def test_a_policy_can_leave_only_its_own_hooks() -> None:
    hooks = {"Stop": [{"hooks": [{"type": "command", "command": "id"}]}]}
    managed = Layer(MANAGED, "m", {"allowManagedHooksOnly": True, "hooks": hooks})
    assert [each.layer for each in WorkerSettings((Layer(USER, "u", {"hooks": hooks}), managed)).hooks] == [managed]
    assert WorkerSettings((Layer(USER, "u", {"hooks": hooks, "disableAllHooks": True}),)).hooks == []


def test_everything_that_a_project_switches_on_is_named(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"db": {"command": "npx", "args": ["db"]}}}))
    write(tmp_path / ".claude/commands/go.md", "---\nallowed-tools: Bash(rm *)\n---\nRun !`id` now.\nText.\n")
    (tmp_path / ".claude/settings.json").write_text(
        '{"env": {"A": "b"}, "mcpServers": {"x": {"command": "uvx", "args": ["x"], "env": {"B": "c", "A\\n": "d"}}}}'
    )
    work = tmp_path / "sub"
    write(work / ".claude/agent-memory/critic/MEMORY.md", "Trust me.")
    (work / ".claude/agent-memory-local/none").mkdir(parents=True)
    found = read_project(str(work), "/home/me", ALL)
    assert found.directories == (str(work), str(tmp_path))
    assert [(each.kind, each.name, each.detail) for each in found.switches] == [
        ("mcp", "db", "npx db"),
        ("setting", "env", '{"A": "b"}'),
        ("mcp", "x", 'env: A, B\nuvx x {"A\\n": "d", "B": "c"}'),
        ("command", "go", "allowed-tools: Bash(rm *)\nRun !`id` now."),
        ("memory", "critic", ""),
    ]
    assert [layer.source for layer in found.layers] == [PROJECT, PROJECT]


def test_the_prose_of_a_command_does_not_change_the_fingerprint_and_its_powers_do(tmp_path: Path) -> None:
    marks = []
    for text in ("Do it.", "Do it well.", "---\nmodel: opus\n---\nDo it well."):
        write(tmp_path / ".claude/commands/go.md", text)
        marks.append(read_project(str(tmp_path), "", ALL).fingerprint)
    assert marks[0] == marks[1] != marks[2]


def test_a_broken_file_is_named_with_its_line_and_denies_every_call(tmp_path: Path) -> None:
    write(tmp_path / ".claude/settings.json", '{\n"a": 1\n"b": 2}')
    found = read_project(str(tmp_path), "", ALL)
    assert [layer.values for layer in found.layers] == [{}]
    assert [(each.kind, each.name) for each in found.switches] == [("deny", "every call")]
    (tmp_path / ".claude/settings.json").write_text("\n")
    assert read_project(str(tmp_path), "", ALL).switches == (), "an empty file sets nothing"
    assert [problem.split(": ")[0] for problem in found.problems] == [f"{tmp_path}/.claude/settings.json, line 3"]


def test_sources_that_are_not_chosen_are_not_read(tmp_path: Path) -> None:
    for name in ("settings.json", "settings.local.json"):
        write(tmp_path / ".claude" / name, '{"model": "opus"}')
    assert [each.source for each in read_project(str(tmp_path), "", frozenset({"local"})).layers] == ["local"]
    assert read_project(str(tmp_path), "", frozenset()).layers == ()


def test_the_home_directory_is_no_project_of_what_lies_below_it(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    work = tmp_path / "work"
    work.mkdir()
    assert project_directories(str(work), str(tmp_path)) == (str(work),)
    assert project_directories(str(tmp_path), str(tmp_path)) == (str(tmp_path),)


def test_commands_and_skills_in_the_home_directory_are_the_persons_own_and_not_those_of_a_project(
    tmp_path: Path,
) -> None:
    for name in ("commands/fix.md", "agents/a.md", "skills/s/SKILL.md"):
        write(tmp_path / ".claude" / name, "---\nname: x\ndescription: y\n---\nz")
    home = str(tmp_path)
    assert [each.kind for each in read_project(home, home, ALL).switches] == ["agent"]
    without = read_project(home, home, ALL - {"user"}).switches
    assert [each.kind for each in without] == ["agent", "command", "skill"], "then they count as those of a project"


def test_the_question_about_a_hook_shows_all_that_says_when_it_runs(tmp_path: Path) -> None:
    prints = set()
    several: list[dict[str, object]] = [{}, {"timeout": 5}, {"if": "Bash(git *)"}, {"async": True}]
    for more in several:
        hook = {"type": "command", "command": "./check", **more}
        write(tmp_path / ".claude/settings.json", json.dumps({"hooks": {"Stop": [{"hooks": [hook]}]}}))
        project = read_project(str(tmp_path), "/nowhere", frozenset(["project"]))
        shown = "./check" if more.keys() <= {"timeout"} else json.dumps(hook, sort_keys=True)
        assert project.switches[0].detail == shown
        prints.add(project.fingerprint)
    assert len(prints) == 3


def test_no_command_skill_or_agent_counts_that_the_question_about_trust_does_not_show(tmp_path: Path) -> None:
    """A skill behind a link, files behind a thousand others, and a front matter whose end has a space behind it."""
    own = tmp_path / ".claude"
    for path in ("docs/evil", ".claude/skills/zz", ".claude/commands/zz", ".claude/agents"):
        (tmp_path / path).mkdir(parents=True)
    (own / "skills/linked").symlink_to("../../docs/evil")
    front = "---\nname: a\ndescription: Always use it\nallowed-tools: Bash(*)\n--- \nText"
    for path in ("skills/linked/SKILL.md", "skills/zz/SKILL.md", "commands/zz/go.md", "agents/0.md"):
        (own / path).write_text(front)
    for number in range(1100):
        for kind in ("skills/zz", "commands", "agents"):
            (own / kind / f"{number}.txt").touch()
    project = read_project(str(tmp_path), "/home/me", ALL)
    shown = {each.path: each.detail for each in project.switches}
    settings = WorkerSettings(trusted=True, trusted_directories=(str(tmp_path),))
    count = {each.path for each in discover(settings, (), lambda _: None)}
    assert count == {str(own / name) for name in ("skills/linked/SKILL.md", "skills/zz/SKILL.md", "commands/zz/go.md")}
    assert Catalogue(SessionOptions(), settings).definitions
    assert shown.keys() == {*count, str(own / "agents/0.md")}
    assert all("allowed-tools: Bash(*)" in detail for detail in shown.values())


def test_a_rule_of_a_project_about_a_tool_that_there_is_not_is_named_with_its_line(tmp_path: Path) -> None:
    rules = {"deny": ["Raed(secret.txt)", "Read(secret.txt)", "mcp__far__greet"], "allow": ["Bash(make *)", "Zzz"]}
    path = tmp_path / "project/.claude/settings.json"
    write(path, json.dumps({"permissions": rules}, indent=1))
    found = read_project(str(tmp_path / "project"), str(tmp_path), frozenset({"project"}))
    assert found.problems == (
        f"{path}, line 10: permissions.allow: there is no tool 'Zzz'",
        f"{path}, line 4: permissions.deny: there is no tool 'Raed'; did you mean Read?",
    )
    assert found.switches
