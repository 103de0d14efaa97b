"""What commands in the cage for the workspace leave behind: nothing that acts later, at any depth, whatever the line
was. No parser stands in front."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.remote.sandbox.workspace_kit import Workspace
from tests.remote.tools_kit import until

from ccb.remote.sandbox.aside import set_aside
from ccb.remote.sandbox.census import Census
from ccb.remote.sandbox.protected import is_repository, why_protected
from ccb.remote.sandbox.rules import workspace_rules
from ccb.remote.sandbox.server import CageServer, CageUnavailable

_EVIL = "core.fsmonitor 'touch $HOME/pwned; false'"
_MADE = f"git init -q {{0}} && git -C {{0}} config {_EVIL}"
_HOSTILE = (
    _MADE.format("new"),
    f"mkdir -p aa/b/c/d/e/f && {_MADE.format('aa/b/c/d/e/f/deep')}",
    f"git init -q --bare bare && git -C bare config {_EVIL}",
    f"git init -q --bare b2 && git -C b2 config {_EVIL} && mv b2 b3 && mkdir in && mv b3 in/b4",
    f"{_MADE.format('t')} && mv t/.git t/x && mkdir u && mv t/x u/.git",
    f"{_MADE.format('w')} && cp -r w w2 && mv w w3 && mv w2 w && mv w3 w2",
    "mkdir v && git init -q v/inner && echo 'gitdir: inner/.git' >v/.git",
    "mkdir l && git init -q l/real && ln -s real/.git l/.git",
    "git clone -q --no-local . clone || cp -r .git clone",
    "cp -r .git copied && mkdir work && mv copied work/.git",
    "mkdir -p d && echo 'touch $HOME/pwned' >d/.envrc",
    "mkdir -p d/e && echo x >d/e/x && mv d/e/x d/e/.envrc",
    "mkdir -p n && echo x >n/y && ln n/y n/.npmrc && rm n/y",
    "mkdir -p s && echo x >s/y && ln -s y s/AGENTS.md",
    "mkdir -p case && echo x >case/Claude.MD",
    "mkdir -p p/.claude && echo '{}' >p/.claude/settings.json",
    "mkdir -p q/.vscode && echo '{}' >q/.vscode/tasks.json",
    "mkdir -p closed && echo x >closed/.envrc && chmod 300 closed",
    "mkdir -p full && cd full && touch .envrc.stopped-by-ccb .envrc.stopped-by-ccb-2 && echo x >.envrc",
    "mkdir -p fixed/in && echo x >fixed/in/.envrc && chmod 555 fixed/in && chmod 500 fixed",
    "mkdir -p shut/in && echo x >shut/in/.envrc && chmod 600 shut",
    "mkdir -p old && touch -d @1 old && echo x >old/.envrc && touch -d @1 old/.envrc old",
    "mkdir -p sub/deep && echo x >sub/deep/.envrc",
    "mkdir r && mv sub r/sub; mkdir -p far && mv far/../aa far/aa; echo x >far/aa/b/.envrc",
    "mkdir 'odd\nname' && echo x >'odd\nname/.envrc'",
    "mkdir -p hooks && echo 'touch $HOME/pwned' >hooks/pre-commit && chmod 755 hooks/pre-commit",
    f"git config -f included {_EVIL}",
    "echo evil >tools/clean.sh; rm -f tools/clean.sh; mv tools tools2",
    "echo evil >real-hooks/pre-merge; mv real-hooks r2; echo evil >named/pre-merge",
    "echo evil >tools/linked-hook; mv tools/linked-hook tools/x",
    "for i in 1 2 3; do mkdir -p 'many'$i && echo x >many$i/mise.toml; done",
    "mkdir k && mkfifo k/.envrc",
    'python3 -c \'import os; f = os.open(".", os.O_TMPFILE | os.O_WRONLY); os.write(f, b"x"); os.mkdir("tmpfile");'
    ' os.link("/proc/self/fd/%d" % f, "tmpfile/.envrc", follow_symlinks=True)\'',
    f"mkdir x1 && cd x1 && git init -q --bare . && git config {_EVIL} && mkdir commondir_ && rm -rf refs && :",
)


@pytest.fixture
async def workspace(tmp_path: Path) -> AsyncIterator[Workspace]:
    made = Workspace(tmp_path)
    if not made.host.cages().workspace:
        pytest.skip(made.host.cages().why)
    made.git("config", "core.hooksPath", "hooks")
    made.git("config", "include.path", "../included")
    made.git("config", "filter.x.clean", "sh tools/clean.sh %f")
    made.git("config", "alias.x", "!named/pre-merge")
    (made.root / "real-hooks").mkdir()
    (made.root / "real-hooks" / "pre-merge").write_text("true\n")
    (made.root / "named").symlink_to("real-hooks")
    (made.root / "tools").mkdir()
    (made.root / "tools" / "clean.sh").write_text("cat\n")
    (made.root / "tools" / "linked-hook").write_text("true\n")
    (made.root / ".git" / "hooks" / "pre-push").symlink_to("../../tools/linked-hook")
    yield made
    made.host.close()


async def test_nothing_that_acts_later_is_left_by_hostile_lines(workspace: Workspace) -> None:
    before = workspace.everything()
    ran = await workspace.run("\n".join(f"(\n{line}\n) 2>&1" for line in _HOSTILE))
    assert "syntax" not in ran
    assert len(list(workspace.root.rglob("*.stopped-by-ccb"))) > len(_HOSTILE) - 5
    assert _acting(workspace.root, before) == []
    for directory, _, _ in os.walk(workspace.root):
        subprocess.run(["git", "status"], cwd=directory, capture_output=True, check=False, env=workspace.environ)
    assert not (workspace.home / "pwned").exists()
    for path in ("tools/clean.sh", "tools/linked-hook", "real-hooks/pre-merge", ".git/config"):
        assert workspace.everything()[str(workspace.root / path)] == before[str(workspace.root / path)]


def _acting(root: Path, before: dict[str, object]) -> list[str]:
    """Return what is new or changed and a Write would ask about, or what git would take for a repository."""
    found = []
    for directory, names, files in os.walk(root):
        paths = (os.path.join(directory, name) for name in (*names, *files))
        new = [path for path in paths if path not in before and not path.startswith(f"{root}/.git/")]
        found += [path for path in new if why_protected(path)]
        if is_repository([*names, *files]) and os.path.basename(directory) != ".git":
            found.append(directory)
    return found


async def test_what_is_set_aside_is_told_and_can_be_moved_back(workspace: Workspace) -> None:
    process = await workspace.start("mkdir -p aa/b && echo mine >aa/b/.envrc")
    await process.wait()
    assert process.notes == ["aa/b/.envrc is now .envrc.stopped-by-ccb"]
    assert (workspace.root / "aa" / "b" / ".envrc.stopped-by-ccb").read_text() == "mine\n"
    await workspace.run_uncaged("mv aa/b/.envrc.stopped-by-ccb aa/b/.envrc")
    process = await workspace.start("echo changed >aa/b/.envrc; rm -r aa; mv aa c")
    await process.wait()
    assert process.notes == []
    assert (workspace.root / "aa" / "b" / ".envrc").read_text() == "mine\n"


async def test_what_people_make_between_commands_stays(workspace: Workspace) -> None:
    await workspace.run("mkdir -p aa/b/c/d/e")
    workspace.git("init", "-q", "aa/b/c/d/e")
    process = await workspace.start("cd aa/b/c/d/e; echo x >.git/config; echo x >.git/hooks/x; mv .git g")
    await process.wait()
    assert process.notes == []
    assert (workspace.root / "aa/b/c/d/e/.git/HEAD").exists()
    assert "x" not in (workspace.root / "aa/b/c/d/e/.git/config").read_text().split()


async def test_what_people_make_before_an_allowed_command_stays(workspace: Workspace) -> None:
    await workspace.run("true")
    workspace.git("init", "-q", "mine")
    await workspace.run_uncaged("true")
    assert (workspace.root / "mine" / ".git" / "HEAD").exists()


_OF_TOOLS = (".newtool/config", ".newtoolrc", "sub/.newtool", ".tool-versions", ".direnv/x.rc", "x/.lefthook.jsonc")
_HARMLESS = (
    ".gitignore",
    ".venv/bin/python",
    ".mypy_cache/x",
    ".eslintrc.json",
    ".coverage.host.1",
    ".env.local",
    "d/.x",
)


async def test_files_of_unknown_tools_are_set_aside_where_tools_look(workspace: Workspace) -> None:
    """In the session's directory, and in each repository of the project."""
    (workspace.root / ".there").mkdir()
    script = f"for f in {' '.join((*_OF_TOOLS, *_HARMLESS))}; do mkdir -p $(dirname $f); echo x >$f; done"
    process = await workspace.start(f"{script}; echo x >.there/x")
    await process.wait()
    assert [name for name in _HARMLESS if not (workspace.root / name).exists()] == []
    assert (workspace.root / ".there" / "x").exists()
    assert [name for name in _OF_TOOLS if (workspace.root / name).exists()] == []
    assert len(process.notes) == len(_OF_TOOLS)
    await workspace.run("touch .stamp")
    assert (workspace.root / ".stamp").exists(), "it is empty"
    filled = await workspace.start("echo x >.stamp")
    await filled.wait()
    assert filled.notes == [".stamp is now .stamp.stopped-by-ccb"]
    await workspace.run_uncaged("mv .newtool.stopped-by-ccb .newtool")
    await workspace.run("echo y >.newtool/config; git init -q inner; echo x >inner/.newtool")
    assert (workspace.root / ".newtool" / "config").read_text() == "y\n"
    assert (workspace.root / "inner" / ".newtool").exists(), "no repository after this command"


