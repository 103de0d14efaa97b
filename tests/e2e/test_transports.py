"""The same session over every way to a host: deploy, model call, Read, Edit, Bash, approvals, reattach. Root only."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.container import container
from tests.support.fake_model import API_KEY, FakeModel
from tests.support.laptop import Laptop, Running, make_laptop
from tests.support.sshd import host_user
from tests.support.sshd import sshd as serve

STREAM = ["--output-format", "stream-json", "--verbose"]
STDIO = [*STREAM, "--input-format", "stream-json", "--permission-prompt-tool", "stdio"]

WRAPPER = """#!/bin/sh
[ "$1 $2" = "fleet ssh" ] || exit 2
host=$3; shift 3
exec ssh -F /dev/null -p {port} -i {key} -o UserKnownHostsFile={known} -o IdentitiesOnly=yes "$host" "$@"
"""


@dataclass(frozen=True)
class Somewhere:
    """A host and how it is reached: `where` are the words of the command line, `app` is its directory for the work as seen from
    here, `directory` as seen there, `hostname` what it calls itself."""

    where: list[str]
    app: Path
    directory: str
    hostname: str


@pytest.fixture
def laptop(tmp_path: Path, fake_model: FakeModel) -> Laptop:
    return make_laptop(tmp_path, fake_model.url)


WAYS = [
    "asyncssh",
    "ssh",
    "wrapper",
    "sh -c",
    "docker",
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
            fleet = tmp_path / "fleet"
            fleet.write_text(WRAPPER.format(port=server.port, key=server.identity, known=server.known_hosts))
            fleet.chmod(0o755)
            yield Somewhere(["ssh", target, "--ssh-command", f"'{fleet}' fleet ssh"], app, directory, hostname)
            return
        where = ["ssh", target, *server.client_options(), "--transport", over]
        yield Somewhere(where + (["--container", "web"] if "container" in way else []), app, directory, hostname)


def user_message(text: str) -> dict[str, object]:
    return {"type": "user", "message": {"role": "user", "content": text}, "parent_tool_use_id": None, "session_id": ""}


async def until(condition: Callable[[], object], seconds: float = 30) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


async def allow(running: Running, tool: str) -> None:
    """Say yes to the next question, which must be about `tool`."""
    asked = await running.until("control_request")
    assert asked["request"]["tool_name"] == tool
    answer = {"behavior": "allow", "updatedInput": asked["request"]["input"]}
    response = {"subtype": "success", "request_id": asked["request_id"], "response": answer}
    await running.send({"type": "control_response", "response": response})


@pytest.mark.parametrize("way", WAYS)
async def test_the_same_session_over(way: str, laptop: Laptop, fake_model: FakeModel, somewhere: Somewhere) -> None:
    app = somewhere.app
    (app / "greet.py").write_text('print("bonjour")\r\n', encoding="utf-8", newline="")
    (app / "greet.py").chmod(0o666)
    path = "greet.py" if somewhere.directory.startswith("~") else f"{somewhere.directory}/greet.py"
    if path == "greet.py":
        path = str(app / path)
    wait = "python3 greet.py; hostname; echo run >> count; touch started; while [ ! -e go ]; do sleep 0.05; done"
    edit = {"file_path": path, "old_string": "bonjour", "new_string": "hello"}
    fake_model.add(
        {"blocks": [{"type": "tool_use", "name": "Read", "input": {"file_path": path}}]},
        {"blocks": [{"type": "tool_use", "name": "Edit", "input": edit}]},
        {"blocks": [{"type": "tool_use", "name": "Bash", "input": {"command": wait}}]},
        {"text": "It says hello."},
    )
    async with laptop.start([*somewhere.where, "-p", *STDIO]) as running:
        await running.send(user_message("say it in English"))
        session = (await running.until("system", "init"))["session_id"]
        await allow(running, "Edit")
        await allow(running, "Bash")
        await until((app / "started").exists)
        running.process.kill()
    (app / "go").touch()
    fake_model.add({"text": "second answer"})
    done = await laptop.run([*somewhere.where, "--resume", session[:8], "-p", "and now?", *STREAM])
    assert done.code == 0, done.stderr
    assert [result["result"] for result in done.results][-1] == "second answer"
    assert done.results[-1]["session_id"] == session
    assert "bonjour" in fake_model.requests[1].tool_result_text
    assert fake_model.requests[3].tool_result_text.split() == ["hello", somewhere.hostname]
    assert (app / "greet.py").read_bytes() == b'print("hello")\r\n'
    assert (app / "count").read_text() == "run\n"
    assert {request.headers["x-api-key"] for request in fake_model.requests} == {API_KEY}
