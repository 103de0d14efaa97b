"""Sessions over the OpenSSH client and over commands: their transport is lost, or they cannot begin."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from pathlib import Path

import psutil
import pytest
from tests.support.hosts.container import container
from tests.support.hosts.sshd import HostUser, Sshd, make_key
from tests.support.hosts.whole_session import STREAM
from tests.support.machine.waiting import until
from tests.support.model.fake_model import FakeModel
from tests.support.person.laptop import Done, Laptop

pytestmark = pytest.mark.visited


def children_of(pid: int, name: str) -> list[psutil.Process]:
    found = []
    for process in psutil.Process(pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.name() == name:
                found.append(process)
    return found


def logins(server: Sshd) -> int:
    return server.log.read_text().count("Accepted publickey")


@pytest.mark.parametrize("victim", ["the bridge", "the client"])
async def test_a_living_master_needs_no_new_login(
    victim: str, laptop: Laptop, fake_model: FakeModel, sshd: Sshd, host_user: HostUser
) -> None:
    fake_model.add({"text": "Half of it, and the other half.", "stall_after": 4})
    where = ["ssh", f"{host_user.name}@127.0.0.1:~", *sshd.client_options(), "--transport", "ssh"]
    async with laptop.start([*where, "-p", "hi", *STREAM], piped=False) as running:
        await running.until("system", "init")
        await fake_model.until(lambda model: len(model.requests) == 1)
        (client,) = children_of(running.process.pid, "ssh")
        if victim == "the client":
            client.send_signal(signal.SIGKILL)
        else:
            bridges = [p for p in psutil.process_iter(["username", "name"]) if p.info["username"] == host_user.name]
            for process in bridges:
                if process.info["name"] not in ("ccb", "sshd"):
                    process.send_signal(signal.SIGKILL)
        await until(lambda: [p for p in children_of(running.process.pid, "ssh") if p.pid != client.pid])
        fake_model.release()
        done = await running.done()
    assert (done.code, done.texts) == (0, ["Half of it, and the other half."] * 2)
    assert len(fake_model.requests) == 1 and logins(sshd) == 1


@pytest.mark.parametrize("command", ["docker exec -i web", "srun --pty"])
@pytest.mark.quick_rows(1)
async def test_a_command_that_is_killed_is_started_again(
    command: str, laptop: Laptop, fake_model: FakeModel, tmp_path: Path
) -> None:
    fake_model.add({"text": "Half of it, and the other half.", "stall_after": 4})
    with container(tmp_path) as box:
        laptop.env["PATH"] = f"{box.bin}:{laptop.env['PATH']}"
        argv = ["ssh", "web:/root/app", "--transport", command, "-p", "hi", *STREAM]
        async with laptop.start(argv, piped=False) as running:
            await running.until("system", "init")
            await fake_model.until(lambda model: len(model.requests) == 1)
            (carrier,) = psutil.Process(running.process.pid).children()
            os.killpg(carrier.pid, signal.SIGKILL)
            await until(lambda: [p for p in psutil.Process(running.process.pid).children() if p.pid != carrier.pid])
            fake_model.release()
            done = await running.done()
        assert (done.code, done.texts) == (0, ["Half of it, and the other half."] * 2)
        assert len(fake_model.requests) == 1
        await until(lambda: not box.processes())


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def clear(done: Done, code: int, says: str) -> None:
    """One message: what happened, and after an arrow what to do."""
    assert done.code == code, done.stderr
    assert "Traceback" not in done.stderr and done.stderr.count("  -> ") == 1, done.stderr
    assert says in done.stderr


async def test_what_does_not_begin_has_its_exit_code(
    laptop: Laptop, sshd: Sshd, host_user: HostUser, tmp_path: Path
) -> None:
    login = f"{host_user.name}@127.0.0.1"
    options = sshd.client_options()
    other_key = [*options]
    other_key[other_key.index("-i") + 1] = str(make_key(tmp_path / "other"))
    empty = tmp_path / "empty_known_hosts"
    empty.touch()
    unknown, port = ["-o", f"UserKnownHostsFile={empty}"], str(closed_port())
    ask = ["-p", "hi"]
    over_ssh = ["--transport", "ssh", *ask]
    with container(tmp_path) as box:
        laptop.env["PATH"] = f"{box.bin}:{laptop.env['PATH']}"
        for argv, code, says in (
            (["ssh", "box", "--transport", "no-such-engine exec", *ask], 2, "no command 'no-such-engine'"),
            (["ssh", "box", "--transport", "docker exec -i db", *ask], 69, "No such container: db"),
            (["ssh", "box", "--transport", "kubectl exec -i db --", *ask], 69, "NotFound"),
            (["ssh", "box", "--transport", "false", *ask], 69, "exit code 1"),
            (["ssh", "/no/such", "--transport", "docker exec -i web", *ask], 66, "/no/such"),
            (["ssh", "box", "--local", "--container", "db", *ask], 69, "No such container: db"),
            (["ssh", login, "-P", port, *over_ssh], 69, "Connection refused"),
            (["ssh", login, "-P", port, *ask], 69, port),
            (["ssh", "no-such-host.invalid:/", *ask], 69, "no-such-host.invalid"),
            (["ssh", login, *other_key, *over_ssh], 77, "Permission denied"),
            (["ssh", login, *other_key, *ask], 77, "refused the login"),
            (["ssh", login, *unknown, *options, *over_ssh], 79, "host key"),
            (["ssh", login, *unknown, *options, *ask], 79, "SHA256:"),
            (["ssh", login, "-o", "Nonsense=1", *options, "--transport", "ssh", *ask], 78, "nonsense"),
        ):
            clear(await laptop.run(argv), code, says)
    assert not empty.read_text(), "no key was stored"