async def test_what_a_process_makes_after_its_command_is_found_with_the_next(workspace: Workspace) -> None:
    """Also one that cannot be looked at like others, and left its session."""
    hide = "import ctypes; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)"
    late = f"{hide}; import os, time; print('up', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.01)\n"
    late += "os.mkdir('late'); open('late/.envrc', 'w').close(); os.mkdir('done'); time.sleep(100)"
    (workspace.root / "late.py").write_text(late)
    first = await workspace.start("setsid python3 late.py & sleep 100")
    await until(lambda: workspace.output == b"up\n")
    os.kill(first.pid, 9)
    await first.wait()
    (workspace.root / "go").touch()
    await until((workspace.root / "done").exists)
    second = await workspace.start("true")
    await second.wait()
    assert second.notes == ["late/.envrc is now .envrc.stopped-by-ccb"]
    await first.stop()


_LATE = "(env -i setsid sh -c 'while [ ! -e go ]; do sleep 0.01; done; mkdir late; : >late/.envrc; sleep 300' &)"
"""A process that no session, group or environment tells any more, and that acts when it is told to."""


async def test_nothing_new_is_accepted_while_something_of_a_caged_command_lives(workspace: Workspace) -> None:
    """Not with an allowed command either."""
    first = await workspace.start(_LATE)
    await first.wait()
    assert first.has_leftovers()
    allowed = await workspace.host.start(
        ["sh", "-c", "touch go; while [ ! -e late/.envrc ]; do sleep 0.01; done; mkdir own; : >own/.envrc"],
        str(workspace.root),
        workspace.output.extend,
    )
    assert await allowed.wait() == 0
    assert [os.listdir(workspace.root / name) for name in ("late", "own")] == [[".envrc.stopped-by-ccb"]] * 2
    assert allowed.notes[0] == "a command in the sandbox still runs, so nothing such is kept: stop it first"
    await first.stop()
    await workspace.run_uncaged("mv own/.envrc.stopped-by-ccb own/.envrc")
    assert (workspace.root / "own" / ".envrc").exists()


