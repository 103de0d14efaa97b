"""Git is let through only where no file of the repository makes it run a program or read elsewhere. Each way here ran
a program, or showed a secret, with the git of this machine before it was asked about."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.worker.cages import NO_CAGES
from tests.support.worker.permission_desk import Desk, bash

from ccb.remote.context.git_state import GitState, git_state
from ccb.remote.permissions.git_repositories import why_unsafe
from ccb.remote.permissions.modes import Cages, repository_around
from ccb.remote.permissions.rules import Behavior
from ccb.remote.system.host import Host

ALLOW, ASK = Behavior.ALLOW, Behavior.ASK
SECRET = "the secret of another project"


def git(directory: Path, *arguments: str) -> str:
    environ = {"PATH": os.environ["PATH"], "HOME": str(directory.parent / "home"), "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(["git", *arguments], cwd=directory, env=environ, capture_output=True, check=False, timeout=30)
    return os.fsdecode(done.stdout + done.stderr)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with one commit and a changed file."""
    root = tmp_path_factory.mktemp("template")
    project = root / "project"
    project.mkdir()
    (root / "home").mkdir()
    git(project, "init", "-q", "-b", "main")
    git(project, "config", "user.name", "a")
    git(project, "config", "user.email", "a@b")
    (project / "kept.bin").write_text("old\n")
    git(project, "add", ".")
    git(project, "commit", "-q", "-m", "one")
    (project / "kept.bin").write_text("new\n")
    return project


@pytest.fixture
def desk(tmp_path: Path, template: Path) -> Desk:
    """The template in a desk, with a program `run` that leaves `made` when something starts it."""
    desk = Desk(tmp_path)
    shutil.copytree(template, desk.cwd, dirs_exist_ok=True, symlinks=True)
    run = desk.cwd / "run"
    run.write_text(f"#!/bin/sh\ntouch {desk.root}/made\n")
    run.chmod(0o755)
    return desk


def arranged(settings: dict[str, str], files: dict[str, str] | None = None) -> Callable[[Desk], None]:
    """Return what sets the repository up with settings, and with files of the project. RUN is the program."""

    def prepare(desk: Desk) -> None:
        for key, value in settings.items():
            git(desk.cwd, "config", key, value.replace("RUN", str(desk.cwd / "run")))
        for name, text in (files or {}).items():
            (desk.cwd / name).write_text(text.replace("RUN", str(desk.cwd / "run")))

    return prepare


def attribute(key: str) -> Callable[[Desk], None]:
    """Set a program for the files `*.bin`: `filter.x.clean`, `diff.x.textconv`."""
    return arranged({key: "RUN"}, {".gitattributes": f"*.bin {key.partition('.')[0]}=x\n"})


FSMONITOR = "[core]\nfsmonitor = RUN\n"
CONFIG_OF_WORKTREE = arranged({"extensions.worktreeConfig": "true"}, {".git/config.worktree": FSMONITOR})


def _hook(desk: Desk) -> None:
    hook = desk.cwd / ".git/hooks/post-index-change"
    hook.parent.mkdir(exist_ok=True)
    shutil.copy(desk.cwd / "run", hook)
    os.utime(desk.cwd / "a.txt")
    git(desk.cwd, "add", "a.txt")
    (desk.root / "made").unlink(missing_ok=True)
    os.utime(desk.cwd / "a.txt", (1, 1))


def _hooks_path(desk: Desk) -> None:
    _hook(desk)
    shutil.move(desk.cwd / ".git/hooks", desk.cwd / "tools")
    git(desk.cwd, "config", "core.hooksPath", "tools")


def _commondir(desk: Desk) -> None:
    shutil.copytree(desk.cwd / ".git", desk.cwd / "common")
    with open(desk.cwd / "common/config", "a") as file:
        file.write(f"[core]\nfsmonitor = {desk.cwd}/run\n")
    (desk.cwd / ".git/commondir").write_text("../common\n")


def _git_file(desk: Desk) -> None:
    shutil.move(desk.cwd / ".git", desk.cwd / "elsewhere")
    (desk.cwd / ".git").write_text("gitdir: elsewhere\n")
    git(desk.cwd, "config", "core.fsmonitor", str(desk.cwd / "run"))


