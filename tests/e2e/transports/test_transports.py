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
from tests.support.machine.programs import shell_script
from tests.support.person.laptop import Here, Laptop

pytestmark = pytest.mark.visited

WRAPPER = """#!/bin/sh
[ "$1 $2" = "fleet ssh" ] || exit 2
host=$3; shift 3
exec ssh -F /dev/null -p {port} -i {key} -o UserKnownHostsFile={known} -o IdentitiesOnly=yes "$host" "$@"
"""

ENGINES = {"docker": "docker exec -i web", "kubectl": "kubectl exec -i web --", "srun --pty": "srun --pty"}
WAYS = (
    "asyncssh", "ssh", "docker", "wrapper", "sh -c", "kubectl", "srun --pty", "container over asyncssh",
    "container over ssh", "container here",
)  # fmt: skip


@pytest.fixture
async def somewhere(way: str, laptop: Laptop, tmp_path: Path) -> AsyncIterator[Somewhere]:
    boxed = way in ENGINES or "container" in way
    async with AsyncExitStack() as stack:
        if boxed:
            box = stack.enter_context(container(tmp_path))
            app, directory, hostname = box.path("/root/app"), "/root/app", "web"
            laptop.env["PATH"] = f"{box.bin}:{laptop.env['PATH']}"
            login = "root"  # who may enter the namespaces
        else:
            user = stack.enter_context(host_user(tmp_path))
            app, directory, hostname = user.home / "app", "~/app", socket.gethostname()
            app = laptop.home / "app" if way == "sh -c" else app
            app.mkdir()
            app.chmod(0o777)
            login = user.name
        if way == "sh -c":
            where = ["ssh", "~/app", "--transport", way]
        elif way in ENGINES:
            where = ["ssh", f"box:{directory}", "--transport", ENGINES[way]]
        elif way == "container here":
            where = ["ssh", f"box:{directory}", "--local", "--container", "web"]
        else:
            environment = {"PATH": laptop.env["PATH"]} if boxed else None
            server = await stack.enter_async_context(serve(tmp_path / "sshd", environment=environment))
            target = f"{login}@127.0.0.1:{directory}"
            if way == "wrapper":
                text = WRAPPER.format(port=server.port, key=server.identity, known=server.known_hosts)
                fleet = shell_script(tmp_path / "fleet", text)
                where = ["ssh", target, "--ssh-command", f"'{fleet}' fleet ssh"]
            else:
                where = ["ssh", target, *server.client_options(), "--transport", way.rpartition(" ")[2]]
                where += ["--container", "web"] if boxed else []
        yield Somewhere(where, app, directory, hostname)


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize("way", WAYS)
async def test_the_same_session_over(here: Here, way: str, somewhere: Somewhere) -> None:
    await whole_session(here.laptop, here.model, somewhere)
