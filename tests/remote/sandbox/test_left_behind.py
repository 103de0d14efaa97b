"""What commands in the cage for the workspace leave behind: nothing that acts later, whatever the line was."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

import pytest
from tests.remote.sandbox.workspace_kit import Workspace
from tests.remote.tools_kit import plant, until

from ccb.remote.sandbox.cage_directories import TemporaryDirectories
from ccb.remote.sandbox.cage_rules import is_repository, why_protected
from ccb.remote.sandbox.cage_server import CageServer, CageUnavailable
from ccb.remote.sandbox.outliving import LaterActors, set_aside
from ccb.remote.system.host import Host
from ccb.remote.system.regular_files import ABSENT, digest_of

_EVIL = "core.fsmonitor 'touch $HOME/pwned; false'"
_LINES = Path(__file__).with_name("left_behind.txt").read_text(encoding="utf-8").split("\n\n")[1].splitlines()
_HOSTILE = [line.replace("␊", "\n").replace("{evil}", _EVIL) for line in _LINES]


_NAMED_BY_GIT = """
git config core.hooksPath hooks; git config include.path ../included; git config alias.x !named/pre-merge
git config filter.x.clean 'sh tools/clean.sh %f'
mkdir real-hooks tools; echo true | tee real-hooks/pre-merge >tools/linked-hook; echo cat >tools/clean.sh
ln -s real-hooks named; ln -s ../../tools/linked-hook .git/hooks/pre-push
"""


@pytest.fixture
def workspace(workspace: Workspace) -> Workspace:
    workspace.person(_NAMED_BY_GIT)
    return workspace


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
    notes = await workspace.notes("mkdir -p aa/b && echo mine >aa/b/.envrc")
    assert notes == ["aa/b/.envrc is now .envrc.stopped-by-ccb"]
    assert (workspace.root / "aa" / "b" / ".envrc.stopped-by-ccb").read_text() == "mine\n"
    await workspace.run_uncaged("mv aa/b/.envrc.stopped-by-ccb aa/b/.envrc")
    assert await workspace.notes("echo changed >aa/b/.envrc; rm -r aa; mv aa c") == []
    assert (workspace.root / "aa" / "b" / ".envrc").read_text() == "mine\n"


async def test_what_people_make_between_commands_stays(workspace: Workspace) -> None:
    await workspace.run("mkdir -p aa/b/c/d/e")
    workspace.person("git init -q aa/b/c/d/e")
    assert await workspace.notes("cd aa/b/c/d/e; echo x >.git/config; echo x >.git/hooks/x; mv .git g") == []
    assert (workspace.root / "aa/b/c/d/e/.git/HEAD").exists()
    assert "x" not in (workspace.root / "aa/b/c/d/e/.git/config").read_text().split()


async def test_what_people_make_before_an_allowed_command_stays(workspace: Workspace) -> None:
    await workspace.run("true")
    workspace.person("git init -q mine")
    await workspace.run_uncaged("true")
    assert (workspace.root / "mine" / ".git" / "HEAD").exists()


_OF_TOOLS = (".newtool/config", ".newtoolrc", "sub/.newtool", ".tool-versions", ".direnv/x.rc", "x/.lefthook.jsonc")
_FREE = ".gitignore .venv/bin/python .mypy_cache/x .eslintrc.json .coverage.host.1 .env.local d/.x"


async def test_files_of_unknown_tools_are_set_aside_where_tools_look(workspace: Workspace) -> None:
    """In the session's directory, and in each repository of the project."""
    (workspace.root / ".there").mkdir()
    script = f"for f in {' '.join((*_OF_TOOLS, *_FREE.split()))}; do mkdir -p $(dirname $f); echo x >$f; done"
    notes = await workspace.notes(f"{script}; echo x >.there/x")
    assert [name for name in _FREE.split() if not (workspace.root / name).exists()] == []
    assert (workspace.root / ".there" / "x").exists()
    assert [name for name in _OF_TOOLS if (workspace.root / name).exists()] == []
    assert len(notes) == len(_OF_TOOLS)
    await workspace.run("touch .stamp")
    assert (workspace.root / ".stamp").exists(), "it is empty"
    assert await workspace.notes("echo x >.stamp") == [".stamp is now .stamp.stopped-by-ccb"]
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
    first = await workspace.up("setsid python3 late.py & sleep 100")
    os.kill(first.pid, 9)
    await first.wait()
    (workspace.root / "go").touch()
    await until((workspace.root / "done").exists)
    assert await workspace.notes("true") == ["late/.envrc is now .envrc.stopped-by-ccb"]
    await first.stop()


