"""What the settings of git name in a project, in every way in which git reads them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.remote.sandbox.workspace_kit import Workspace

from ccb.remote.sandbox import cage_server as server_module
from ccb.remote.sandbox.cage_server import CageUnavailable
from ccb.remote.sandbox.outliving import GitSettings
from ccb.remote.system.host import Host


@pytest.fixture(autouse=True)
def settings_of_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    (tmp_path / "project" / "gh").mkdir(parents=True)
    (tmp_path / "project" / "gh" / "pre-commit").write_text("true\n")


def _local(text: str) -> Callable[[Workspace], None]:
    def write(workspace: Workspace) -> None:
        with (workspace.root / ".git" / "config").open("a") as file:
            file.write(text)

    return write


def _included_twice(workspace: Workspace) -> None:
    _local("[include]\n\tpath = ../one\n")(workspace)
    (workspace.root / "one").write_text("[include]\n\tpath = two\n")
    (workspace.root / "two").write_text("[core]\n\thooksPath = gh\n")


def _in_xdg(workspace: Workspace) -> None:
    (workspace.home / "xdg" / "git").mkdir(parents=True)
    (workspace.home / "xdg" / "git" / "config").write_text("[core]\n\thooksPath = gh\n")


def _in_the_repository_of_a_worktree(workspace: Workspace) -> None:
    """The session's directory is a linked worktree, and its repository is elsewhere."""
    (workspace.root / ".git").rename(workspace.home / "git")
    here = {**workspace.environ, "EMAIL": "a@b", "GIT_DIR": str(workspace.home / "git")}
    subprocess.run(["git", "commit", "-qm", "x", "--allow-empty"], cwd=workspace.home, check=True, env=here)
    subprocess.run(["git", "worktree", "add", "-q", str(workspace.home / "w")], check=True, env=here)
    (workspace.home / "w" / ".git").rename(workspace.root / ".git")
    subprocess.run(["git", "config", "core.hooksPath", "gh"], check=True, env=here)


_WAYS = (
    *(_local("[core] hooksPath = gh\n"), _local('[x "]"] y = z\n[core] hooksPath = gh\n')),
    *(_local("[core]\n\thooksPath = gh ; a comment\n"), _local("[core]\n\thooksPath = g\\\nh\n")),
    *(_local('[core]\n\thooksPath = g"h"\n'), _local("[alias]\n\tx = !sh \\\n\t\tgh/pre-commit\n")),
    *(_local("[alias]\n\tname = !gh/pre-commit\n"), _included_twice, _in_xdg, _in_the_repository_of_a_worktree),
)


@pytest.mark.parametrize("way", range(len(_WAYS)))
async def test_what_git_finds_in_its_settings_is_not_changed(way: int, workspace: Workspace) -> None:
    _WAYS[way](workspace)
    await workspace.run("echo evil >gh/pre-commit; for f in one two; do test -e $f && echo evil >$f; done")
    assert (workspace.root / "gh" / "pre-commit").read_text() == "true\n"
    assert not any("evil" in path.read_text() for path in workspace.root.glob("*o*") if path.is_file())


async def test_settings_that_a_person_changes_hold_for_the_next_command(workspace: Workspace) -> None:
    _included_twice(workspace)
    (workspace.root / "two").write_text("[core]\n\thooksPath = other\n")
    await workspace.run("echo one >gh/pre-commit")
    (workspace.root / "two").write_text("[core]\n\thooksPath = gh\n")
    await workspace.run("echo two >gh/pre-commit")
    assert (workspace.root / "gh" / "pre-commit").read_text() == "one\n"


def test_git_is_asked_again_only_when_something_has_changed(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / "inner").mkdir()
    asked = []

    def ask(directory: str) -> bytes:
        asked.append(directory)
        return b"file:.git/config\0include.path\n../more\0file:.git/config\0filter.x.clean\nclean.sh %f\0"

    settings = GitSettings()
    for _ in range(2):
        assert f"{tmp_path}/more" in settings.named_by(f"{tmp_path}/.git", str(tmp_path), ask)
    assert len(asked) == 1
    (tmp_path / "clean.sh").touch()
    assert f"{tmp_path}/clean.sh" in settings.named_by(f"{tmp_path}/.git", str(tmp_path), ask)
    assert len(asked) == 1
    (tmp_path / "more").touch()
    settings.named_by(f"{tmp_path}/.git", str(tmp_path), ask)
    assert len(asked) == 2
    assert settings.named_by(f"{tmp_path}/inner/.git", f"{tmp_path}/inner", ask) == [], "it is no repository"


async def test_where_git_cannot_read_its_settings_there_is_no_cage(workspace: Workspace) -> None:
    _local("[core\n")(workspace)
    with pytest.raises(CageUnavailable, match=r"git cannot list its settings in .*/project"):
        await workspace.start("touch made")
    assert not (workspace.root / "made").exists()


@pytest.mark.parametrize("script", ["sleep 100", "exec yes"])
async def test_a_git_that_does_not_end_holds_up_no_command(
    script: str, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_START_S", 0.5)
    (workspace.home / "bin").mkdir()
    (workspace.home / "bin" / "git").write_text(f"#!/bin/sh\n{script}\n")
    (workspace.home / "bin" / "git").chmod(0o755)
    workspace.host.close()
    workspace.host = Host(environ={**os.environ, "PATH": f"{workspace.home}/bin:{os.environ['PATH']}"})
    monkeypatch.setenv("PATH", f"{workspace.home}/bin:{os.environ['PATH']}")
    with pytest.raises(CageUnavailable, match="git cannot list its settings"):
        await workspace.start("touch made")


async def test_a_git_of_the_project_is_not_asked(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    _local("[core] hooksPath = gh\n")(workspace)
    (workspace.root / "bin").mkdir()
    (workspace.root / "bin" / "git").write_text("#!/bin/sh\n")
    (workspace.root / "bin" / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{workspace.root}/bin:{os.environ['PATH']}")
    workspace.host.close()
    workspace.host = Host()
    await workspace.run("echo evil >gh/pre-commit")
    assert (workspace.root / "gh" / "pre-commit").read_text() == "true\n"