def _unlike_a_repository(desk: Desk) -> None:
    """`objects` and `refs` are files that may be executed, which is all that git asks of them."""
    shutil.rmtree(desk.cwd / ".git")
    (desk.cwd / "HEAD").write_text("ref: refs/heads/main\n")
    for name in ("objects", "refs"):
        (desk.cwd / name).write_text("")
        (desk.cwd / name).chmod(0o755)
    settings = f"repositoryformatversion = 0\nbare = false\nworktree = .\nfsmonitor = {desk.cwd}/run\n"
    (desk.cwd / "config").write_text(f"[core]\n{settings}")


def _head_by_commondir(desk: Desk) -> None:
    """A directory with HEAD and commondir is a repository without objects of its own."""
    _gpg(desk)
    shutil.move(desk.cwd / ".git", desk.cwd / "common")
    (desk.cwd / "HEAD").write_text("ref: refs/heads/main\n")
    (desk.cwd / "commondir").write_text("common\n")


def _not_quite_a_repository(desk: Desk) -> None:
    """git goes on upward from a `.git` whose HEAD is nothing, and finds the directory above."""
    inner = desk.cwd / "sub"
    for name in ("objects", "refs"):
        (inner / ".git" / name).mkdir(parents=True)
    (inner / ".git/HEAD").write_text("nothing\n")
    git(desk.cwd, "config", "core.fsmonitor", str(desk.cwd / "run"))


def _submodule(desk: Desk) -> None:
    """`git status` starts git in a submodule, whose configuration is its own."""
    inner = desk.cwd / "inner"
    git(desk.cwd, "clone", "-q", ".", "inner")
    git(desk.cwd, "add", "inner")
    git(inner, "config", "core.fsmonitor", str(desk.cwd / "run"))


def _promisor(desk: Desk) -> None:
    """git fetches an object that is missing, by the program that the configuration names."""
    blob = git(desk.cwd, "rev-parse", "HEAD:kept.bin").strip()
    (desk.cwd / ".git/objects" / blob[:2] / blob[2:]).unlink()
    remote = {"remote.p.url": str(desk.cwd), "remote.p.promisor": "true", "remote.p.uploadpack": "RUN"}
    arranged({**remote, "core.repositoryformatversion": "1", "extensions.partialClone": "p"})(desk)


def _gpg(desk: Desk) -> None:
    arranged({"log.showSignature": "true", "gpg.program": "RUN"})(desk)
    signed = git(desk.cwd, "cat-file", "commit", "HEAD").replace(
        "\n\n", "\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----\n\n", 1
    )
    (desk.cwd / "signed").write_text(signed)
    commit = git(desk.cwd, "hash-object", "-t", "commit", "-w", "signed").strip()
    git(desk.cwd, "update-ref", "refs/heads/main", commit)


RUNNERS: list[tuple[str, Callable[[Desk], None], str, str]] = [
    ("fsmonitor", arranged({"core.fsmonitor": "RUN"}), "git status", ""),
    ("fsmonitor-in-a-subdirectory", arranged({"core.fsmonitor": "RUN"}), "git status", "sub"),
    ("external-diff", arranged({"diff.external": "RUN"}), "git diff", ""),
    ("diff-command", attribute("diff.x.command"), "git diff", ""),
    ("textconv", attribute("diff.x.textconv"), "git log -p", ""),
    ("textconv-of-blame", attribute("diff.x.textconv"), "git blame kept.bin", ""),
    ("filter-clean", attribute("filter.x.clean"), "git diff", ""),
    ("filter-process", attribute("filter.x.process"), "git diff", ""),
    ("hook", _hook, "git status", ""),
    ("hooks-path", _hooks_path, "git status", ""),
    ("include", arranged({"include.path": "../more"}, {"more": FSMONITOR}), "git status", ""),
    ("config-worktree", CONFIG_OF_WORKTREE, "git status", ""),
    ("commondir", _commondir, "git status", ""),
    ("git-file", _git_file, "git status", ""),
    ("unlike-a-repository", _unlike_a_repository, "git status", ""),
    ("head-by-commondir", _head_by_commondir, "git log", ""),
    ("not-quite-a-repository", _not_quite_a_repository, "git status", "sub"),
    ("submodule", _submodule, "git status", ""),
    ("promisor", _promisor, "git diff", ""),
    ("gpg", _gpg, "git log", ""),
]


