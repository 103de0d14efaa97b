"""The same session over every way to a host: deploy, model call, Read, Edit, Bash, approvals, reattach. Root only."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.support.hosts.container import container
from tests.support.hosts.sshd import host_user
from tests.support.hosts.sshd import sshd as serve
from tests.support.hosts.whole_session import Somewhere, whole_session
from tests.support.machine.processes import shell_script
from tests.support.person.laptop import Here, Laptop

pytestmark = pytest.mark.visited

WRAPPER = """#!/bin/sh
[ "$1 $2" = "fleet ssh" ] || exit 2
host=$3; shift 3
exec ssh -F /dev/null -p {port} -i {key} -o UserKnownHostsFile={known} -o IdentitiesOnly=yes "$host" "$@"
"""


WAYS = [
    "asyncssh",
    "ssh",
    "docker",
    "wrapper",
    "sh -c",
    "kubectl",
    "srun --pty",
    "container over asyncssh",
    "container over ssh",
    "container here",
]


@pytest.fixture
async def somewhere(way: str, laptop: Laptop, tmp_path: Path) -> AsyncIterator[Somewhere]:
    async with AsyncExitStack() as stack:
        if way == "sh -c":
            (laptop.home / "app").mkdir()
            yield Somewhere(["ssh", "~/app", "--transport", way], laptop.home / "app", "~/app", socket.gethostname())
            return
        over = way.rpartition(" ")[2]
        if way in ("docker", "kubectl", "srun --pty") or "container" in way:
            box = stack.enter_context(container(tmp_path))
            programs, app, directory, hostname = box.bin, box.path("/root/app"), "/root/app", "web"
            laptop.env["PATH"] = f"{programs}:{laptop.env['PATH']}"
            command = {"docker": "docker exec -i web", "kubectl": "kubectl exec -i web --", "srun --pty": way}.get(way)
            if command is not None:
                yield Somewhere(["ssh", f"box:{directory}", "--transport", command], app, directory, hostname)
                return
            if over == "here":
                where = ["ssh", f"box:{directory}", "--local", "--container", "web"]
                yield Somewhere(where, app, directory, hostname)
                return
            environment = {"PATH": laptop.env["PATH"]}
            login = "root"  # who may enter the namespaces
        else:
            user = stack.enter_context(host_user(tmp_path))
            login, environment, app, directory = user.name, None, user.home / "app", "~/app"
            hostname = socket.gethostname()
            app.mkdir()
            app.chmod(0o777)
        server = await stack.enter_async_context(serve(tmp_path / "sshd", environment=environment))
        target = f"{login}@127.0.0.1:{directory}"
        if way == "wrapper":
            text = WRAPPER.format(port=server.port, key=server.identity, known=server.known_hosts)
            fleet = shell_script(tmp_path / "fleet", text)
            yield Somewhere(["ssh", target, "--ssh-command", f"'{fleet}' fleet ssh"], app, directory, hostname)
            return
        where = ["ssh", target, *server.client_options(), "--transport", over]
        yield Somewhere(where + (["--container", "web"] if "container" in way else []), app, directory, hostname)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.quick_rows(3)
async def test_the_same_session_over(here: Here, way: str, somewhere: Somewhere) -> None:
    await whole_session(here.laptop, here.model, somewhere)
