"""Git is let through only where no file of the repository makes it run a program or read elsewhere. Each way here ran
a program, or showed a secret, with the git of this machine before it was asked about."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.support.machine.programs import shell_script
from tests.support.worker.cages import NO_CAGES
from tests.support.worker.permission_desk import Desk, bash

from ccb.remote.context.git_state import git_text
from ccb.remote.permissions.git_repositories import why_unsafe
from ccb.remote.permissions.modes import Cages, repository_around
from ccb.remote.permissions.rules import Behavior
from ccb.remote.system.host import Host

ALLOW, ASK = Behavior.ALLOW, Behavior.ASK


def sh(directory: Path, script: str) -> None:
    """Run a script in a project. `$RUN` is a program in it, and `$ROOT` the directory above."""
    root = directory.parent
    environ = {"PATH": os.environ["PATH"], "HOME": f"{root}/home", "GIT_CONFIG_NOSYSTEM": "1", "ROOT": str(root)}
    environ["RUN"] = f"{directory}/run"
    subprocess.run(["sh", "-ec", script], check=True, capture_output=True, cwd=directory, env=environ, timeout=30)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with one commit and a changed file."""
    project = tmp_path_factory.mktemp("template") / "project"
    project.mkdir()
    sh(project, "mkdir ../home; git init -q -b main; git config user.name a; git config user.email a@b")
    sh(project, "echo old >kept.bin; git add .; git commit -q -m one; echo new >kept.bin")
    return project


@pytest.fixture
def desk(tmp_path: Path, template: Path) -> Desk:
    """The template in a desk, with a program `run` that leaves `made` when something starts it."""
    desk = Desk(tmp_path)
    shutil.copytree(template, desk.cwd, dirs_exist_ok=True, symlinks=True)
    shell_script(desk.cwd / "run", f"touch {desk.root}/made")
    return desk


FSMONITOR = "git config core.fsmonitor $RUN"
FOR_FILES = "git config {0}.x.{1} $RUN; echo '*.bin {0}=x' >.gitattributes"
HOOK = "mkdir -p .git/hooks; cp run .git/hooks/post-index-change; touch a.txt; git add a.txt; touch -d @1 a.txt"
NO_OBJECTS = "[core]\nrepositoryformatversion = 0\nbare = false\nworktree = .\nfsmonitor = %s\n"
SIGNATURE = "gpgsig -----BEGIN PGP SIGNATURE-----\\n \\n x\\n -----END PGP SIGNATURE-----\\n"
GPG = f"""
git config log.showSignature true; git config gpg.program $RUN
commit=$(git cat-file commit HEAD | sed '0,/^$/s/^$/{SIGNATURE}/' | git hash-object -t commit -w --stdin)
git update-ref refs/heads/main $commit
"""
PROMISOR = """
blob=$(git rev-parse HEAD:kept.bin); rm -f .git/objects/$(echo $blob | sed 's:..:&/:')
git config remote.p.url $PWD; git config remote.p.promisor true; git config remote.p.uploadpack $RUN
git config core.repositoryformatversion 1; git config extensions.partialClone p
"""