@pytest.mark.parametrize(("prepare", "command", "where"), [each[1:] for each in RUNNERS], ids=[r[0] for r in RUNNERS])
async def test_a_repository_that_names_a_program_is_asked_about_and_the_state_of_git_runs_none(
    desk: Desk, prepare: Callable[[Desk], None], command: str, where: str
) -> None:
    assert bash(desk.engine(), command, shell_cwd=str(desk.cwd / where)).behavior is ALLOW
    prepare(desk)
    (desk.root / "made").unlink(missing_ok=True)
    state = await uncaged_state(desk)
    assert not (desk.root / "made").exists()
    assert where or state is None or "not asked" in state.status
    git(desk.cwd / where, *command.split()[1:])
    assert (desk.root / "made").exists(), "the repository is harmless: it proves nothing"
    for strict in (False, True):
        assert why_unsafe(str(desk.cwd / where), [str(desk.cwd)], str(desk.home), strict)
    for line in (command, f"timeout 9 {command}", f"find . -type f -exec {command} \\;", "git log", "git branch"):
        decision = bash(desk.engine(), line, shell_cwd=str(desk.cwd / where))
        assert decision.behavior is ASK, line


async def test_the_state_is_told_where_nothing_names_a_program(desk: Desk) -> None:
    state = await uncaged_state(desk)
    assert state is not None
    assert "kept.bin" in state.status
    assert state.branch == "main"
    assert "one" in state.recent_commits


