"""`--worktree`: a session works in a git worktree of its own."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.model.fake_model import FakeModel
from tests.support.person.laptop import Laptop, make_laptop

from ccb.local.command_line.parser import parse_arguments
from ccb.tunnel.errors import UsageError


def git(directory: Path, *words: str) -> str:
    named = ("-c", "user.name=a", "-c", "user.email=a@example.org", *words)
    return subprocess.run(["git", *named], cwd=directory, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def laptop(tmp_path: Path, fake_model: FakeModel) -> Laptop:
    return make_laptop(tmp_path, fake_model.url)


@pytest.mark.programs
async def test_a_session_works_in_its_worktree_goes_back_into_it_and_leaves_none_without_changes(
    laptop: Laptop, fake_model: FakeModel, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    git(project, "init", "-q", "-b", "main")
    (project / "file.txt").write_text("one\n")
    git(project, "add", ".")
    git(project, "commit", "-q", "-m", "first")
    tree = project / ".claude/worktrees/fix"

    fake_model.add({"text": "looked"})
    given = ["-p", "--output-format", "json"]
    done = await laptop.run([str(project), *given, "look", "--worktree", "fix"])
    result = json.loads(done.stdout)
    assert result["result"] == "looked" and str(tree) in json.dumps(fake_model.requests[-1].body), done.stderr
    await _until(lambda: git(project, "branch", "--list", "worktree/*") == "")
    assert not tree.exists(), "nothing was changed"

    command = {"command": "pwd; echo two > file.txt"}
    fake_model.add({"blocks": [{"type": "tool_use", "name": "Bash", "input": command}]}, {"text": "changed"})
    done = await laptop.run([str(project), *given, "change it", "--continue", "--allowedTools", "Bash"])
    changed = json.loads(done.stdout)
    assert changed["result"] == "changed" and changed["session_id"] == result["session_id"], done.stderr
    assert str(tree) in json.dumps(fake_model.requests[-1].body)
    assert (tree / "file.txt").read_text() == "two\n" and (project / "file.txt").read_text() == "one\n"
    assert git(project, "branch", "--list", "worktree/*").endswith("worktree/fix"), "what is changed is kept"

    fake_model.add({"text": "there"})
    moved = project.rename(tmp_path / "moved")
    done = await laptop.run([str(moved), *given, "go on", "--continue"])
    assert json.loads(done.stdout)["session_id"] == result["session_id"], done.stderr
    assert str(moved / tree.relative_to(project)) in json.dumps(fake_model.requests[-1].body)

    plain = tmp_path / "plain"
    plain.mkdir()
    done = await laptop.run([str(plain), *given, "look", "--worktree=fix"])
    assert done.code == 2 and "there is no worktree for the session" in done.stdout + done.stderr


async def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["ssh", "h:/p", "--worktree", "fix"], "fix"),
        (["ssh", "h:/p", "-w"], ""),
        (["ssh", "--worktree", "h"], ""),
        (["ssh", "h:/p", "-p", "go", "--worktree=fix-2.1"], "fix-2.1"),
        (["ssh", "h:/p", "-p", "--worktree", "fix it all"], ""),
        (["ssh", "h:/p"], None),
    ],
)
def test_the_word_behind_the_option_is_a_name_if_the_place_is_named_before(argv: list[str], name: str | None) -> None:
    assert parse_arguments(argv).session.worktree == name


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["ssh", "h", "--worktree", "--continue"], "--worktree is for a new session"),
        (["ssh", "h", "--worktree=../x"], "is no name for a worktree"),
    ],
)
def test_a_worktree_that_makes_no_sense_is_refused(argv: list[str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse_arguments(argv)