RUNNERS = [
    ("fsmonitor", FSMONITOR, "git status", ""),
    ("fsmonitor-in-a-subdirectory", FSMONITOR, "git status", "sub"),
    ("external-diff", "git config diff.external $RUN", "git diff", ""),
    ("diff-command", FOR_FILES.format("diff", "command"), "git diff", ""),
    ("textconv", FOR_FILES.format("diff", "textconv"), "git log -p", ""),
    ("textconv-of-blame", FOR_FILES.format("diff", "textconv"), "git blame kept.bin", ""),
    ("filter-clean", FOR_FILES.format("filter", "clean"), "git diff", ""),
    ("filter-process", FOR_FILES.format("filter", "process"), "git diff", ""),
    ("hook", HOOK, "git status", ""),
    ("hooks-path", f"{HOOK}; mv .git/hooks tools; git config core.hooksPath tools", "git status", ""),
    ("include", "git config include.path ../more; git config -f more core.fsmonitor $RUN", "git status", ""),
    (
        "config-worktree",
        "git config extensions.worktreeConfig true; git config -f .git/config.worktree core.fsmonitor $RUN",
        *("git status", ""),
    ),
    (
        "commondir",
        "cp -r .git common; git config -f common/config core.fsmonitor $RUN; echo ../common >.git/commondir",
        *("git status", ""),
    ),
    ("git-file", f"mv .git elsewhere; echo gitdir: elsewhere >.git; {FSMONITOR}", "git status", ""),
    # Files that may be executed are all that git asks of `objects` and `refs`.
    (
        "unlike-a-repository",
        "rm -r .git; echo ref: refs/heads/main >HEAD; touch objects refs; chmod 755 objects refs"
        f"; printf '{NO_OBJECTS}' $RUN >config",
        *("git status", ""),
    ),
    # A directory with HEAD and commondir is a repository without objects of its own.
    (
        "head-by-commondir",
        f"{GPG} mv .git common; echo ref: refs/heads/main >HEAD; echo common >commondir",
        *("git log", ""),
    ),
    # git goes on upward from a `.git` whose HEAD is nothing, and finds the directory above.
    (
        "not-quite-a-repository",
        f"mkdir -p sub/.git/objects sub/.git/refs; echo nothing >sub/.git/HEAD; {FSMONITOR}",
        *("git status", "sub"),
    ),
    # `git status` starts git in a submodule, whose configuration is its own.
    ("submodule", "git clone -q . inner; git add inner; git -C inner config core.fsmonitor $RUN", *("git status", "")),
    ("promisor", PROMISOR, "git diff", ""),  # git fetches an object that is missing, by a program
    ("gpg", GPG, "git log", ""),
]


@pytest.mark.parametrize(("prepare", "command", "where"), [each[1:] for each in RUNNERS], ids=[r[0] for r in RUNNERS])
async def test_a_repository_that_names_a_program_is_asked_about_and_the_state_of_git_runs_none(
    desk: Desk, prepare: str, command: str, where: str
) -> None:
    assert bash(desk.engine(), command, shell_cwd=str(desk.cwd / where)).behavior is ALLOW
    sh(desk.cwd, prepare)
    (desk.root / "made").unlink(missing_ok=True)
    state = await uncaged_state(desk)
    assert not (desk.root / "made").exists()
    assert where or not state or "not asked" in state
    sh(desk.cwd, f"cd ./{where}; {command} || true")
    assert (desk.root / "made").exists(), "the repository is harmless: it proves nothing"
    for strict in (False, True):
        assert why_unsafe(str(desk.cwd / where), [str(desk.cwd)], str(desk.home), strict)
    for line in (command, f"timeout 9 {command}", f"find . -type f -exec {command} \\;", "git log", "git branch"):
        decision = bash(desk.engine(), line, shell_cwd=str(desk.cwd / where))
        assert decision.behavior is ASK, line


async def test_the_state_is_told_where_nothing_names_a_program(desk: Desk) -> None:
    state = await uncaged_state(desk)
    assert "\nBranch: main\n" in state and "kept.bin" in state and " one" in state