async def uncaged_state(desk: Desk) -> GitState | None:
    """The state of the repository on a host without a cage: only the judgement keeps programs from running."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(desk.home), "GIT_CONFIG_NOSYSTEM": "1"}
    return await git_state(str(desk.cwd), Host(environ=environ), Cages(lambda: NO_CAGES, environ, str(desk.home)))


def test_a_repository_elsewhere_is_asked_about(desk: Desk) -> None:
    """A `.git` that somebody wrote would show another project of this person."""
    private = desk.root / "private"
    shutil.copytree(desk.cwd / ".git", private / ".git")
    own = desk.cwd / ".git"
    changes = ("gitdir: ../private/.git\n", "link", "commondir", "alternates", "worktree", "packed-refs", "objects")
    for change in changes:
        shutil.rmtree(own)
        shutil.copytree(private / ".git", own)
        assert bash(desk.engine(), "git log").behavior is ALLOW
        if change in ("link", "objects", "packed-refs"):
            target = own if change == "link" else own / change
            shutil.rmtree(target) if target.is_dir() else target.unlink(missing_ok=True)
            os.symlink(private / ".git" / ("" if change == "link" else change), target)
        elif change == "commondir":
            (own / "commondir").write_text("../../private/.git\n")
        elif change == "alternates":
            (own / "objects/info").mkdir(exist_ok=True)
            (own / "objects/info/alternates").write_text(f"{private}/.git/objects\n")
        elif change == "worktree":
            git(desk.cwd, "config", "core.worktree", str(desk.root))
        else:
            shutil.rmtree(own)
            own.write_text(change)
        assert bash(desk.engine(), "git log").behavior is ASK, change
        assert bash(desk.engine(add_dirs=[str(desk.root)]), "git log").behavior is (
            ASK if change in ("packed-refs", "objects") else ALLOW
        ), change
        if own.is_symlink() or own.is_file():
            own.unlink()
            own.mkdir()


def test_a_work_tree_that_its_repository_knows_is_let_through(desk: Desk) -> None:
    git(desk.cwd, "worktree", "add", "-q", str(desk.root / "tree"))
    tree = desk.root / "tree"
    outside = Desk(desk.root / "another")
    assert why_unsafe(str(tree), [str(tree)], str(desk.home)) == ""
    shutil.copy(tree / ".git", outside.cwd / ".git")
    assert "leads to" in why_unsafe(str(outside.cwd), [str(outside.cwd)], str(desk.home))
    git(desk.cwd, "config", "core.fsmonitor", "./run")
    assert "core.fsmonitor" in why_unsafe(str(tree), [str(tree)], str(desk.home))


def test_usual_configurations_are_let_through(desk: Desk) -> None:
    git(desk.cwd, "remote", "add", "origin", "git@example.com:a/b.git")
    usual = {"branch.main.remote": "origin", "branch.main.vscode-merge-base": "origin/main", "pull.rebase": "true"}
    usual |= {"core.sshCommand": "ssh -i ~/.ssh/key", "core.hooksPath": ".husky/_", "core.fsmonitor": "false"}
    usual |= {"blame.ignoreRevsFile": ".git-blame-ignore-revs", "alias.st": "!touch x", "diff.algorithm": "histogram"}
    usual |= {"lfs.https://example.com/a.access": "basic", "credential.helper": "store"}
    arranged({**usual, "submodule.lib.url": "../lib.git"})(desk)
    (desk.cwd / ".husky/_").mkdir(parents=True)
    (desk.cwd / ".husky/_/pre-commit").write_text("")
    git(desk.cwd, "pack-refs", "--all")
    assert bash(desk.engine(), "git status").behavior is ALLOW
    (desk.home / ".gitconfig").write_text("[user]\n\tname = a\n[core]\n\teditor = vi\n")
    assert why_unsafe(str(desk.cwd), [str(desk.cwd)], str(desk.home), strict=True) == ""
    (desk.home / ".gitconfig").write_text('[filter "lfs"]\n\tprocess = git-lfs filter-process\n')
    assert bash(desk.engine(), "git status").behavior is ALLOW, "it is the person's own"
    assert "filter.process" in why_unsafe(str(desk.cwd), [str(desk.cwd)], str(desk.home), strict=True)
    git(desk.cwd, "config", "alias.status", "!touch x")
    assert bash(desk.engine(), "git status").behavior is ASK


@pytest.mark.parametrize(
    "text",
    [
        *("[core]\n x = a\\\n [user]\n fsmonitor = ./run\n", "[core] fsmonitor = ./run\n"),
        *("[CORE]\nFSMONITOR = ./run\n", "[core.sub]\n a = b\n", '[core "a\\"b"]\n a = b\n', "[core]\n a b\n"),
        *("fsmonitor = ./run\n", "[core]\nfsmonitor\n", "[core]\nabbrev = 7 \\\r\n[user]\nname = x\n"),
        *('[includeIf "gitdir:/"]\npath = x\n', '[core]\nworktree = "/"\n', '[core]\nhookspath = "a\\tb"\n'),
        "[core]\n" + "a" * 300_000,
    ],
    ids=lambda text: ascii(text[:30]),
)
def test_a_configuration_that_can_be_read_in_two_ways_is_asked_about(desk: Desk, text: str) -> None:
    (desk.cwd / ".git/config").write_text(text)
    assert bash(desk.engine(), "git status").behavior is ASK


@pytest.mark.parametrize("name", ["gitdir", "commondir", "worktree", "index"])
async def test_no_byte_in_a_repository_ends_the_session(desk: Desk, name: str) -> None:
    own = desk.cwd / ".git"
    if name == "gitdir":
        shutil.rmtree(own)
        own.write_bytes(b"gitdir: a\0b\n")
    elif name == "commondir":
        (own / "commondir").write_bytes(b"a\0b\n")
    elif name == "worktree":
        (own / "config").write_bytes(b"[core]\nworktree = a\0\xffb\n")
    else:
        (own / "index").write_bytes(b"DIRC\0\0\0\2\xff\xff\xff\xff\0\0\xe0\0")
    assert bash(desk.engine(), "git status").behavior is ASK
    await uncaged_state(desk)


def test_what_is_no_file_stops_nothing(desk: Desk) -> None:
    (desk.cwd / ".git/config").unlink()
    os.mkfifo(desk.cwd / ".git/config")
    assert bash(desk.engine(), "git status").behavior is ASK


@pytest.fixture
def repository(tmp_path: Path, template: Path) -> Path:
    path = tmp_path / "repo"
    shutil.copytree(template, path, symlinks=True)
    (path / "sub").mkdir()
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
    git(outer, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(repository), "inner")
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
