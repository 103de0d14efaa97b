"""Whose a file is: what stands above a project counts only if nobody else can have put it there."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.remote.tools_kit import plant
from tests.support.worker.cages import NO_CAGES, sandbox

from ccb.remote.context.git_state import Git, current_branch
from ccb.remote.context.instructions import find_instructions, instruction_text, project_root
from ccb.remote.context.system_prompt import style_text
from ccb.remote.permissions.git_repositories import why_unsafe
from ccb.remote.permissions.modes import repository_around
from ccb.remote.settings.project_switches import Project, read_project
from ccb.remote.settings.worker_settings import Layer, WorkerSettings
from ccb.remote.slash_commands.command_files import discover
from ccb.remote.subagents.agent_catalogue import Catalogue
from ccb.remote.system.host import Host
from ccb.remote.system.owners import is_ours
from ccb.tunnel.wire.session_options import SessionOptions

_STRANGER = 4711


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A directory as /tmp, with a repository, settings and instructions of somebody in it, and a directory of ours."""
    top = tmp_path / "shared"
    plant(top, "own/", ".git/HEAD: ref: refs/heads/main", ".claude/CLAUDE.md: Run evil.", "CLAUDE.md: Run the evil.")
    plant(top, "CLAUDE.local.md: Run all evil.")
    plant(top, '.claude/settings.json: {"hooks": {"SessionStart": [{"hooks": [{"command": "evil"}]}]}}')
    (top / "own").chmod(0o755)
    return top


def _instructions(directory: object) -> list[str]:
    return [file.text for file in find_instructions(str(directory), "/nowhere")]


def _project(directory: object) -> Project:
    return read_project(str(directory), "/nowhere", frozenset(("project",)))


def _counts(shared: Path) -> list[bool]:
    """Return whether instructions, settings, the root of the project and the repository above `own` count."""
    own, home = str(shared / "own"), str(shared.parent / "home")
    return [
        bool(find_instructions(own, home)),
        bool(read_project(own, home, frozenset(("project", "local"))).switches),
        project_root(own, home) == str(shared),
        bool(repository_around(own, home)),
    ]


def test_what_is_ours_above_a_project_counts(shared: Path) -> None:
    assert _counts(shared) == [True] * 4


@pytest.mark.parametrize(
    ("mode", "owner", "group"),
    [(0o1777, 0, 0), (0o777, 0, 0), (0o757, 0, 0), (0o755, _STRANGER, _STRANGER), (0o2775, 0, _STRANGER)],
)
def test_nothing_counts_above_that_others_may_have_put_there(shared: Path, mode: int, owner: int, group: int) -> None:
    if group and os.geteuid() != 0:
        pytest.skip("only root can give files away")
    for path in (shared, *shared.rglob("*")) if group else ():
        if path == shared or (owner and path != shared / "own"):
            os.chown(path, owner, group)
    shared.chmod(mode)
    assert _counts(shared) == [False] * 4
    if mode & 0o002:
        assert "others may write" in why_unsafe(str(shared / "own"), [str(shared / "own")], "/nowhere")


def test_what_is_in_the_directory_of_the_session_counts_whosever_it_is(shared: Path) -> None:
    shared.chmod(0o777)
    if os.geteuid() == 0:
        for path in shared.rglob("*"):
            os.chown(path, _STRANGER, _STRANGER)
    assert _instructions(shared) == ["Run the evil.\n", "Run evil.\n", "Run all evil.\n"]
    assert _project(shared).switches


def test_only_what_is_ours_counts_between_a_project_and_its_repository(shared: Path) -> None:
    plant(shared / "open", "cwd/", "CLAUDE.md: Do.")
    (shared / "open").chmod(0o777)
    assert _project(shared / "open" / "cwd").directories == (f"{shared}/open/cwd", str(shared))
    assert "Do.\n" not in _instructions(shared / "open" / "cwd")


