"""One session from end to end on any host: deploy, model calls, tools, approvals, a laptop that dies, reattach."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.support.machine.waiting import until
from tests.support.model.fake_model import API_KEY, FakeModel
from tests.support.model.model_script import uses
from tests.support.person.laptop import STDIO, STREAM, Done, Laptop, Running, user_message


@dataclass(frozen=True)
class Somewhere:
    """A host: `where` are words of the command line, `app` and `directory` its directory from here and there."""

    where: list[str]
    app: Path
    directory: str
    hostname: str


async def allow(running: Running, tool: str) -> None:
    asked = await running.until("control_request")
    assert asked["request"]["tool_name"] == tool
    await running.reply(asked, {"behavior": "allow", "updatedInput": asked["request"]["input"]})


async def whole_session(laptop: Laptop, fake_model: FakeModel, somewhere: Somewhere, *, bulk: int = 0) -> Done:
    """Run it and check everything. Return how the second ccb ended. The first answer is `bulk` bytes longer."""
    app = somewhere.app
    (app / "greet.py").write_text('print("bonjour")\r\n', encoding="utf-8", newline="")
    (app / "greet.py").chmod(0o666)
    path = str(app / "greet.py") if somewhere.directory.startswith("~") else f"{somewhere.directory}/greet.py"
    wait = "python3 greet.py; hostname; echo run >> count; touch started; while [ ! -e go ]; do sleep 0.05; done"
    edit = {"file_path": path, "old_string": "bonjour", "new_string": "hello"}
    reads = uses("Read", file_path=path)["blocks"]
    if bulk:
        reads.insert(0, {"type": "fill", "bytes": bulk})
    fake_model.add({"blocks": reads}, uses("Edit", **edit), uses("Bash", command=wait), {"text": "It says hello."})
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
    said = [request.tool_result_text for request in fake_model.requests]
    assert "bonjour" in said[1], said
    assert said[3].split() == ["hello", somewhere.hostname], said
    assert (app / "greet.py").read_bytes() == b'print("hello")\r\n'
    assert (app / "count").read_text() == "run\n"
    assert {request.headers["x-api-key"] for request in fake_model.requests} == {API_KEY}
    return done
