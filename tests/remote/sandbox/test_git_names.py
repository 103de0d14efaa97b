"""What the settings of git name in a project, in every way in which git reads them."""

from __future__ import annotations

import os
import subprocess
from functools import partial
from pathlib import Path

import pytest
from tests.remote.sandbox.workspace_kit import Workspace
from tests.support.machine.programs import shell_script

from ccb.remote.sandbox import cage_server as server_module
from ccb.remote.sandbox.cage_server import CageUnavailable
from ccb.remote.sandbox.outliving import named_by
from ccb.remote.system.host import Host


@pytest.fixture(autouse=True)
def settings_of_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    (tmp_path / "project" / "gh").mkdir(parents=True)
    (tmp_path / "project" / "gh" / "pre-commit").write_text("true\n")


_INCLUDED_TWICE = """
echo '[include] path = ../one' >>.git/config; echo '[include] path = two' >one; echo '[core] hooksPath = gh' >two
"""
_WORKTREE = """
mv .git ../git; cd ..; export GIT_DIR=$PWD/git EMAIL=a@b; git commit -qm x --allow-empty; git worktree add -q w
mv w/.git project; git config core.hooksPath gh
"""
_WAYS = [
    *(
        f"printf '%s' '{text}' >>.git/config"
        for text in (
            *("[core] hooksPath = gh\n", '[x "]"] y = z\n[core] hooksPath = gh\n', '[core]\n\thooksPath = g"h"\n'),
            *("[core]\n\thooksPath = gh ; a comment\n", "[core]\n\thooksPath = g\\\nh\n"),
            *("[alias]\n\tname = !gh/pre-commit\n", "[alias]\n\tx = !sh \\\n\t\tgh/pre-commit\n"),
        )
    ),
    *(_INCLUDED_TWICE, "mkdir -p ../xdg/git; echo '[core] hooksPath = gh' >../xdg/git/config", _WORKTREE),
]


@pytest.mark.parametrize("way", _WAYS)
async def test_what_git_finds_in_its_settings_is_not_changed(way: str, workspace: Workspace) -> None:
    workspace.person(way)
    await workspace.run("echo evil >gh/pre-commit; for f in one two; do test -e $f && echo evil >$f; done")
    assert (workspace.root / "gh" / "pre-commit").read_text() == "true\n"
    assert not any("evil" in path.read_text() for path in workspace.root.glob("*o*") if path.is_file())


async def test_settings_that_a_person_changes_hold_for_the_next_command(workspace: Workspace) -> None:
    workspace.person(f"{_INCLUDED_TWICE} echo '[core] hooksPath = other' >two")
    await workspace.run("echo one >gh/pre-commit")
    workspace.person("echo '[core] hooksPath = gh' >two")
    await workspace.run("echo two >gh/pre-commit")
    assert (workspace.root / "gh" / "pre-commit").read_text() == "one\n"


def test_git_is_asked_again_only_when_something_has_changed(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / "inner").mkdir()
    asked = []

    def ask(directory: str) -> bytes:
        asked.append(directory)
        return b"file:.git/config\0include.path\n../more\0file:.git/config\0filter.x.clean\nclean.sh %f\0"

    named = partial(named_by, f"{tmp_path}/.git", str(tmp_path), ask, {})
    for _ in range(2):
        assert f"{tmp_path}/more" in named()
    (tmp_path / "clean.sh").touch()
    assert f"{tmp_path}/clean.sh" in named() and len(asked) == 1
    (tmp_path / "more").touch()
    named()
    assert len(asked) == 2
    assert named_by(f"{tmp_path}/inner/.git", f"{tmp_path}/inner", ask, {}) == [], "it is no repository"


async def test_where_git_cannot_read_its_settings_there_is_no_cage(workspace: Workspace) -> None:
    workspace.person("echo '[core' >>.git/config")
    with pytest.raises(CageUnavailable, match=r"git cannot list its settings in .*/project"):
        await workspace.start("touch made")
    assert not (workspace.root / "made").exists()


@pytest.mark.parametrize("script", ["sleep 100", "exec yes"])
async def test_a_git_that_does_not_end_holds_up_no_command(
    script: str, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_START_S", 0.5)
    (workspace.home / "bin").mkdir()
    shell_script(workspace.home / "bin" / "git", script)
    monkeypatch.setenv("PATH", f"{workspace.home}/bin:{os.environ['PATH']}")
    workspace.host.close()
    workspace.host = Host()
    with pytest.raises(CageUnavailable, match="git cannot list its settings"):
        await workspace.start("touch made")


async def test_a_git_of_the_project_is_not_asked(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace.person(
        "echo '[core] hooksPath = gh' >>.git/config; mkdir bin; echo '#!/bin/sh' >bin/git; chmod 755 bin/git"
    )
    monkeypatch.setenv("PATH", f"{workspace.root}/bin:{os.environ['PATH']}")
    workspace.host.close()
    workspace.host = Host()
    await workspace.run("echo evil >gh/pre-commit")
    assert (workspace.root / "gh" / "pre-commit").read_text() == "true\n"