_LATE = "(env -i setsid sh -c 'while [ ! -e go ]; do sleep 0.01; done; mkdir late; : >late/.envrc; sleep 300' &)"
"""A process that no session, group or environment tells any more, and that acts when it is told to."""


async def test_nothing_new_is_accepted_while_something_of_a_caged_command_lives(workspace: Workspace) -> None:
    """Not with an allowed command either."""
    first = await workspace.start(_LATE)
    await first.wait()
    assert first.has_leftovers()
    allowed = "touch go; while [ ! -e late/.envrc ]; do sleep 0.01; done; mkdir own; : >own/.envrc"
    notes = await workspace.run_uncaged(allowed)
    assert [os.listdir(workspace.root / name) for name in ("late", "own")] == [[".envrc.stopped-by-ccb"]] * 2
    assert notes[0] == "a command in the sandbox still runs, so nothing such is kept: stop it first"
    await first.stop()
    await workspace.run_uncaged("mv own/.envrc.stopped-by-ccb own/.envrc")
    assert (workspace.root / "own" / ".envrc").exists()


async def test_what_no_supervisor_holds_any_more_is_told_by_its_mounts(workspace: Workspace) -> None:
    """As when the system is out of memory and ends what watches commands."""
    script = _LATE.replace("sh -c '", "sh -c 'echo $$; ")
    with contextlib.closing(CageServer()) as server:
        first = server.start(["sh", "-c", script], str(workspace.root), os.environ, workspace.rules())
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


