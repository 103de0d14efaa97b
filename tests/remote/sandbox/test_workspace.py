"""The cage for the workspace: work goes on in it, and nothing is left that acts outside of it later."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.remote.sandbox.workspace_kit import Workspace
from tests.remote.tools_kit import until

from ccb.remote.permissions.modes import Cages
from ccb.remote.sandbox.cage_directories import Placeholders
from ccb.remote.sandbox.cage_rules import workspace_rules
from ccb.remote.sandbox.cage_server import CageServer, CageUnavailable
from ccb.remote.system.host import Host


async def test_the_project_can_be_changed_and_its_programs_run(workspace: Workspace) -> None:
    script = "sed -i s/one/two/ a && mkdir d && mv a d/b && printf '#!/bin/sh\\necho ran' >p && chmod 755 p && ./p"
    printed = await workspace.run(f"{script} && rm p && git status --short && cat AGENTS.md")
    assert printed.startswith("ran\n")
    assert printed.endswith("instructions\n")
    assert (workspace.root / "d" / "b").read_text() == "two\n"
    assert not (workspace.root / "p").exists()


async def test_a_command_starts_although_another_removes_what_it_is_to_protect(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    vanishing = workspace.root / ".envrc"
    made = Placeholders.made

    @contextlib.contextmanager
    def lose_one(placeholders: Placeholders, paths: Sequence[str]) -> Iterator[list[str]]:
        with made(placeholders, paths) as kept:
            vanishing.rmdir()
            monkeypatch.undo()
            yield kept

    monkeypatch.setattr(Placeholders, "made", lose_one)
    assert await workspace.run("echo ran; echo x >.envrc") == "ran\nbash: line 1: .envrc: Is a directory\n"


async def test_a_file_with_a_name_outside_is_not_changed(workspace: Workspace) -> None:
    """Package managers link files of a project to their store."""
    workspace.person("echo kept >../store; chmod 644 ../store; mkdir -p pkg/deep; ln ../store linked")
    workspace.person("ln ../store pkg/deep/linked; ln AGENTS.md 'another name'; ln a pkg/a")
    state = (store := workspace.home / "store").stat()
    script = "for f in linked pkg/deep/linked moved/deep/linked; do echo x >>$f; : >$f; chmod 777 $f; touch -d @1 $f"
    script += "; echo x 1<>$f; python3 -c 'import os,sys; os.truncate(sys.argv[1], 1)' $f; test -d pkg && mv pkg moved"
    await workspace.run(f"{script}; done; echo x >'another name'; cat linked; echo both >moved/a")
    assert store.read_text() == "kept\n"
    assert (store.stat().st_mode, store.stat().st_mtime_ns) == (state.st_mode, state.st_mtime_ns)
    assert (workspace.root / "moved" / "deep" / "linked").exists()
    assert (workspace.root / "AGENTS.md").read_text() == "instructions\n"
    assert (workspace.root / "a").read_text() == "both\n"  # all its names are in the project


async def test_a_link_that_an_allowed_command_makes_counts_with_the_next_command(workspace: Workspace) -> None:
    await workspace.run("true")
    (workspace.root / "sub" / "a").write_text("one\n")
    await workspace.run("true")
    await workspace.run_uncaged("ln sub/a ../elsewhere")
    await workspace.run("echo x >sub/a")
    assert (workspace.home / "elsewhere").read_text() == "one\n"


async def test_a_link_that_is_made_while_a_caged_command_lives_is_told(workspace: Workspace) -> None:
    """No mount can be added to what runs already."""
    (workspace.home / "store").write_text("one\n")
    running = await workspace.up("echo up; sleep 100")
    notes = await workspace.run_uncaged("mkdir pkg && for f in a b; do ln ../store pkg/$f; done && ln a c")
    told = f"{workspace.root}/pkg/a and 1 more: hard links to files elsewhere, which that command could write"
    assert notes == ["a command in the sandbox still runs, so nothing such is kept: stop it first", told]
    assert await workspace.run_uncaged("true") == []
    await running.stop()


async def test_many_linked_files_are_protected_with_their_directory(workspace: Workspace) -> None:
    (store := workspace.home / "store").write_text("kept\n")
    for number in range(10):
        (workspace.root / "node_modules" / f"p{number}").mkdir(parents=True)
    for number in range(1100):
        os.link(store, workspace.root / "node_modules" / f"p{number % 10}" / str(number))
    os.link(store, workspace.root / "linked")
    printed = await workspace.run("echo x >node_modules/p1/1; echo x >node_modules/new; echo x >linked")
    assert printed.count("Read-only") == 2
    assert store.read_text() == "kept\n"
    assert (workspace.root / "node_modules" / "new").exists()
    script = "mv node_modules old && mkdir node_modules && echo x >node_modules/new && echo ok"
    assert await workspace.run(script) == "ok\n"
    assert (await workspace.run("rm -rf old")).endswith("Read-only file system\n")
    assert store.stat().st_nlink > 1000


async def test_no_hard_link_is_made_to_what_may_not_be_changed(workspace: Workspace) -> None:
    """Edit writes through a hard link, so a command must not get one to a file of another place."""
    (workspace.home / "outside").write_text("x\n")
    script = "ln ../outside x; ln AGENTS.md x; ln .git/config x; ln .husky/pre-commit x; ls x"
    printed = await workspace.run(script)
    assert printed.count("Invalid cross-device link") == 4 and "No such file" in printed


async def test_what_programs_of_a_project_need_is_there(workspace: Workspace) -> None:
    """Locks of multiprocessing, terminals of their own, and servers that only they reach."""
    program = """
