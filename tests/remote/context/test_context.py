"""What is gathered on the host, and that nothing on it can stop the session from starting."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.remote.tools_kit import write
from tests.support.machine.programs import shell_script

from ccb.remote.context import git_state as git_module
from ccb.remote.context.git_state import current_branch, git_text
from ccb.remote.context.instructions import SCOPES, NestedInstructions, find_instructions
from ccb.remote.context.reminders import Occasion
from ccb.remote.context.system_prompt import gather
from ccb.remote.permissions.modes import Cages
from ccb.remote.system.host import Host
from ccb.tunnel.wire.session_options import SessionOptions


def git(directory: Path, *args: str) -> None:
    named = ("user.name=Ann", "user.email=a@b", "init.defaultBranch=main", "commit.gpgsign=false")
    config = [part for each in named for part in ("-c", each)]
    subprocess.run(["git", *config, *args], cwd=directory, check=True, capture_output=True)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "home").mkdir()
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home"), "SHELL": "/bin/zsh"}


def texts_in(cwd: Path, home: Path) -> list[str]:
    """Return the instructions of a session."""
    return [file.text for file in find_instructions(str(cwd), str(home))]


class Machine:
    """The host of a session with these variables."""

    def __init__(self, environ: dict[str, str]) -> None:
        self.host = Host(environ=environ)
        self.cages = Cages(self.host.cages, environ, environ["HOME"])

    async def git_text(self, directory: Path) -> str:
        return await git_text(str(directory), self.host, self.cages)


@pytest.fixture
def machine(environ: dict[str, str]) -> Iterator[Machine]:
    machine = Machine(environ)
    yield machine
    machine.host.close()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    path = tmp_path / "repo"
    path.mkdir()
    git(path, "init")
    git(path, "config", "user.name", "Ann Other")
    (path / "a").write_text("1")
    git(path, "add", "a")
    git(path, "commit", "-m", "first step")
    return path


async def test_the_host_describes_itself(tmp_path: Path, machine: Machine) -> None:
    found = await gather(SessionOptions(host="devbox", add_dirs=["/x"]), str(tmp_path), machine.host, machine.cages)
    assert time.strptime(found.date, "%Y-%m-%d")
    assert re.fullmatch(
        rf"""# Environment
Working directory: {tmp_path}
Additional working directory: /x
Host: devbox \(\S+\), account: \S+
Platform: linux; .*Linux \S+ \(\w+\)
Login shell: zsh; Python: 3[0-9.]+\S*; ripgrep: (yes|no)
Date at the start of the session: {found.date}
Git repository: no""",
        found.environment(),
    )
    assert found.environment("/other").startswith("# Environment\nWorking directory: /other\n")


async def test_the_state_of_the_repository(repository: Path, machine: Machine, tmp_path: Path) -> None:
    git(repository, "checkout", "-b", "topic/x")
    (repository / "a").write_text("2")
    (repository / "new").write_text("")
    text = await machine.git_text(repository)
    assert re.fullmatch(
        r"""Git at the start of the session; it is not kept up to date:
Branch: topic/x
Main branch: main
User: Ann Other
Status:
 M a