async def uncaged_state(desk: Desk) -> str:
    """The state of the repository on a host without a cage: only the judgement keeps programs from running."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(desk.home), "GIT_CONFIG_NOSYSTEM": "1"}
    return await git_text(str(desk.cwd), Host(environ=environ), Cages(lambda: NO_CAGES, environ, str(desk.home)))


@pytest.mark.parametrize(
    ("change", "where_both_are_open"),
    [
        ("rm -r .git; echo gitdir: ../private/.git >.git", ALLOW),
        ("rm -r .git; ln -s $ROOT/private/.git .git", ALLOW),
        ("echo ../../private/.git >.git/commondir", ALLOW),
        ("mkdir -p .git/objects/info; echo $ROOT/private/.git/objects >.git/objects/info/alternates", ALLOW),
        ("git config core.worktree $ROOT", ALLOW),
        ("ln -sf $ROOT/private/.git/packed-refs .git", ASK),
        ("rm -r .git/objects; ln -s $ROOT/private/.git/objects .git", ASK),
    ],
    ids=["file", "link", "commondir", "alternates", "worktree", "packed-refs", "objects"],
)
def test_a_repository_elsewhere_is_asked_about(desk: Desk, change: str, where_both_are_open: Behavior) -> None:
    """A `.git` that somebody wrote would show another project of this person."""
    assert bash(desk.engine(), "git log").behavior is ALLOW
    sh(desk.cwd, f"mkdir ../private; cp -r .git ../private; {change}")
    assert bash(desk.engine(), "git log").behavior is ASK
    assert bash(desk.engine(add_dirs=[str(desk.root)]), "git log").behavior is where_both_are_open


def test_a_work_tree_that_its_repository_knows_is_let_through(desk: Desk) -> None:
    sh(desk.cwd, "git worktree add -q $ROOT/tree")
    tree = desk.root / "tree"
    outside = Desk(desk.root / "another")
    assert why_unsafe(str(tree), [str(tree)], str(desk.home)) == ""
    shutil.copy(tree / ".git", outside.cwd / ".git")
    assert "leads to" in why_unsafe(str(outside.cwd), [str(outside.cwd)], str(desk.home))
    sh(desk.cwd, "git config core.fsmonitor ./run")
    assert "core.fsmonitor" in why_unsafe(str(tree), [str(tree)], str(desk.home))


def test_usual_configurations_are_let_through(desk: Desk) -> None:
    usual = {"branch.main.remote": "origin", "branch.main.vscode-merge-base": "origin/main", "pull.rebase": "true"}
    usual |= {"core.sshCommand": "ssh -i ~/.ssh/key", "core.hooksPath": ".husky/_", "core.fsmonitor": "false"}
    usual |= {"blame.ignoreRevsFile": ".git-blame-ignore-revs", "alias.st": "!touch x", "diff.algorithm": "histogram"}
    usual |= {"lfs.https://example.com/a.access": "basic", "credential.helper": "store"}
    usual |= {"submodule.lib.url": "../lib.git"}
    sh(desk.cwd, "\n".join(f"git config {key} '{value}'" for key, value in usual.items()))
    sh(desk.cwd, "git remote add origin git@example.com:a/b.git; git pack-refs --all")
    sh(desk.cwd, "mkdir -p .husky/_; touch .husky/_/pre-commit")
    assert bash(desk.engine(), "git status").behavior is ALLOW
    (desk.home / ".gitconfig").write_text("[user]\n\tname = a\n[core]\n\teditor = vi\n")
    assert why_unsafe(str(desk.cwd), [str(desk.cwd)], str(desk.home), strict=True) == ""
    (desk.home / ".gitconfig").write_text('[filter "lfs"]\n\tprocess = git-lfs filter-process\n')
    assert bash(desk.engine(), "git status").behavior is ALLOW, "it is the person's own"
    assert "filter.process" in why_unsafe(str(desk.cwd), [str(desk.cwd)], str(desk.home), strict=True)
    sh(desk.cwd, "git config alias.status '!touch x'")
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


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *(
            (".git", b"gitdir: a\0b\n"),
            (".git/commondir", b"a\0b\n"),
            (".git/config", b"[core]\nworktree = a\0\xffb\n"),
        ),
        (".git/index", b"DIRC\0\0\0\2\xff\xff\xff\xff\0\0\xe0\0"),
    ],
)
async def test_no_byte_in_a_repository_ends_the_session(desk: Desk, name: str, content: bytes) -> None:
    if name == ".git":
        shutil.rmtree(desk.cwd / ".git")
    (desk.cwd / name).write_bytes(content)
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
    sh(repository, "git worktree add -q ../tree")
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
    sh(outer, f"git init -q; git -c protocol.file.allow=always submodule add -q {repository} inner")
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