async def test_without_a_mark_no_command_starts(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a system where no temporary directory can be made. Nothing could tell whether something of it lives."""

    def refuse(directories: TemporaryDirectories) -> None:
        raise OSError("read-only")

    monkeypatch.setattr(TemporaryDirectories, "_make_top", refuse)
    workspace.host.close()
    workspace.host = Host()
    with pytest.raises(CageUnavailable, match="no temporary directory could be made"):
        await workspace.start("touch made")
    (workspace.root / "sub" / ".envrc").touch()
    await workspace.run_uncaged("mkdir own; touch own/.envrc")
    assert (workspace.root / "sub" / ".envrc").exists() and (workspace.root / "own" / ".envrc").exists()


async def test_what_a_lost_process_makes_is_set_aside_when_it_ends(workspace: Workspace) -> None:
    first = await workspace.start(_LATE.replace("; sleep 300", ""))
    await first.wait()
    (workspace.root / "go").touch()
    await first.gone()
    assert first.notes == ["late/.envrc is now .envrc.stopped-by-ccb"]


async def test_the_next_command_accepts_nothing_before_the_end_of_the_last_was_looked_at(workspace: Workspace) -> None:
    with contextlib.closing(CageServer()) as server:
        where = str(workspace.root), os.environ, workspace.rules()
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


async def test_what_acts_later_is_not_written_while_a_caged_command_lives(workspace: Workspace) -> None:
    """A file that takes the place of another is no mount, so the command could write it."""
    running = await workspace.up("echo up; sleep 100")
    (workspace.root / "sub" / "more").mkdir()
    asked = str(workspace.root / "sub" / "more" / "AGENTS.md")
    named = str(workspace.root / "hooks" / "pre-commit")
    for path in (asked, named, str(workspace.root / ".newtool")):
        with pytest.raises(OSError, match=r"could change it later: stop it first \(/tasks\)"):
            await workspace.host.replace(path, b"asked", ABSENT)
        assert not os.path.exists(path)
    with pytest.raises(OSError, match="stop it first"):
        await workspace.host.restore(str(workspace.root / "AGENTS.md"), None, digest_of(b"instructions\n"), 0)
    await workspace.host.replace(str(workspace.root / "sub" / "plain"), b"any", ABSENT)
    await running.stop()
    await workspace.host.replace(asked, b"asked", ABSENT)
    await workspace.run("echo evil >>sub/more/AGENTS.md")
    assert Path(asked).read_text() == "asked"


async def test_a_plain_file_that_is_written_makes_no_repository_known(workspace: Workspace) -> None:
    process = await workspace.up(
        "echo up; while [ ! -e new/notes ]; do sleep 0.01; done; git init -q --bare new; echo made; sleep 100"
    )
    await workspace.host.replace(str(workspace.root / "new" / "notes"), b"mine", ABSENT)
    await until(lambda: workspace.output.endswith(b"made\n"))
    await process.stop()
    assert process.notes == ["new/HEAD is now HEAD.stopped-by-ccb"]


_BY_RENAME = "echo new >temporary; mv temporary {0}"
_ANEW = "rm -d {0}; echo new >{0}"
"""As git does it. File systems like to give the number of a removed file to the next."""
_WAITS = "while ! grep -qs new {0} && [ ! -e removed ]; do sleep 0.01; done; echo evil >>{0}; echo done; sleep 100"


@pytest.mark.parametrize("pins", [True, False], ids=["open", "by time"])
@pytest.mark.parametrize(
    ("name", "act"),
    [
        *(("AGENTS.md", _BY_RENAME), ("AGENTS.md", _ANEW), ("AGENTS.md", "rm {0}; touch removed")),
        *(("tools/clean.sh", _ANEW), ("included", _ANEW), (".envrc", _ANEW)),
    ],
)
async def test_what_is_replaced_beside_a_living_command_is_set_aside(
    name: str, act: str, pins: bool, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new file is no mount. `.envrc` is a placeholder before."""
    monkeypatch.setattr("ccb.remote.sandbox.outliving._MAX_OPEN", 200 if pins else 0)
    (workspace.root / "included").touch()
    process = await workspace.up(f"echo up; {_WAITS.format(name)}")
    workspace.person(act.format(name))
    await until(lambda: workspace.output.endswith(b"done\n"))
    await process.stop()
    new = f"{os.path.basename(name)}.stopped-by-ccb"
    assert len(process.notes) == 1 and process.notes[0].startswith(f"{name} is now {new}")
    assert not (workspace.root / name).exists()
    assert "evil" in (workspace.root / name).with_name(new).read_text()


async def test_what_a_person_edits_in_place_stays(workspace: Workspace) -> None:
    """The mount covers it as before."""
    script = "while ! grep -q mine AGENTS.md; do sleep 0.01; done; for f in AGENTS.md .vscode/x; do echo x >>$f; done"
    process = await workspace.up(f"echo up; {script}; sleep 100")
    workspace.person("echo mine >>AGENTS.md")
    await until(lambda: workspace.output.count(b"Read-only file system") == 2)
    await process.stop()
    assert process.notes == []
    assert (workspace.root / "AGENTS.md").read_text() == "instructions\nmine\n"
    assert not [path for path in _open_in(workspace.root) if path.startswith("/")], "nothing is held open"


def _open_in(root: Path) -> list[str]:
    links = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
    return [os.readlink(link) for link in links if os.path.lexists(link) and os.readlink(link).startswith(str(root))]


@pytest.mark.parametrize(
    ("links", "script", "evil"),
    [
        ({"sub/.envrc": "../build/env"}, "mkdir build; echo x >build/env", "sub/.envrc"),
        ({"sub/.envrc": "../build/env"}, "mkdir b2; echo x >b2/env; ln -s b2 build", "sub/.envrc"),
        ({".vscode": "build/vs"}, "mkdir -p build/vs; echo x >build/vs/tasks.json", ".vscode/tasks.json"),
        ({".vscode": "link/real", "link": "d1"}, "rm link; mv link l; ln -s d2 link", ".vscode/evil"),
        ({".vscode": "l1", "l1": "l2/real", "l2": "d1"}, "mv l2 x; ln -s d2 l2; ln -sfn d2/real l1", ".vscode/evil"),
        ({".git/hooks/pre-commit": "../../link/real/hook", "link": "d1"}, "rm link; ln -s d2 link", "link/real/evil"),
        ({"hooks": "link/real", "link": "d1"}, "rm link; ln -s d2 link", "hooks/evil"),
        ({".claude/skills/one": "../../link/real", "link": "d1"}, "rm link; ln -s d2 link", ".claude/skills/one/evil"),
        ({".vscode/tasks.json": "../build/tasks"}, "mkdir build; echo x >build/tasks", ".vscode/tasks.json"),
        ({".husky/pre-push": "../d1/push"}, "echo x >d1/push", ".husky/pre-push"),
        ({"hooks": "build/x"}, "mkdir d3; echo x >d3/evil; mkdir build; ln -s ../d3 build/x", "hooks/evil"),
    ],
)  # fmt: skip
async def test_no_link_on_the_way_to_what_acts_later_is_led_elsewhere(
    links: dict[str, str], script: str, evil: str, workspace: Workspace
) -> None:
    plant(workspace.root, "d1/real/", "d2/real/evil", *(f"{name} -> {target}" for name, target in links.items()))
    await workspace.run(script)
    assert not (workspace.root / evil).exists()


async def test_links_between_directories_of_a_session_are_followed_where_both_are_written(workspace: Workspace) -> None:
    other = workspace.home / "other"
    plant(workspace.root, "../other/vs/", f".vscode -> {other}/vs", f"sub/.envrc -> {other}/env")
    await workspace.notes("true")
    both = workspace.rules(workspace.root, other)
    script = "echo x >../other/vs/tasks.json; echo x >../other/env"
    assert await workspace.notes(script, both) == ["env is now env.stopped-by-ccb"]
    assert os.listdir(other / "vs") == []
    assert await workspace.notes("true") == []
    assert sorted(os.listdir(other)) == ["env.stopped-by-ccb", "vs"]


async def test_a_directory_that_becomes_a_repository_is_none_afterwards(workspace: Workspace) -> None:
    notes = await workspace.notes("cd sub; git init -q --bare .", workspace.rules(workspace.root / "sub"))
    assert notes == ["HEAD is now HEAD.stopped-by-ccb"]


async def test_a_repository_is_not_led_elsewhere_over_a_link(workspace: Workspace) -> None:
    workspace.person("git init -q store/repo; ln -s store link; mkdir tree; echo gitdir: ../link/repo/.git >tree/.git")
    await workspace.run(f"git init -q s2/repo; mv s2/repo/.git s2/repo/x; git config -f s2/repo/x/config {_EVIL};"
                        " mv s2/repo/x s2/repo/.git; rm link; ln -s s2 link")  # fmt: skip
    assert os.readlink(workspace.root / "link") == "store"


def test_a_count_is_taken_again_only_where_something_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(tmp_path, *(f"d{number}/inner/" for number in range(5)))
    monkeypatch.setattr("ccb.remote.sandbox.outliving._TICK_NS", 0)
    census = LaterActors(str(tmp_path))
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
    plant(tmp_path, "outside/.envrc", "project/link -> ../outside")
    with pytest.raises(NotADirectoryError):
        set_aside(str(tmp_path / "project"), str(tmp_path / "project" / "link" / ".envrc"))
    assert (tmp_path / "outside" / ".envrc").exists()


async def test_a_directory_that_is_itself_a_repository_has_no_cage(workspace: Workspace) -> None:
    workspace.person("git init -q --bare bare")
    with pytest.raises(CageUnavailable, match="is itself a repository"):
        await workspace.start("true", workspace.rules(workspace.root / "bare"))
