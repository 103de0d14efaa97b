"""`! make`: a command line of the person, run on the host; over a real worker."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

from tests.remote.agent_kit import says
from tests.remote.worker_process import Laptop, WorkerHost, until
from tests.support.person.laptop import user_message

from ccb.tunnel.wire.client_requests import SHELL_CALL, SHELL_COMMAND
from ccb.tunnel.wire.frames import Event, Input, Progress


async def run(laptop: Laptop, line: str, input_id: str = "", **marked: object) -> str:
    """Send a command line, as the REPL does."""
    input_id = input_id or uuid.uuid4().hex
    await laptop.send(Input(laptop.epoch, input_id, user_message(line, **marked)))
    return input_id


async def over(laptop: Laptop) -> None:
    await laptop.next(Event, lambda event: event.kind == "turn_end")


def told(laptop: Laptop) -> str:
    """What clients were shown of messages."""
    return "\n".join(json.dumps(event.body) for event in laptop.events if event.kind == "message")


def text_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""


async def test_it_runs_unasked_and_the_model_reads_it_later_and_a_text_alone_runs_nothing(
    host: WorkerHost, session: str
) -> None:
    laptop = await host.drive(session)
    assert SHELL_COMMAND in laptop.hello.capabilities
    await run(laptop, "! touch made; echo from the host; cd /", shell_command=True)
    await over(laptop)
    assert (host.project / "made").exists()
    assert "from the host" in told(laptop)
    messages = json.dumps((await laptop.sent("what did I run?", says("You made it.", "msg_a")))["messages"])
    assert "what did I run?" in messages, "the model was not called for the command line alone"
    assert "<bash-input>touch made; echo from the host; cd /</bash-input>" in messages
    assert "from the host" in messages.partition("<bash-stdout>")[2]
    await laptop.begin("! touch unmade", says("I see.", "msg_b"))
    await over(laptop)
    assert not (host.project / "unmade").exists()


async def test_its_live_output_has_an_id_of_its_own_and_an_interrupt_ends_all_it_started(
    host: WorkerHost, session: str
) -> None:
    laptop = await host.drive(session)
    await run(laptop, "! echo begun; while [ ! -e go ]; do sleep 0.1; done; echo over", shell_command=True)
    seen = await laptop.next(Progress, lambda frame: "begun" in str(frame.body.get("output")))
    assert str(seen.body["tool_use_id"]).startswith(SHELL_CALL) and "over" not in told(laptop)
    (host.project / "go").touch()
    await over(laptop)
    assert "over" in told(laptop)
    await run(laptop, "! echo $$ > pid; sleep 600 & sleep 600", shell_command=True)
    await until(lambda: bool(text_of(host.project / "pid")), "the start of the command")
    pid = int(text_of(host.project / "pid"))
    await laptop.control("interrupt")
    await over(laptop)
    await until(lambda: not Path(f"/proc/{pid}").exists(), "the end of the command")


async def test_it_runs_once_when_its_worker_dies_and_the_client_sends_it_again(host: WorkerHost, session: str) -> None:
    laptop = await host.drive(session)
    sent = await run(laptop, "! echo once >> count; sleep 600", shell_command=True)
    await until(lambda: bool(text_of(host.project / "count")), "the start of the command")
    await host.kill_worker(laptop.hello.pid)
    again = await host.drive(session)
    await run(again, "! echo once >> count; sleep 600", sent, shell_command=True)
    await run(again, "! echo twice >> count", shell_command=True)
    await until(lambda: "twice" in text_of(host.project / "count"), "the second command")
    assert text_of(host.project / "count") == "once\ntwice\n"