import multiprocessing, os, pty, socket
multiprocessing.Lock()
os.close(pty.openpty()[0])
server = socket.create_server(("127.0.0.1", 0))
socket.create_connection(server.getsockname(), 5).close()
print("all there")
"""
    (workspace.root / "program.py").write_text(program)
    assert await workspace.run(f"{os.path.realpath(sys.executable)} program.py") == "all there\n"


async def test_nothing_that_acts_later_can_be_changed_renamed_or_made(workspace: Workspace) -> None:
    before = workspace.everything()
    attempts = [
        *("echo x >.git/config", "echo x >.git/hooks/pre-commit", "echo . >.git/commondir"),
        *("echo x >.git/config.worktree", "mv .git g; mkdir .git; cp -r g/. .git", "rm -rf .git sub/.git"),
        *("echo x >sub/.git/config", "mv sub/.git sub/g"),
        "mv sub moved && mkdir sub && cp -r moved/.git sub && echo x >sub/.git/config",
        "echo x >CLAUDE.md; rm -f CLAUDE.md; ln -sf x CLAUDE.md; mv CLAUDE.md x",
        *("echo x >AGENTS.md; mv AGENTS.md x; ln -f a AGENTS.md", "echo x >.husky/pre-commit; mv .husky x"),
        *("echo x >.envrc; rmdir .envrc; mv .envrc y", "mkdir -p .claude; echo x >.claude/settings.json"),
        *("mkdir -p .vscode; echo x >.vscode/tasks.json", "echo x >.mcp.json"),
        *("rm -rf .vscode .idea .cursor .codex .gemini GEMINI.md", "cd .. && mv project moved"),
    ]
    printed = await workspace.run("\n".join(f"({attempt})" for attempt in attempts))
    assert printed.count("Read-only file system") + printed.count("busy") > len(attempts)
    workspace.host.close()
    assert workspace.everything() == before


async def test_nothing_outside_of_the_project_can_be_changed(workspace: Workspace) -> None:
    (workspace.home / "secret").write_text("canary")
    (workspace.home / "secret").chmod(0o600)
    printed = await workspace.run(
        "cd ..; chmod 777 secret; touch new; cat secret; setfattr -n user.x -v y .; touch -d @1 ."
        f"; echo x >/tmp/ccb-x-$$; kill -USR1 {os.getpid()}"
    )
    assert "canary" not in printed
    assert sorted(os.listdir(workspace.home)) == ["project", "secret"]
    assert (workspace.home / "secret").stat().st_mode & 0o777 == 0o600


async def test_no_program_is_left_that_runs_as_another_user(workspace: Workspace) -> None:
    await workspace.run(
        "cp /bin/true t; chmod u+s t; install -m 4755 /bin/true t2; umask 0; python3 -c "
        "'import os; os.close(os.open(\"t3\", os.O_CREAT, 0o6755))'"
    )
    for path in workspace.root.iterdir():
        assert not path.lstat().st_mode & 0o6000, path


async def test_placeholders_are_there_only_while_something_lives(workspace: Workspace) -> None:
    before = sorted(os.listdir(workspace.root))
    assert (await workspace.run("ls -d .envrc")).strip() == ".envrc"
    await until(lambda: sorted(os.listdir(workspace.root)) == before)
    process = await workspace.start("setsid env -i /bin/sh -c 'echo $$; exec /bin/sleep 100' & wait $!; exit")
    await until(lambda: workspace.output.endswith(b"\n"))
    left = int(workspace.output)
    os.kill(process.pid, 9)
    await process.wait()
    assert (workspace.root / ".envrc").is_dir()  # what the command left behind could make a file there
    os.kill(left, 9)
    await process.stop()
    await workspace.run("true")
    await until(lambda: sorted(os.listdir(workspace.root)) == before)


async def test_placeholders_stay_for_another_session_and_go_after_a_killed_worker(workspace: Workspace) -> None:
    before = sorted(os.listdir(workspace.root))
    (workspace.root / ".envrc").mkdir()
    (workspace.root / ".envrc").chmod(0o1700)  # a worker that was killed has left it
    process = await workspace.start("echo ready; exec sleep 100")
    await until(lambda: workspace.output == b"ready\n")
    first, workspace.host = workspace.host, Host()  # another session in the same project
    assert await workspace.run("echo done") == "done\n"
    workspace.host.close()
    assert (workspace.root / ".envrc").is_dir()
    assert (workspace.root / ".claude").is_dir()
    await process.stop()
    first.close()
    await until(lambda: sorted(os.listdir(workspace.root)) == before)


async def test_a_command_waits_for_a_session_that_removes_its_placeholders(workspace: Workspace) -> None:
    (placeholder := workspace.root / ".envrc").mkdir()
    placeholder.chmod(0o1700)
    other = os.open(placeholder, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    running = asyncio.ensure_future(workspace.run("ls -d .envrc"))
    await until((workspace.root / ".idea").exists)  # the last that is made before it
    placeholder.rmdir()
    os.close(other)
    assert await running == ".envrc\n"


async def test_a_program_that_cannot_be_run_is_the_usual_error(workspace: Workspace) -> None:
    (workspace.root / "program").write_bytes(b"\x7fno format of programs\n")
    (workspace.root / "program").chmod(0o755)
    with pytest.raises(OSError, match="program") as raised:
        await workspace.host.start(["./program"], str(workspace.root), workspace.output.extend, None, workspace.rules())
    assert raised.value.errno == errno.ENOEXEC


async def test_without_landlock_there_is_no_cage_for_the_workspace(tmp_path: Path) -> None:
    server = CageServer(most_abi=0)
    rules = workspace_rules([str(tmp_path)], os.environ, "")
    assert not server.availability().workspace
    assert "Landlock" in server.availability().why
    with pytest.raises(CageUnavailable, match="no workspace cage on this host"):
        server.start(["touch", "a"], str(tmp_path), os.environ, rules)
    server.close()
    assert os.listdir(tmp_path) == []


async def test_the_worker_that_starts_later_cannot_be_changed_from_a_workspace_around_it(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(workspace.root / "cache"))
    copy = workspace.root / "cache/ccb/worker/bundle.code"
    copy.parent.mkdir(parents=True, mode=0o700)
    copy.write_text("compiled")
    rules = Cages(workspace.host.cages, workspace.environ, "/nowhere").workspace([str(workspace.root)], network=False)
    assert rules is not None
    script = "echo evil >cache/ccb/worker/bundle.code; mv cache/ccb c; mv cache c; rm -rf cache; echo done >a"
    await workspace.notes(script, rules)
    assert ((workspace.root / "a").read_text(), copy.read_text()) == ("done\n", "compiled")