\?\? new
Recent commits:
[0-9a-f]+ first step""",
        text,
    )
    git(repository, "update-ref", "refs/remotes/origin/production", "HEAD")
    git(repository, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/production")
    assert "\nMain branch: production\n" in await machine.git_text(repository)
    git(tmp_path, "init")
    lines = (await machine.git_text(tmp_path)).split("\n")
    assert lines[1] == "Branch: main" and "Recent commits:" not in lines, "there is no commit"


async def test_what_the_own_configuration_of_the_person_includes_is_read(
    repository: Path, machine: Machine, environ: dict[str, str]
) -> None:
    home = Path(environ["HOME"])
    write(home / ".gitconfig", "[include]\n\tpath = dots/one\n[core]\n\texcludesFile = ~/dots/ignore\n")
    write(home / "dots/one", "[include]\n\tpath = two\n")
    write(home / "dots/two", "[status]\n\tshowUntrackedFiles = no\n")
    write(home / "dots/ignore", "ignored\n")
    for name in ("ignored", "new"):
        (repository / name).write_text("")
    text = await machine.git_text(repository)
    assert "\nStatus:\n?? new\n" in text, "without them git would end with an error"


async def test_a_long_status_is_cut_at_a_line_and_says_so(repository: Path, machine: Machine) -> None:
    for number in range(400):
        (repository / f"file-{number:04}").write_text("")
    status = (await machine.git_text(repository)).partition("\nStatus:\n")[2].partition("\nRecent commits:\n")[0]
    lines = status.split("\n")
    assert len(status) < 2100
    assert all(line.startswith("?? file-") for line in lines[:-1])
    assert lines[-1] == f"({400 - len(lines) + 1} more lines were cut; run `git status` to see them all)"


async def test_nothing_of_the_repository_is_run_and_nothing_is_written(
    repository: Path, machine: Machine, tmp_path: Path
) -> None:
    trap = shell_script(tmp_path / "trap", f"touch {tmp_path}/ran")
    git(repository, "config", "core.fsmonitor", str(trap))
    git(repository, "config", "core.pager", str(trap))
    index = (repository / ".git/index").stat().st_mtime_ns
    os.utime(repository / "a")
    await machine.git_text(repository)
    assert not (tmp_path / "ran").exists()
    assert (repository / ".git/index").stat().st_mtime_ns == index


async def test_without_git(tmp_path: Path, repository: Path, environ: dict[str, str]) -> None:
    machine = Machine({**environ, "PATH": str(tmp_path / "home")})
    found = await gather(SessionOptions(), str(repository), machine.host, machine.cages)
    machine.host.close()
    assert found.environment().endswith("\nGit repository: yes")


async def test_no_program_is_started_outside_of_a_repository(
    tmp_path: Path, repository: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[object] = []
    start = machine.host.start

    def watched(*args: Any, **more: Any) -> Any:
        started.append(args)
        return start(*args, **more)

    monkeypatch.setattr(machine.host, "start", watched)
    assert await machine.git_text(tmp_path) == ""
    assert not started
    (repository / "below").mkdir()
    await machine.git_text(repository / "below")
    assert len(started) == 5


async def test_a_git_that_hangs_is_given_up(
    tmp_path: Path, repository: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git_module, "_SECONDS", 0.3)
    shell_script(tmp_path / "bin/git", "sleep 60")
    machine = Machine({**environ, "PATH": f"{tmp_path}/bin:{environ['PATH']}"})
    started = time.monotonic()
    text = await machine.git_text(repository)
    machine.host.close()
    assert time.monotonic() - started < 20
    assert "did not answer" in text


def test_instruction_files_go_from_the_user_to_the_nearest_directory(tmp_path: Path) -> None:
    home, cwd = tmp_path / "home", tmp_path / "a/b"
    files = [home / ".claude/CLAUDE.md", home / ".config/ccb/AGENTS.md", tmp_path / "a/AGENTS.md"]
    files += [cwd / "CLAUDE.md", cwd / "AGENTS.md"]
    for path in files:
        write(path, f"from {path}")
    found = find_instructions(str(cwd), str(home))
    assert [file.text for file in found] == [f"from {path}" for path in files]
    assert [file.scope for file in found] == ["user", "user", "project", "project", "project"]
    for path in (cwd / "CLAUDE.md", cwd / "AGENTS.md"):
        path.unlink()
    write(cwd / "CLAUDE.md", "")
    (cwd / "AGENTS.md").symlink_to(tmp_path / "a/AGENTS.md")
    write(tmp_path / "a/CLAUDE.md", files[2].read_text() + "\n")
    assert len(find_instructions(str(cwd), str(home))) == 3, "the same content is shown once"


def test_each_file_and_all_together_are_bounded(tmp_path: Path) -> None:
    directory = tmp_path
    for number in range(5):
        directory = directory / str(number)
        write(directory / "CLAUDE.md", f"line {number}\n" * 10_000)
    found = find_instructions(str(directory), str(tmp_path / "home"))
    assert len(found) == 4
    assert "(cut here: the file is longer than 40960 bytes" in found[0].text
    assert sum(len(file.text) for file in found) < 103_000
    assert "left out" in found[-1].text


def test_what_is_not_a_plain_text_file_is_passed_over(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "CLAUDE.md")
    (tmp_path / "a/CLAUDE.md").mkdir(parents=True)
    (tmp_path / "a/AGENTS.md").symlink_to("/dev/zero")
    write(tmp_path / "AGENTS.md", "bin\0ary")
    (tmp_path / "a/b").mkdir()
    (tmp_path / "a/b/CLAUDE.md").write_bytes(b"\xef\xbb\xbfok \xff\r\n")
    os.mkfifo(tmp_path / "a/b/.git")  # opening it must not wait for a writer
    assert current_branch(str(tmp_path / "a/b")) == ""
    assert texts_in(tmp_path / "a/b", tmp_path / "home") == ["ok \n"]


async def test_a_bare_repository_among_the_files_of_a_clone_configures_nothing(
    tmp_path: Path, machine: Machine
) -> None:
    trap = shell_script(tmp_path / "trap", f"touch {tmp_path}/ran\ncat")
    evil = tmp_path / "clone" / "evil"
    evil.mkdir(parents=True)
    git(evil.parent, "init")
    git(evil, "init", "--bare", ".")
    write(evil / "tree" / "a", "1")
    git(evil, "config", "core.bare", "false")
    git(evil, "config", "core.worktree", "tree")
    git(evil, "add", "a")
    git(evil, "config", "filter.x.clean", str(trap))
    (evil / "tree" / ".gitattributes").write_text("* filter=x\n")
    (evil / "tree" / "a").write_text("2")
    os.utime(evil / "tree" / "a", (1, 1))
    git(evil, "status")
    assert (tmp_path / "ran").exists(), "the trap does not work: it proves nothing"
    (tmp_path / "ran").unlink()
    os.utime(evil / "tree" / "a", (2, 2))
    await machine.git_text(evil)
    assert not (tmp_path / "ran").exists()


def test_links_to_what_is_no_text_of_that_kind_or_out_of_the_project_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "shared.md").write_text("shared")
    project = tmp_path / "project"
    write(project / "key", "secret")
    (project / "inner.md").write_text("inner")
    os.symlink("key", project / "CLAUDE.md")
    os.symlink("inner.md", project / "AGENTS.md")
    os.symlink("../shared.md", project / "CLAUDE.local.md")
    assert texts_in(project, tmp_path / "home") == ["inner"]


@pytest.mark.skipif(os.geteuid() != 0, reason="a file of somebody else can only be made by root")
def test_nobody_instructs_from_a_directory_that_is_open_to_all(tmp_path: Path) -> None:
    project = tmp_path / "open" / "project"
    project.mkdir(parents=True)
    for path in (tmp_path / "open" / "CLAUDE.md", project / "CLAUDE.md"):
        path.write_text(f"from {path.parent.name}")
        os.chown(path, 12345, 12345)
    os.chmod(tmp_path / "open", 0o1777)
    assert texts_in(project, tmp_path / "home") == ["from project"]
    os.chown(tmp_path / "open" / "CLAUDE.md", 0, 0)
    assert texts_in(project, tmp_path / "home") == ["from project"]
    os.chmod(tmp_path / "open", 0o755)
    assert texts_in(project, tmp_path / "home") == ["from open", "from project"]


def test_a_file_imports_others_to_a_limited_depth(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    write(home / ".claude/CLAUDE.md", "mine: @~/notes.md and @/nowhere.md")
    write(home / "notes.md", "notes")
    write(project / "CLAUDE.md", "See @docs/a.md, and `@docs/code.md`.\n```\n@docs/code.md\n```\nmail@docs/code.md")
    write(project / "docs/code.md", "not imported")
    write(project / "docs/a.md", "a @b.md @a.md")
    for number, name in enumerate("bcdefgh"):
        write(project / f"docs/{name}.md", f"{name} @{'bcdefghi'[number + 1]}.md")
    found = find_instructions(str(project), str(home))
    names = [os.path.relpath(file.path, tmp_path) for file in found]
    assert names == [
        "home/.claude/CLAUDE.md", "home/notes.md", "project/CLAUDE.md",
        *(f"project/docs/{name}.md" for name in "abcde"),
    ]  # fmt: skip
    assert found[1].scope == "user" and found[3].importer == str(project / "CLAUDE.md")


def test_a_clone_imports_nothing_from_outside(tmp_path: Path) -> None:
    project = tmp_path / "home/project"
    (project / ".git").mkdir(parents=True)
    write(tmp_path / "home/diary.md", "secret")
    (project / "link.md").symlink_to(tmp_path / "home/diary.md")
    write(project / "CLAUDE.md", "@~/diary.md @../diary.md @link.md @/etc/hosts @.env")
    write(project / ".env", "TOKEN=1")
    assert texts_in(project, tmp_path / "home") == [(project / "CLAUDE.md").read_text()]


def test_the_own_file_in_a_project_and_the_chosen_sources(tmp_path: Path) -> None:
    write(tmp_path / "home/.claude/CLAUDE.md", "user")
    write(tmp_path / "p/CLAUDE.md", "project")
    write(tmp_path / "p/CLAUDE.local.md", "local")
    where = str(tmp_path / "p"), str(tmp_path / "home")
    assert [file.text for file in find_instructions(*where)] == ["user", "project", "local"]
    assert [file.text for file in find_instructions(*where, ["user"])] == ["user"]
    assert find_instructions(*where, []) == []


def test_files_below_are_found_when_the_model_works_there_and_said_once(tmp_path: Path) -> None:
    write(tmp_path / "CLAUDE.md", "top")
    write(tmp_path / "web/CLAUDE.md", "web @style.md")
    write(tmp_path / "web/style.md", "style")
    write(tmp_path / "web/src/AGENTS.md", "src")
    nested = NestedInstructions(str(tmp_path), "/nowhere", SCOPES)
    path = str(tmp_path / "web/src/a.py")
    assert len(nested.touched(path)) == 3
    said = list(nested.due(Occasion.TOOL_RESULTS))
    assert [text.splitlines()[-1] for text in said] == ["web @style.md", "style", "src"]
    assert not nested.touched(path) and not list(nested.due(Occasion.PROMPT))
    nested.touched(str(tmp_path / "web/b.py"))
    nested.touched("/etc/hosts")
    nested.touched(str(tmp_path / "c.py"))
    assert not list(nested.due(Occasion.TOOL_RESULTS))
    assert len(list(nested.due(Occasion.COMPACTED))) == 3


def test_the_branch_is_read_without_git(tmp_path: Path) -> None:
    assert current_branch(str(tmp_path)) == ""
    shop = tmp_path / "shop"
    (shop / "src").mkdir(parents=True)
    git(shop, "init", "-q")
    assert current_branch(str(shop / "src")) == "main"
    (shop / "cart.py").write_text("total = 0\n")
    git(shop, "add", ".")
    git(shop, "commit", "-qm", "first")
    git(shop, "checkout", "-qb", "fix/total")
    assert current_branch(str(shop)) == "fix/total"
    git(shop, "worktree", "add", "-q", "-b", "aside", str(tmp_path / "aside"))
    assert current_branch(str(tmp_path / "aside")) == "aside"
    git(shop, "checkout", "-q", "--detach")
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=shop, check=True, capture_output=True, text=True).stdout
    assert current_branch(str(shop)) == commit[:9]