async def test_what_no_supervisor_holds_any_more_is_told_by_its_mounts(workspace: Workspace) -> None:
    """As when the system is out of memory and ends what watches commands."""
    rules = workspace_rules([str(workspace.root)], os.environ, str(workspace.home))
    script = _LATE.replace("sh -c '", "sh -c 'echo $$; ")
    with contextlib.closing(CageServer()) as server:
        first = server.start(["sh", "-c", script], str(workspace.root), os.environ, rules)
        assert first.wait() == 0
        late = int(first.stdout.readline())
        assert server._zygote is not None
        for watching in (server._zygote.pid, int(Path(f"/proc/{late}/stat").read_text().rpartition(")")[2].split()[1])):
            os.kill(watching, 9)
        while not first.gone:
            first.hear()
        assert first.finish() == []
        (workspace.root / "go").touch()
        await until((workspace.root / "late" / ".envrc").exists)
        assert server.accept()[1:] == ["late/.envrc is now .envrc.stopped-by-ccb"]
        os.killpg(late, 9)
        await until(lambda: not server._lives())
        (workspace.root / "late" / ".envrc").touch()
        assert server.accept() == []
        first.close()


async def test_what_a_lost_process_makes_is_set_aside_when_it_ends(workspace: Workspace) -> None:
    first = await workspace.start(_LATE.replace("; sleep 300", ""))
    await first.wait()
    (workspace.root / "go").touch()
    await first.gone()
    assert first.notes == ["late/.envrc is now .envrc.stopped-by-ccb"]


