"""Sessions over the OpenSSH client and over commands: their transport is lost, or they cannot begin."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
from tests.support.hosts.container import container
from tests.support.hosts.reached_host import Host
from tests.support.hosts.sshd import free_port, make_key
from tests.support.machine.processes import name_of, processes_of
from tests.support.machine.waiting import until
from tests.support.model.fake_model import FakeModel
from tests.support.person.laptop import STREAM, Here, Laptop, Running

pytestmark = pytest.mark.visited


def children_of(running: Running) -> dict[int, str]:
    """The processes that a run has started."""
    return {each.pid: name_of(each) for each in psutil.Process(running.process.pid).children()}


@asynccontextmanager
async def half_an_answer(laptop: Laptop, model: FakeModel, argv: list[str], carrier: str) -> AsyncIterator[int]:
    """A run in the middle of an answer: what carries its link, which is ended here and started again."""
    model.add({"text": "Half of it, and the other half.", "stall_after": 4})
    async with laptop.start([*argv, "-p", "hi", *STREAM], piped=False) as running:
        await running.until("system", "init")
        await model.until(lambda model: len(model.requests) == 1)
        (old,) = [pid for pid, name in children_of(running).items() if carrier in name]
        yield old
        await until(lambda: [pid for pid, name in children_of(running).items() if carrier in name and pid != old])
        model.release()
        done = await running.done()
    assert (done.code, done.texts) == (0, ["Half of it, and the other half."] * 2)
    assert len(model.requests) == 1


@pytest.mark.parametrize("victim", ["the bridge", "the client"])
async def test_a_living_master_needs_no_new_login(host: Host, victim: str) -> None:
    async with half_an_answer(host.laptop, host.model, host.ssh("--transport", "ssh"), "ssh") as client:
        if victim == "the client":
            os.kill(client, signal.SIGKILL)
        else:
            for process in processes_of(host.user):
                if name_of(process) not in ("ccb", "sshd", ""):
                    process.kill()
    assert host.server.logins == 1


@pytest.mark.parametrize("command", ["docker exec -i web", "srun --pty"])
@pytest.mark.quick_rows(1)
async def test_a_command_that_is_killed_is_started_again(here: Here, command: str, tmp_path: Path) -> None:
    with container(tmp_path) as box:
        here.laptop.env["PATH"] = f"{box.bin}:{here.laptop.env['PATH']}"
        argv = ["ssh", "web:/root/app", "--transport", command]
        async with half_an_answer(here.laptop, here.model, argv, "") as carrier:
            os.killpg(carrier, signal.SIGKILL)
        await until(lambda: not box.processes())


async def test_what_does_not_begin_has_its_exit_code(host: Host, tmp_path: Path) -> None:
    options, other_key = host.server.client_options(), host.by_key(make_key(tmp_path / "other"))
    empty = tmp_path / "empty_known_hosts"
    empty.touch()
    unknown, port = ["-o", f"UserKnownHostsFile={empty}"], str(free_port())
    ask = ["-p", "hi"]
    over_ssh = ["--transport", "ssh", *ask]
    with container(tmp_path) as box:
        host.laptop.env["PATH"] = f"{box.bin}:{host.laptop.env['PATH']}"
        for argv, code, says in (
            (["ssh", "box", "--transport", "no-such-engine exec", *ask], 2, "no command 'no-such-engine'"),
            (["ssh", "box", "--transport", "docker exec -i db", *ask], 69, "No such container: db"),
            (["ssh", "box", "--transport", "kubectl exec -i db --", *ask], 69, "NotFound"),
            (["ssh", "box", "--transport", "false", *ask], 69, "exit code 1"),
            (["ssh", "/no/such", "--transport", "docker exec -i web", *ask], 66, "/no/such"),
            (["ssh", "box", "--local", "--container", "db", *ask], 69, "No such container: db"),
            (["ssh", host.login, "-P", port, *over_ssh], 69, "Connection refused"),
            (["ssh", host.login, "-P", port, *ask], 69, port),
            (["ssh", "no-such-host.invalid:/", *ask], 69, "no-such-host.invalid"),
            (["ssh", host.login, *other_key, *over_ssh], 77, "Permission denied"),
            (["ssh", host.login, *other_key, *ask], 77, "refused the login"),
            (["ssh", host.login, *unknown, *options, *over_ssh], 79, "host key"),
            (["ssh", host.login, *unknown, *options, *ask], 79, "SHA256:"),
            (["ssh", host.login, "-o", "Nonsense=1", *options, "--transport", "ssh", *ask], 78, "nonsense"),
        ):
            assert (await host.laptop.run(argv)).refuses(code, says)
    assert not empty.read_text(), "no key was stored"
