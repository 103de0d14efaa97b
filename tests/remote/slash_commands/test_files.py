"""Commands and skills: which prompts call one, which files count, and how their text is expanded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.remote import tools_kit

from ccb.remote.settings.worker_settings import WorkerSettings
from ccb.remote.slash_commands.command_files import CommandFile, discover, expand, named_files
from ccb.remote.slash_commands.command_registry import CommandCall, CommandRegistry, SlashCommand
from ccb.remote.slash_commands.skills import listing


def write(root: Path, name: str, text: str) -> None:
    tools_kit.write(root / ".claude" / name, text)


@pytest.fixture
def roots(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("home", "project"):
        (tmp_path / name).mkdir()
    return tmp_path / "home", tmp_path / "project"


def found(home: Path, project: Path | None) -> tuple[dict[str, CommandFile], list[str]]:
    problems: list[str] = []
    trusted = (str(project),) if project is not None else ()
    settings = WorkerSettings(trusted=project is not None, trusted_directories=trusted)
    return {each.name: each for each in discover(settings, [str(home)], problems.append)}, problems


def test_folders_are_namespaces_and_front_matter_describes(roots: tuple[Path, Path]) -> None:
    home, project = roots
    write(project, "commands/fix.md", "# Fix it\n\nNow.")
    front = "description: Commits\nargument-hint: '[message]'\nallowed-tools: Bash(git add:*), Read\nmodel: haiku"
    write(project, "commands/git/commit.md", f"---\n{front}\n---\nCommit.")
    write(project, "skills/pdf/SKILL.md", "---\nname: pdf\ndescription: Reads PDFs\n---\nUse pdftotext.")
    write(project, "skills/bare/SKILL.md", "no front matter")
    write(project, "commands/bad name.md", "x")
    files, problems = found(home, project)
    assert sorted(files) == ["fix", "git:commit", "pdf"]
    commit = files["git:commit"]
    assert (commit.description, commit.hint, commit.model) == ("Commits", "[message]", "haiku")
    assert commit.allowed == ("Bash(git add:*)", "Read")
    assert files["fix"].description == "Fix it" and files["fix"].body() == ("# Fix it\n\nNow.", True)
    assert files["pdf"].for_model and not commit.for_model
    assert len(problems) == 2


def test_the_projects_files_come_first_and_only_if_trusted(roots: tuple[Path, Path]) -> None:
    home, project = roots
    write(home, "commands/a.md", "mine")
    write(project, "commands/a.md", "theirs")
    write(project, "commands/b.md", "theirs")
    assert {name: each.source for name, each in found(home, project)[0].items()} == {"a": "project", "b": "project"}
    assert {name: each.source for name, each in found(home, None)[0].items()} == {"a": "user"}


@pytest.mark.parametrize(
    ("text", "arguments", "whole"),
    [
        ("Fix $ARGUMENTS now", "the bug", "Fix the bug now"),
        ("$1 then $2, $3.", "'a b' c", "a b then c, ."),
        ("Fix", "it", "Fix\n\nARGUMENTS: it"),
        ("costs $5x or $HOME", "", "costs $5x or $HOME"),
        ("in ${CLAUDE_SKILL_DIR}", "", "in /skill"),
        ("Branch: !`git branch`!", "", "Branch: <git branch>!"),
        ("Log: !`git log $1`", "-3", "Log: <git log -3>"),
        ("say $ARGUMENTS", "!`rm -rf x`", "say !`rm -rf x`"),
        ("a!`b`", "", "a!`b`"),
    ],
)
async def test_expansion(text: str, arguments: str, whole: str) -> None:
    async def shell(command: str) -> str:
        return f"<{command}>\n"

    assert await expand(text, arguments, {"CLAUDE_SKILL_DIR": "/skill"}, shell) == whole


async def test_without_a_shell_commands_stay_text() -> None:
    assert await expand("Now !`date $1`", "-u", {}, None) == "Now !`date -u`"


def test_files_that_a_text_names() -> None:
    assert named_files("see @src/a.py, (@b.md) and me@example.com @src/a.py.") == ["src/a.py", "b.md"]


def test_the_list_of_skills_keeps_to_its_budget() -> None:
    many = [CommandFile(f"skill-{n}", "skill", "/s", "user", "", "x" * 900) for n in range(100)]
    assert len(listing(many)) <= 8000 and listing(many).count("…") == 100
    assert listing(many[:1]).startswith("- skill-0: xxx") and len(listing(many[:1])) < 300
    most = [CommandFile(f"skill-{n}", "skill", "/s", "user", "", "x" * 90) for n in range(500)]
    assert listing(most).splitlines()[0] == "- skill-0"


def command(name: str, source: str = "builtin") -> SlashCommand:
    async def run(call: CommandCall) -> str:
        return call.arguments

    return SlashCommand(name, f"does {name}", run, "[x]", source)


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


@pytest.fixture
def registry() -> CommandRegistry:
    made = CommandRegistry()
    made.register(command("compact"))
    made.provide(lambda: [command("git:commit", "project"), command("compact", "project")])
    return made


@pytest.mark.parametrize(
    ("prompt", "name", "arguments"),
    [
        ("/compact", "compact", ""),
        ("  /compact keep the\nplan ", "compact", "keep the\nplan"),
        ("/git:commit -m 'x'", "git:commit", "-m 'x'"),
        ("/etc/hosts is wrong", None, ""),
        ("/unknown", None, ""),
        ("say /compact", None, ""),
        ("/compactor", None, ""),
    ],
)
def test_a_prompt_calls_a_command_by_its_first_word(
    registry: CommandRegistry, prompt: str, name: str | None, arguments: str
) -> None:
    found = registry.find([text(prompt)])
    assert (found[1].name, found[1].arguments) == (name, arguments) if found else name is None


def test_a_registered_name_wins_and_the_list_is_sorted(registry: CommandRegistry) -> None:
    named = [(each.name, each.source) for each in registry.commands]
    assert named == [("compact", "builtin"), ("git:commit", "project")]
    assert registry.commands[1].public()["description"] == "does git:commit (project)"
    with pytest.raises(ValueError, match="compact"):
        registry.register(command("compact"))


def test_images_go_with_the_call_and_providers_are_asked_again(registry: CommandRegistry) -> None:
    image = {"type": "image"}
    found = registry.find([text("/compact"), image])
    assert found is not None and found[1].attached == [image]
    registry.provide(lambda: [command("late", "skill")])
    assert registry.find([text("/late")]) is not None