async def test_the_next_command_accepts_nothing_before_the_end_of_the_last_was_looked_at(workspace: Workspace) -> None:
    rules = workspace_rules([str(workspace.root)], os.environ, str(workspace.home))
    with contextlib.closing(CageServer()) as server:
        where = str(workspace.root), os.environ, rules
        first = server.start(["sh", "-c", "mkdir d; echo x >d/.envrc"], *where)
        assert first.wait() == 0
        second = server.start(["true"], *where)
        assert second.wait() == 0
        assert first.finish() == ["d/.envrc is now .envrc.stopped-by-ccb"]
        assert second.finish() == []
        third = server.start(["sh", "-c", "mkdir e; echo x >e/.envrc"], *where)
        assert third.wait() == 0
        for child in (first, second, third):
            while not child.gone:
                child.hear()
        assert server.accept()[1:] == ["e/.envrc is now .envrc.stopped-by-ccb"], "an allowed command ends before"
        assert third.finish() == []
        for child in (first, second, third):
            child.close()


async def test_a_file_that_was_allowed_to_be_written_stays(workspace: Workspace) -> None:
    running = await workspace.start("echo up; sleep 100")
    await until(lambda: workspace.output == b"up\n")
    (workspace.root / "sub" / "more").mkdir()
    await workspace.host.replace(str(workspace.root / "sub" / "more" / "AGENTS.md"), b"asked", "")
    await running.stop()
    assert running.notes == []
    assert (workspace.root / "sub" / "more" / "AGENTS.md").read_text() == "asked"


def test_a_count_is_taken_again_only_where_something_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        (tmp_path / f"d{number}" / "inner").mkdir(parents=True)
    monkeypatch.setattr("ccb.remote.sandbox.census._TICK_NS", 0)
    census = Census(str(tmp_path))
    assert census.take() == set()
    scandir, listed = os.scandir, []

    def noted(path: str) -> object:
        listed.append(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", noted)
    (tmp_path / "d3" / "inner" / ".envrc").touch()
    os.utime(tmp_path / "d3" / "inner", (1, 1))
    assert census.take() == {f"{tmp_path}/d3/inner/.envrc"}
    assert listed == [f"{tmp_path}/d3/inner"]


def test_a_link_leads_nothing_outside_to_be_set_aside(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / ".envrc").touch()
    (tmp_path / "project" / "link").symlink_to("../outside")
    with pytest.raises(NotADirectoryError):
        set_aside(str(tmp_path / "project"), str(tmp_path / "project" / "link" / ".envrc"))
    assert (tmp_path / "outside" / ".envrc").exists()


async def test_a_directory_that_is_itself_a_repository_has_no_cage(workspace: Workspace) -> None:
    workspace.git("init", "-q", "--bare", "bare")
    rules = workspace_rules([str(workspace.root / "bare")], os.environ, str(workspace.home))
    with pytest.raises(CageUnavailable, match="is itself a repository"):
        await workspace.host.start(["true"], str(workspace.root), workspace.output.extend, None, rules)
