"""A host over a real sshd: its commands, what they leave, and a system that kills what a login leaves running."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import signal
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.e2e.drops.test_reconnect import daemon_of
from tests.support.hosts import sshd as servers
from tests.support.hosts.reached_host import Host
from tests.support.hosts.sshd import HostUser
from tests.support.machine.processes import name_of, processes_of
from tests.support.machine.programs import shell_script
from tests.support.machine.waiting import until
from tests.support.model.model_script import Json, uses
from tests.support.network.relay import relay
from tests.support.person.laptop import STDIO, STREAM, user_message
from tests.support.person.login import logged_in, target

from ccb.deploy.bundle import load
from ccb.local.connect.session_rows import reports

pytestmark = pytest.mark.visited


BUSY = "echo $$ >> pids; setsid sleep 600 & sleep 600"


async def command(host: Host, name: str, **params: Any) -> list[tuple[str, Json]]:
    async with asyncio.timeout(30), logged_in(target(host.server, host.user)) as transport:
        return [(each.kind, each.body) async for each in reports(transport, load(), {"command": name, **params})]


def names_of(user: HostUser) -> set[str]:
    return {name_of(process) for process in processes_of(user)} - {""}


def tree(host: Host) -> list[str]:
    """All there is in the home and in the places of this user elsewhere."""
    found = [str(path.relative_to(host.home)) for path in host.home.rglob("*")]
    return sorted(found + [str(path) for path in Path("/tmp").glob(f"ccb-{host.uid}*")])


@asynccontextmanager
async def at_work(host: Host, path: str = "~") -> AsyncIterator[str]:
    """A session in the middle of a Bash call with children, and a laptop attached to it."""
    host.model.add(uses("Bash", command=BUSY))
    argv = host.ssh("-p", *STDIO, "--allowedTools", "Bash", "--reconnect-timeout", "0", path=path)
    async with host.laptop.start(argv) as running:
        await running.send(user_message("go"))
        session = (await running.until("system", "init"))["session_id"]
        directory = host.home if path == "~" else Path(path)
        await until((directory / "pids").exists)
        yield session


async def test_stop_all_leaves_no_process_and_no_socket(host: Host) -> None:
    async with at_work(host) as one, at_work(host, str(host.put("second"))) as other:
        listed = {body["session"]: body for _, body in await command(host, "ps")}
        assert {one, other} == set(listed)
        assert all(body["state"] == "running" and body["alive"] for body in listed.values())
        reports = await command(host, "stop", all=True)
        assert {(kind, body["session"]) for kind, body in reports} == {("stopped", one), ("stopped", other)}
    await until(lambda: not processes_of(host.user))
    assert [name for name in tree(host) if name.endswith((".sock", ".lock"))] == []


LOST = 'env -i setsid sh -c "(sleep 600 & echo \\$! >lost) &"; while [ ! -s lost ]; do sleep 0.01; done'
"""A process that no session, group or environment tells any more."""


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("sandbox", [True, False], ids=["caged", "uncaged"])
async def test_what_a_command_leaves_running_is_told_and_ends_with_the_run(host: Host, sandbox: bool) -> None:
    host.model.add(uses("Bash", command=LOST), {"text": "a server runs"})
    host.put("project")
    allowed = ["--sandbox", "workspace"] if sandbox else ["--allowedTools", "Bash"]
    done = await host.run("-p", "go", *STREAM, *allowed, path="~/project")
    assert done.code == 0, done.stderr
    assert "Still running after the command: sleep (pid " in str(host.model.requests[-1].messages)
    await until(lambda: not processes_of(host.user))


ATTACKS = {
    "none": "",
    "the supervisor is stopped": "kill -STOP $PPID;",
    "the supervisor and the zygote are killed": "kill -9 $(cut -d' ' -f4 /proc/$PPID/stat) $PPID;",
}


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("attack", ATTACKS)
async def test_stop_all_ends_what_has_lost_its_environment(host: Host, attack: str) -> None:
    line = f"{LOST}; {ATTACKS[attack]} touch ready"
    host.model.add(uses("Bash", command=line), {"text": "a server runs"})
    lost, ready = host.home / "lost", host.home / "ready"
    async with host.start("-p", *STDIO, "--allowedTools", "Bash", "--reconnect-timeout", "0") as running:
        await running.send(user_message("go"))
        await until(lambda: lost.exists() and lost.read_text().endswith("\n"))
        await until(lambda: ready.exists() or not psutil.pid_exists(int(lost.read_text())))
        reports = await command(host, "stop", all=True)
        assert [kind for kind, _ in reports] == ["stopped"]
    await until(lambda: not processes_of(host.user))


async def test_stop_all_ends_what_a_killed_worker_has_left_and_says_so(host: Host) -> None:
    async with at_work(host):
        daemon_of(host.user).send_signal(signal.SIGKILL)
    await until(lambda: names_of(host.user) <= {"bash", "sleep", "sh"})
    assert names_of(host.user), "the tool still runs"
    done = await host.command("stop", "--all")
    assert done.code == 0
    assert "(sleep): left running by a tool of session" in done.stdout.replace("“", "")
    await until(lambda: not processes_of(host.user))


async def test_a_living_worker_does_not_need_its_bundle_on_the_disk(host: Host) -> None:
    """`ccb gc`, or a cleaner of old files, may take it away while the session is at work."""
    (host.home / "greet.txt").write_text("bonjour\n", encoding="utf-8")
    host.model.add(
        uses("Bash", command="rm -rf .cache/ccb"),
        uses("Grep", pattern="bonj", output_mode="content"),
        {"text": "found"},
    )
    done = await host.run("-p", "go", *STREAM, "--allowedTools", "Bash(rm *)")
    assert done.code == 0, done.stderr
    assert not (host.home / ".cache" / "ccb").exists()
    assert "greet.txt:1:bonjour" in str(host.model.requests[-1].messages)


@pytest.mark.visited(False)
@pytest.mark.parametrize("there", [[], [".cache", ".local/state"], [".cache/other", ".local/share/other"]])
@pytest.mark.quick_rows(1)
async def test_clean_leaves_nothing_of_ccb_on_the_host(host: Host, there: list[str]) -> None:
    for name in there:
        host.put(name)
    before = tree(host)
    async with at_work(host):
        (bundle,) = host.home.glob(".cache/ccb/worker/*.bundle")
        for name in (f"{bundle.stem}.cpython-39.code", f"{'f' * 64}.pypy310-pp73.code"):
            bundle.with_name(name).write_text("compiled copy")
        would = await command(host, "clean", dry_run=True)
        assert len(processes_of(host.user)) > 2
        did = await command(host, "clean")
    await until(lambda: not processes_of(host.user))
    assert tree(host) == sorted([*before, "pids"])
    assert {body["what"] for kind, body in did if kind == "removed"} >= {"session", "bundle", "directory"}
    paths = [{body["path"] for kind, body in each if kind == "removed"} for each in (would, did)]
    assert paths[0] >= paths[1]


@pytest.mark.visited(False)
async def test_clean_touches_nothing_that_is_not_ours(host: Host) -> None:
    """Links in our places, files of others beside ours, a session that lives on another host."""
    home = host.home
    session = home / ".local/state/ccb/sessions" / str(uuid.uuid4())
    for each in (session, home / "precious/sessions", home / ".cache/ccb/worker"):
        each.mkdir(parents=True, mode=0o700)
    record = {"seq": 1, "time": 1.0, "kind": "options", "body": {"cwd": "/", "options": {}}}
    (session / "journal.jsonl").write_text(json.dumps(record) + "\n")
    owner = {"cwd": "/", "hostname": "nodeb", "boot": "b", "pid": 7, "bundle": "e" * 64}
    (session / "summary.json").write_text(json.dumps(owner))
    for ending in ("bundle", "zip", "cpython-39.code"):
        (home / f".cache/ccb/worker/{'e' * 64}.{ending}").write_text("bundle and compiled copy")
    (home / ".local/state/ccb/ccb-7.log").write_text("a laptop's own log")
    (home / "precious/sessions/file").write_text("x")
    (session.parent / "linked").symlink_to(home / "precious")
    (home / ".ccb-run").symlink_to(home / "precious")
    for path in home.rglob("*"):
        os.chown(path, host.uid, -1, follow_symlinks=False)
    before = tree(host)
    reports = await command(host, "clean")
    assert tree(host) == before
    kept = {body["path"] for kind, body in reports if kind == "kept"}
    assert kept >= {str(session), str(home / f".cache/ccb/worker/{'e' * 64}.bundle"), str(home / ".local/state/ccb")}


@contextmanager
def killing_at_logout(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """On servers started here logind says KillUserProcesses=yes, and their logins are in a login scope."""
    if not (busctl := shutil.which("busctl")):
        pytest.skip("no busctl here to put one of our own in its place")
    hierarchy = Path("/sys/fs/cgroup/systemd")
    if not (hierarchy / "cgroup.procs").exists():
        hierarchy = Path("/sys/fs/cgroup")
    scope = hierarchy / f"session-{secrets.token_hex(4)}.scope"
    try:
        scope.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    fake = shell_script(directory / "busctl", "[ $1 = get-property ] && echo 'b true\nas 0\nas 0'")
    inner = f'mount --bind {fake} {busctl} && exec {servers._SSHD} "$@"'
    enter = f"echo $$ > {scope}/cgroup.procs\nexec unshare -m --propagation private sh -c '{inner}' sh \"$@\""
    monkeypatch.setattr(servers, "_SSHD", str(shell_script(directory / "sshd-in-scope", enter)))
    try:
        yield
    finally:
        for pid in (scope / "cgroup.procs").read_text().split():
            (hierarchy / "cgroup.procs").write_text(pid)
        scope.rmdir()


async def test_where_logout_kills_it_dies_with_link(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.model.add(uses("Bash", command="echo run >> count; touch started; sleep 600"), {"text": "after"})
    with killing_at_logout(tmp_path, monkeypatch):
        async with servers.sshd(tmp_path / "killing") as server, relay(server.port) as between:
            there = replace(host, server=server)
            async with there.start("-p", *STDIO, "--allowedTools", "Bash", port=between.port) as running:
                await running.send(user_message("go"))
                await until((host.home / "started").exists)
                between.freeze()
                between.cut()
                await until(lambda: not names_of(host.user) & {"ccb", "sleep"})
                between.thaw()
                assert (await running.until("result"))["is_error"]
                await running.send(user_message("and now?"))
                await running.until("result")
                done = await running.finish()
            await until(lambda: not processes_of(host.user))
    assert (done.code, [result["is_error"] for result in done.results]) == (0, [True, False])
    assert (host.home / "count").read_text() == "run\n"
