"""The repository around a session's directory, and that files in the directory cannot name another one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ccb.remote.permissions.modes import repository_around


def git(directory: Path, *arguments: str) -> None:
    settings = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always")
    subprocess.run(["git", *settings, *arguments], cwd=directory, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    path = tmp_path / "repo"
    (path / "sub").mkdir(parents=True)
    (path / "sub" / "a").write_text("1")
    git(path, "init", "-q")
    git(path, "add", ".")
    git(path, "commit", "-qm", "one")
    return path


def test_a_directory_of_a_repository_opens_the_repository(repository: Path, tmp_path: Path) -> None:
    assert repository_around(str(repository), "/home/x") == []
    assert repository_around(str(repository / "sub"), "/home/x") == [str(repository)]
    assert repository_around(str(repository / "sub"), str(repository)) == [str(repository / ".git")], "not all of home"
    assert repository_around(str(tmp_path), "/home/x") == []


def test_a_linked_worktree_opens_its_repository(repository: Path, tmp_path: Path) -> None:
    git(repository, "worktree", "add", "-q", str(tmp_path / "tree"))
    assert repository_around(str(tmp_path / "tree"), "/home/x") == [str(repository / ".git")]
    elsewhere = tmp_path / "copy"
    elsewhere.mkdir()
    (elsewhere / ".git").write_text((tmp_path / "tree" / ".git").read_text())
    assert repository_around(str(elsewhere), "/home/x") == [], "the repository does not know it"


def test_a_pipe_in_a_strangers_repository_keeps_nobody_waiting(tmp_path: Path) -> None:
    (inner := tmp_path / "other/.git/worktrees/x").mkdir(parents=True)
    os.mkfifo(inner / "gitdir")
    (tree := tmp_path / "tree").mkdir()
    (tree / ".git").write_text(f"gitdir: {inner}\n")
    assert repository_around(str(tree), "/home/x") == []


def test_a_submodule_opens_its_own_repository_only(repository: Path, tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    outer.mkdir()
    git(outer, "init", "-q")
    git(outer, "submodule", "add", "-q", str(repository), "inner")
    assert repository_around(str(outer / "inner"), "/home/x") == [str(outer / ".git/modules/inner")]


def test_what_a_clone_claims_opens_nothing(repository: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    (secret / ".git" / "worktrees" / "w").mkdir(parents=True)
    clone = tmp_path / "clone"
    inner = clone / "x" / ".git" / "worktrees" / "w"
    inner.mkdir(parents=True)
    (inner / "gitdir").write_text(f"{clone}/.git\n")
    (inner / "commondir").write_text(str(secret))
    for claimed in (secret, secret / ".git/worktrees/w", inner, repository / ".git", "../secret", "/", "\0"):
        (clone / ".git").write_text(f"gitdir: {claimed}\n")
        assert repository_around(str(clone), "/home/x") == [], claimed
    (clone / ".git").unlink()
    os.symlink(secret, clone / ".git")
    assert repository_around(str(clone), "/home/x") == []
