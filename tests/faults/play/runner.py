"""Plays one session of the real `ccb` over a real sshd, through a relay that does what a plan says."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import pwd
import subprocess
import time
from pathlib import Path

import psutil
from tests.faults.play.client import Around, Session
from tests.faults.play.host import kept_by, left_by, make_repository, trees_of
from tests.faults.play.outcome import Outcome, lines_of, text_of
from tests.faults.play.plan import Plan, Step
from tests.faults.work.pieces import COMMAND, NEAR_NAME
from tests.faults.work.work import WORKS, WorkModel
from tests.support.hosts.reached_host import Host
from tests.support.hosts.sshd import HostUser, Sshd
from tests.support.hosts.visited_host import visit
from tests.support.machine.clock import jumping_clocks
from tests.support.machine.processes import left_with_home, processes_of
from tests.support.model.fake_model import FakeModel
from tests.support.network.relay import Fault, relay
from tests.support.person.laptop import Laptop, make_laptop
from tests.support.worker.compiled import packed

DEADLINE_S = 180.0


async def play(plan: Plan, directory: Path, user: HostUser, sshd: Sshd, *, debug: bool = False) -> Outcome:
    scripted = WorkModel(WORKS[plan.work])
    async with FakeModel([scripted]) as model, relay(sshd.port, delay_s=plan.delay_s) as between:
        laptop = make_laptop(directory, model.url)
        host = Host(laptop, model, sshd, user)
        _prepare(host, plan)
        clocks = jumping_clocks(directory, user) if plan.ending == "clocks jump" else None
        if clocks is not None:
            laptop.env["PYTHONPATH"] = clocks.pythonpath + laptop.env["PYTHONPATH"]
        session = Session(plan, Around(host, between, scripted, clocks), *(["--debug"] if debug else []))
        between.faults += [_fault(step, user) for step in plan.steps]
        started = time.monotonic()
        try:
            async with asyncio.timeout(DEADLINE_S + plan.stopped_s):
                outcome = await session.play()
        except TimeoutError:
            outcome = session.unfinished()
        outcome.evidence = _evidence(user, laptop)
        outcome.home = str(user.home)
        outcome.seconds = time.monotonic() - started
        outcome.requests = len(model.requests)
        outcome.connections = between.connections
        outcome.happened = [step.kind for step, fault in zip(plan.steps, between.faults, strict=True) if fault.happened]
        outcome.counts = lines_of(user.home / "count")
        outcome.near = lines_of(laptop.home / "count")
        outcome.hooked = lines_of(user.home / "hooked")
        outcome.trees = trees_of(user) if WORKS[plan.work].kept else {}
        outcome.files = {name: text_of(user.home / name) for name in ("edit.txt", "new.txt")}
        outcome.left = await left_by(user) + await asyncio.to_thread(left_with_home, laptop.home)
        outcome.kept = kept_by(user)
        return outcome


def _prepare(host: Host, plan: Plan) -> None:
    work = WORKS[plan.work]
    for name, text in work.files.items():
        host.put(name, text.encode())
    if work.kept:
        make_repository(host.user, work.files)
    if work.served:
        host.laptop.settings(mcpServers={NEAR_NAME: COMMAND})
    if not plan.cold:
        visit(host.home, host.uid)
        if plan.copy:
            (bundle,) = host.home.glob(".cache/ccb/worker/*.bundle")
            path = bundle.with_name(f"{bundle.stem}.{_cache_tag()}.code")
            path.unlink(missing_ok=True)
            _put_copy(path, plan.copy, pwd.getpwnam(host.user.name))


def _put_copy(path: Path, kind: str, owner: pwd.struct_passwd) -> None:
    """Put what is no usable compiled copy in its place (`plan.COPIES`)."""
    match kind:
        case "a directory":
            path.mkdir(mode=0o700)
        case "a link":
            path.symlink_to(owner.pw_dir + "/a.txt")
        case "of another version":
            path.write_bytes(packed({"ccb/remote/main.py": b""}, "0" * 64))
        case _:
            path.write_bytes(os.urandom(100_000))
    if kind != "a link":
        path.chmod(0o000 if kind == "unreadable" else 0o700)
    os.chown(path, owner.pw_uid, owner.pw_gid, follow_symlinks=False)


@functools.cache
def _cache_tag() -> str:
    program = "import sys; print(sys.implementation.cache_tag)"
    found = ["/usr/bin/env", "-i", "PATH=/usr/local/bin:/usr/bin:/bin", "python3", "-I", "-S", "-c", program]
    return subprocess.run(found, check=True, capture_output=True, text=True).stdout.strip()


def _fault(step: Step, user: HostUser) -> Fault:
    if not step.kind.startswith("kill"):
        return Fault(step.kind, step.at, step.upward, step.seconds, connection=step.connection)

    async def kill() -> None:
        for process in processes_of(user):
            with contextlib.suppress(psutil.NoSuchProcess):
                if (
                    (process.name() == "sshd") == (step.kind == "kill sshd")
                    and process.name() != "ccb"
                    and _carries(process)
                ):
                    process.kill()

    return Fault("call", step.at, step.upward, act=kill, connection=step.connection)


def _evidence(user: HostUser, laptop: Laptop) -> str:
    """The last lines of what both ends wrote, each cut to a readable length."""
    found = [*user.home.rglob("journal.jsonl"), *user.home.rglob("daemon.log"), *laptop.home.rglob("ccb-*.log")]
    return "\n".join(f"{path}:\n" + "\n".join(line[:600] for line in lines_of(path)[-120:]) for path in found)


def _carries(process: psutil.Process) -> bool:
    """The login's own processes: sshd, and the shell or bridge that it runs. Tools are the daemon's."""
    with contextlib.suppress(psutil.NoSuchProcess):
        parent = process.parent()
        return process.name() == "sshd" or (parent is not None and parent.name() == "sshd")
    return False
