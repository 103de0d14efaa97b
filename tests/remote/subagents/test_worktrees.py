"""Agents that work in a git worktree of their own."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.remote.agent_kit import calls, says
from tests.remote.subagents.delegation import MAIN, ONE, Delegation, delegates, delegation, task, worked
from tests.remote.worker_process import until

from ccb.remote.daemon.assembly import INTERRUPTED
from ccb.remote.host_commands.reports import Reports
from ccb.remote.host_commands.stopping import Remover
from ccb.remote.subagents.worktrees import Worktrees

ISOLATED = {"isolation": "worktree"}


def git(directory: Path, *words: str) -> str:
    named = ("-c", "user.name=a", "-c", "user.email=a@example.org", *words)
    return subprocess.run(["git", *named], cwd=directory, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The session's directory: a part of a repository with one commit, whose hook would leave a trace."""
    top = tmp_path / "project"
    (top / ".claude").mkdir(parents=True)
    (top / "file.txt").write_text("one\n")
    (top / ".claude/settings.json").write_text("{}")
    git(top, "init", "-q", "-b", "main")
    hook = top / ".git/hooks/post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/hooked\n")
    hook.chmod(0o755)
    git(top, "add", "-A")
    git(top, "commit", "-qm", "one")
    return top


def trees(project: Path) -> list[Path]:
    place = project / ".claude/worktrees"
    return [each for each in sorted(place.iterdir()) if each.is_dir()] if place.is_dir() else []


def isolated(prompt: str = "edit it", **fields: object) -> tuple[str, str, dict[str, object]]:
    return task(ONE, prompt, isolation="worktree", **fields)


def ended(d: Delegation) -> dict[str, object]:
    told = d.results()[ONE]["tool_use_result"]
    assert isinstance(told, dict)
    return told


async def test_an_agent_changes_files_in_its_worktree_only_which_is_kept(tmp_path: Path, project: Path) -> None:
    script = [
        calls(("b1", "Bash", {"command": "pwd"}), ("r1", "Read", {"file_path": "file.txt"})),
        calls(("w1", "Write", {"file_path": "new.txt", "content": "two\n"})),
        calls(("w2", "Write", {"file_path": str(project / "outside.txt"), "content": "no"})),
        says("edited"),
    ]
    log = tmp_path / "log"
    listed = {"type": "command", "command": f'cat >> {log}; echo "$PWD $CLAUDE_PROJECT_DIR" >> {log}.places'}
    hooks = {"PostToolUse": [{"matcher": "Bash|Task", "hooks": [listed]}]}
    settings = {"layers": [{"source": "user", "path": "s.json", "values": {"hooks": hooks}}]}
    given = {"permission_mode": "acceptEdits", "permission_prompts": "none", "settings": settings}
    async with worked(tmp_path, *script, call=ISOLATED, **given) as d:
        (tree,) = trees(project)
        told = ended(d)
        assert (told["worktreePath"], told["worktreeBranch"]) == (str(tree), f"worktree/{tree.name}")
        assert tree.name.startswith("do-edit-it-") and f"worktree {tree}, on the branch" in d.result_text(ONE)
        assert d.result_text("b1", ONE).startswith(str(tree))
        assert (tree / "new.txt").read_text() == "two\n" and (tree / "file.txt").read_text() == "one\n"
        assert "was not granted" in d.result_text("w2", ONE)
        system = json.dumps(d.model.requests["edit it"][0]["system"])
        assert f"Working directory: {tree}" in system and f"on the branch worktree/{tree.name}" in system
    assert not (project / "new.txt").exists() and not (project / "outside.txt").exists()
    assert not (tmp_path / "hooked").exists(), "no hook of the repository runs"
    events = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(each["tool_name"], each["cwd"]) for each in events] == [("Bash", str(tree)), ("Task", str(project))]
    places = (tmp_path / "log.places").read_text().splitlines()
    assert places == [f"{tree} {project}", f"{project} {project}"]
    assert git(project, "status", "--porcelain") == "", "the repository does not see its worktrees"


async def test_a_worktree_without_changes_is_removed_and_made_anew(tmp_path: Path, project: Path) -> None:
    again = task("toolu_two", "once more", resume=ONE)
    scripts = {
        MAIN: [*delegates(isolated("look")), calls(again, message_id="m3"), says("Fine.", "m4")],
        "look": [
            *(calls(("r1", "Read", {"file_path": "file.txt"})), says("ok", "c1")),
            *(calls(("b1", "Bash", {"command": "pwd"}), message_id="c2"), says("ok", "c3")),
        ],
    }
    async with delegation(tmp_path, scripts) as d:
        await d.turn(MAIN + "go")
        assert "worktreePath" not in ended(d) and "worktree" not in d.result_text(ONE)
        assert [each.body.get("removed", False) for each in d.records() if each.kind == "worktree"] == [False, True]
        await d.turn(MAIN + "go on")
        assert d.result_text("b1", ONE).startswith(f"{project}/.claude/worktrees/do-once-more-")
    assert trees(project) == [] and git(project, "branch", "--format=%(refname:short)") == "main"
    assert git(project, "worktree", "list").count("\n") == 0