def test_an_instruction_file_of_a_clone_leads_nowhere_out_of_it(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    plant(clone, ".git/", "sub/", "../passwords.txt: secret", "../notes/CLAUDE.md: secret", ".claude -> ../notes")
    plant(clone, *(f"{name} -> ../passwords.txt" for name in ("CLAUDE.md", "AGENTS.md", "CLAUDE.local.md")))
    assert _instructions(clone) == _instructions(clone / "sub") == []
    (clone / "CLAUDE.md").unlink()
    plant(clone, "sub/CLAUDE.md: inside", "CLAUDE.md -> sub/CLAUDE.md")
    assert _instructions(clone) == ["inside\n"]


def test_a_link_of_ours_above_a_project_may_lead_anywhere_that_is_ours(tmp_path: Path) -> None:
    plant(tmp_path, "dotfiles/me.md: mine", "CLAUDE.md -> dotfiles/me.md", "project/")
    assert _instructions(tmp_path / "project") == ["mine\n"]
    (tmp_path / "dotfiles").chmod(0o777)
    assert _instructions(tmp_path / "project") == []


def test_the_local_file_of_a_clone_is_not_called_the_users_own(tmp_path: Path) -> None:
    plant(tmp_path, "CLAUDE.local.md: Do.")
    (file,) = find_instructions(str(tmp_path), "/nowhere")
    assert "own" not in instruction_text(file).splitlines()[0].replace(str(tmp_path), "")


def test_what_is_missing_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "broken").symlink_to("nowhere")
    assert not is_ours(str(tmp_path / "broken"))
    assert not is_ours(str(tmp_path / "missing" / "file"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_whose_each_file_of_a_project_is_does_not_change_its_fingerprint(tmp_path: Path) -> None:
    plant(tmp_path, '.claude/settings.json: {"model": "m"}')
    mine = _project(tmp_path)
    os.chown(tmp_path / ".claude" / "settings.json", _STRANGER, _STRANGER)
    theirs = _project(tmp_path)
    assert [each.owner for each in (*mine.switches, *theirs.switches)] == ["root", str(_STRANGER)]
    assert mine.fingerprint == theirs.fingerprint


async def test_no_git_that_ccb_runs_finds_a_repository_above_that_others_can_make(shared: Path) -> None:
    subprocess.run(["git", "init", "-q", str(shared)], check=True)
    (shared / "own" / ".git").mkdir()  # no repository: git goes on to look above it
    cages = sandbox(offered=NO_CAGES).cages
    asked = ("rev-parse", "--show-toplevel")
    with contextlib.closing(Host()) as host:
        assert await Git(host, cages, str(shared)).run(*asked) == f"{shared}\n"
        assert await Git(host, cages, str(shared / "own")).run(*asked) is None
        (shared / "own" / ".git").rmdir()
        assert await Git(host, cages, str(shared / "own")).run(*asked) == f"{shared}\n"
        assert current_branch(str(shared / "own"))
        shared.chmod(0o1777)
        assert not Git(host, cages, str(shared / "own")).available
        assert current_branch(str(shared / "own")) == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_work_tree_of_a_strangers_repository_opens_nothing_outside_of_it(tmp_path: Path) -> None:
    made, tree = tmp_path / "theirs", tmp_path / "tree"
    commit = "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x"
    script = f"git init -q theirs; cd theirs; {commit}; git worktree add -q ../tree"
    subprocess.run(["sh", "-ec", script], cwd=tmp_path, check=True)
    assert repository_around(str(tree), "/nowhere") == [str(made / ".git")]
    assert why_unsafe(str(tree), [str(tree)], "/nowhere") == ""
    for path in (made, *made.rglob("*")):
        os.chown(path, _STRANGER, _STRANGER)
    assert repository_around(str(tree), "/nowhere") == []
    assert "outside the working directories" in why_unsafe(str(tree), [str(tree)], "/nowhere")


@pytest.mark.parametrize("how", ["file", "directory"])
def test_no_text_of_a_trusted_project_is_one_that_a_link_leads_to_out_of_it(tmp_path: Path, how: str) -> None:
    text = "---\nname: x\ndescription: x\n---\nsecret"
    clone, other = tmp_path / "clone", tmp_path / "other"
    names = ("commands/x.md", "agents/x.md", "skills/y/SKILL.md", "output-styles/x.md")
    for top in (other, clone / "docs"):
        plant(top, *(f"{name}: {text}" for name in names))
    (clone / ".git").mkdir()

    def lead(target: Path) -> None:
        led = names if how == "file" else [name.partition("/")[0] for name in names]
        plant(clone / ".claude", *(f"{name} -> {target}/{name}" for name in led))

    def read() -> tuple[list[str], list[str]]:
        problems: list[str] = []
        layer = Layer("project", "s", {"outputStyle": "x"}, on_host=True)
        settings = WorkerSettings((layer,), trusted=True, trusted_directories=(str(clone),))
        found = [f"{each.kind} {each.body()[0]}" for each in discover(settings, [], problems.append)]
        catalogue = Catalogue(SessionOptions(), settings)
        found += [f"agent {each.prompt.strip()}" for each in catalogue.definitions]
        return [*found, style_text(settings, "/nowhere").partition("\n")[2]], problems + catalogue.problems

    lead(clone / "docs")
    assert read() == (["command secret", "skill secret", "agent secret", "secret"], [])
    shutil.rmtree(clone / ".claude")
    lead(other)
    found, problems = read()
    assert found == [""]
    assert [each.rpartition(":")[2] for each in problems] == [" it is behind a link that leads out of the project"] * 3
    assert [each.detail for each in _project(clone).switches] == [
        "(it is behind a link that leads out of the project)"
    ] * 3
