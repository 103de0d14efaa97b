"""`--worktree`: a session works in a git worktree of its own."""

from __future__ import annotations

import json

import pytest
from tests.remote.subagents.test_worktrees import git
from tests.support.machine.waiting import until
from tests.support.model.model_script import uses
from tests.support.person.laptop import Here

from ccb.local.command_line.parser import parse_arguments
from ccb.tunnel.errors import UsageError


@pytest.mark.programs
async def test_a_session_works_in_its_worktree_goes_back_into_it_and_leaves_none_without_changes(here: Here) -> None:
    project, laptop = here.project, here.laptop
    git(project, "init", "-q", "-b", "main")
    (project / "file.txt").write_text("one\n")
    git(project, "add", ".")
    git(project, "commit", "-q", "-m", "first")
    tree = project / ".claude/worktrees/fix"

    here.model.add({"text": "looked"})
    given = ["-p", "--output-format", "json"]
    done = await here.run(*given, "look", "--worktree", "fix")
    result = json.loads(done.stdout)
    assert result["result"] == "looked" and str(tree) in json.dumps(here.model.requests[-1].body), done.stderr
    await until(lambda: git(project, "branch", "--list", "worktree/*") == "")
    assert not tree.exists(), "nothing was changed"

    here.model.add(uses("Bash", command="pwd; echo two > file.txt"), {"text": "changed"})
    done = await here.run(*given, "change it", "--continue", "--allowedTools", "Bash")
    changed = json.loads(done.stdout)
    assert changed["result"] == "changed" and changed["session_id"] == result["session_id"], done.stderr
    assert str(tree) in json.dumps(here.model.requests[-1].body)
    assert (tree / "file.txt").read_text() == "two\n" and (project / "file.txt").read_text() == "one\n"
    assert git(project, "branch", "--list", "worktree/*").endswith("worktree/fix"), "what is changed is kept"

    here.model.add({"text": "there"})
    moved = project.rename(project.with_name("moved"))
    done = await laptop.run([str(moved), *given, "go on", "--continue"])
    assert json.loads(done.stdout)["session_id"] == result["session_id"], done.stderr
    assert str(moved / tree.relative_to(project)) in json.dumps(here.model.requests[-1].body)

    plain = moved.with_name("plain")
    plain.mkdir()
    done = await laptop.run([str(plain), *given, "look", "--worktree=fix"])
    assert done.code == 2 and "there is no worktree for the session" in done.stdout + done.stderr


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