async def test_a_commit_keeps_a_worktree_also_when_the_agent_is_interrupted(tmp_path: Path, project: Path) -> None:
    commit = "echo x > c && git add c && git -c user.name=a -c user.email=a@b commit -qm c"
    commit = f"{commit} && touch {tmp_path}/done; sleep 600"
    scripts = {MAIN: delegates(isolated("commit")), "commit": [calls(("b1", "Bash", {"command": commit}))]}
    async with delegation(tmp_path, scripts, allowed_tools=["Bash"], sandbox="off") as d:
        running = asyncio.ensure_future(d.turn(MAIN + "go"))
        await until((tmp_path / "done").exists, "the commit")
        d.session.agent.interrupt()
        await running
        (tree,) = trees(project)
        assert f"Its changes are in the git worktree {tree}" in d.result_text(ONE)
    assert git(project, "log", "-1", "--format=%s", f"worktree/{tree.name}") == "c"


async def test_an_interrupt_leaves_no_worktree(tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, real = project / ".claude/worktrees", shutil.which("git")
    slow = tmp_path / "bin/git"
    slow.parent.mkdir()
    slow.write_text(
        f'#!/bin/sh\ncase "$*" in *"worktree add"*) {real} "$@"; touch {place}/making; sleep 600;; esac\n'
        f'exec {real} "$@"\n'
    )
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    async with delegation(tmp_path, {MAIN: delegates(isolated())}) as d:
        running = asyncio.ensure_future(d.turn(MAIN + "go"))
        await until((place / "making").exists, "the worktree")
        assert len(trees(project)) == 1
        d.session.agent.interrupt()
        await running
        assert [each.body.get("removed", False) for each in d.records() if each.kind == "worktree"] == [False, True]
    assert trees(project) == [] and git(project, "branch", "--format=%(refname:short)") == "main"


async def test_a_half_made_worktree_is_made_anew_and_a_locked_one_keeps_its_work(tmp_path: Path, project: Path) -> None:
    async with delegation(tmp_path, {MAIN: delegates(isolated())}) as d:
        context = d.session.agent.config.context
        worktrees = Worktrees(context)
        tree = await worktrees.plan(str(project), "half", ONE)
        await worktrees.make(tree)
        work = Path(tree.path) / "file.txt"
        work.unlink()
        lock = project / ".git/worktrees" / Path(tree.path).name / "locked"
        lock.write_text("initializing")  # as git leaves it
        await worktrees.make(tree)
        assert work.exists() and not lock.exists()
        work.write_text("the work of an hour")
        git(project, "worktree", "lock", "--reason", "keep it", tree.path)
        await worktrees.make(tree)
        assert work.read_text() == "the work of an hour" and not await worktrees.remove(tree)
        git(project, "worktree", "unlock", tree.path)
        work.write_text("one\n")
        assert await worktrees.remove(tree)


async def test_an_agent_goes_on_in_its_worktree_after_the_worker_was_killed(tmp_path: Path, project: Path) -> None:
    script = calls(("w1", "Write", {"file_path": "half.txt", "content": "half"})), says("half done")
    async with worked(tmp_path, *script, call=ISOLATED, permission_mode="acceptEdits"):
        journal = (tmp_path / "journal.jsonl").read_bytes()
    cut = journal[: journal.index(b'"kind":"agent_result"')].rpartition(b"\n")[0] + b"\n"
    (tmp_path / "journal.jsonl").write_bytes(cut)
    (tree,) = trees(project)
    again = task("toolu_two", "finish it", resume=ONE)
    scripts = {
        MAIN: [calls(again, message_id="m3"), says("Fine.", "m4")],
        "edit it": [calls(("b2", "Bash", {"command": "cat half.txt; pwd"}), message_id="c3"), says("done", "c4")],
    }
    async with delegation(tmp_path, scripts) as d:
        told = d.result_text(ONE)
        assert INTERRUPTED in told and f"Its worktree is {tree}" in told
        await d.turn(MAIN + "go on")
        assert d.result_text("b2", ONE) == f"half{tree}"
        assert d.results()["toolu_two"]["tool_use_result"]["worktreePath"] == str(tree)
    assert trees(project) == [tree]


@pytest.mark.parametrize(
    "died_before",
    ['"kind":"message","body":{"type":"system","subtype":"task_started"', '"kind":"message","body":{"type":"user"'],
)
async def test_a_worktree_is_told_whenever_the_worker_dies(tmp_path: Path, project: Path, died_before: str) -> None:
    script = calls(("w1", "Write", {"file_path": "new.txt", "content": "x"})), says("written")
    async with worked(tmp_path, *script, call=ISOLATED, permission_mode="acceptEdits"):
        lines = (tmp_path / "journal.jsonl").read_text().splitlines(keepends=True)
    result = f'"tool_use_id":"{ONE}","content"'
    (at, *_) = [n for n, line in enumerate(lines) if died_before in line and (result in line or "task_started" in line)]
    (tmp_path / "journal.jsonl").write_text("".join(lines[:at]))
    (tree,) = trees(project)
    async with delegation(tmp_path, {MAIN: [says("I see.", "m3")]}) as d:
        told = d.result_text(ONE)
        assert INTERRUPTED in told and f"made for the agent is {tree}, on the branch" in told
        await d.turn(MAIN + "go on")


async def test_commands_in_the_workspace_cage_change_the_worktree_only(tmp_path: Path, project: Path) -> None:
    line = "git status --short --branch && echo x > made && (echo y > ../../../outside || echo held)"
    script = [calls((f"b{i}", "Bash", {"command": each})) for i, each in enumerate([line, "git log -1"], 1)]
    options = {"sandbox": "workspace", "permission_prompts": "none"}
    async with worked(tmp_path, *script, says("ok"), call=ISOLATED, **options) as d:
        (tree,) = trees(project)
        assert f"## worktree/{tree.name}" in d.result_text("b1", ONE) and "held" in d.result_text("b1", ONE)
        assert "one" in d.result_text("b2", ONE)
    assert (tree / "made").exists() and not (project / "outside").exists()
    assert (tree / ".git").is_file(), "nothing of git was set aside"


async def test_worktrees_go_with_their_session_unless_something_is_in_them(tmp_path: Path, project: Path) -> None:
    scripts = {
        MAIN: delegates(isolated("write"), task("toolu_two", "sleep", isolation="worktree")),
        "write": [calls(("w1", "Write", {"file_path": "new.txt", "content": "x"})), says("written")],
        "sleep": [calls(("b1", "Bash", {"command": f"touch {tmp_path}/asleep; sleep 600"}))],
    }
    async with delegation(tmp_path, scripts, allowed_tools=["Bash", "Write"]) as d:
        d.say(MAIN + "go")
        running = asyncio.ensure_future(d.session.turns.run())
        await until(lambda: (tmp_path / "asleep").exists() and ONE in d.results(), "both agents at work")
        running.cancel()  # the worker ends
        await asyncio.wait({running})
    kept, left = sorted(trees(project), key=lambda each: not (each / "new.txt").exists())
    reader, writer = os.pipe()
    for dry_run in (True, False):
        await asyncio.to_thread(Remover(Reports(writer), dry_run).worktrees, str(tmp_path))
        assert left.exists() is dry_run and kept.exists()
    told = os.read(reader, 65536).decode()
    assert told.count('"kept"') == 3 and f"worktree/{kept.name}" in told
    assert git(project, "branch", "--format=%(refname:short)").split() == ["main", f"worktree/{kept.name}"]
    os.close(reader)
    os.close(writer)


async def test_without_a_repository_or_with_programs_in_it_no_agent_starts(tmp_path: Path, project: Path) -> None:
    with (project / ".git/config").open("a") as config:
        config.write(f'[filter "x"]\n\tsmudge = touch {tmp_path}/smudged; cat\n')
    async with worked(tmp_path, call=ISOLATED) as d:
        assert "which can start a program" in d.result_text(ONE)
        assert not d.model.requests["edit it"] and not d.messages("system", "task_started")
    async with worked(tmp_path / "other", call=ISOLATED) as d:
        assert "is not in a repository of git" in d.result_text(ONE)
    assert trees(project) == [] and not (tmp_path / "smudged").exists()


async def test_a_place_behind_a_link_is_refused_before_anything_is_made_there(tmp_path: Path, project: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (project / ".claude").rename(elsewhere)
    (project / ".claude").symlink_to(elsewhere)
    async with worked(tmp_path, call=ISOLATED) as d:
        assert "is behind a link" in d.result_text(ONE)
    assert not (elsewhere / "worktrees").exists()
