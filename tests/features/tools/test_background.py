"""Commands in the background: the model is told once when one ends, also while it is idle and after a crash."""

from __future__ import annotations

import json
from pathlib import Path

from tests.remote.agent_kit import Reply, calls, content, says
from tests.remote.worker_process import Laptop, WorkerHost, until
from tests.support.model.model_script import Json
from tests.support.person.laptop import user_message

from ccb.tunnel.wire.frames import OUTPUT, Event, Input, OutputRead, ReadOutput
from ccb.tunnel.wire.session_options import SessionOptions

_ALLOWED = SessionOptions(allowed_tools=["Bash"])
_UNTIL_GO = "while [ ! -e go ]; do sleep 0.02; done; echo gone"


async def answer(laptop: Laptop, reply: Reply) -> str:
    """Answer the next model call. Return the last message of its request as text."""
    return json.dumps((await laptop.tell(reply))["messages"][-1])


async def start_task(laptop: Laptop, command: str = _UNTIL_GO, number: int = 1) -> Json:
    """Let the model start a background command and end its turn. Return the public message of its start."""
    await laptop.turn(
        "go",
        calls((f"toolu_{number}", "Bash", {"command": command, "run_in_background": True})),
        says("it runs", f"msg_started_{number}"),
    )
    return news(laptop, "task_started")[-1]


def news(laptop: Laptop, subtype: str) -> list[Json]:
    """The public messages of type `system` that have come."""
    return [each.body for each in laptop.events if each.kind == "message" and each.body.get("subtype") == subtype]


def told(host: WorkerHost, session: str) -> list[str]:
    """The prompts in the journal that took a notice."""
    items = [item for line in host.journal(session) if line["kind"] == "prompt" for item in line["body"]["items"]]
    return [item["input"] for item in items if item["input"].startswith("task:")]


async def test_the_end_of_a_task_starts_a_turn_of_the_idle_agent(host: WorkerHost, session: str) -> None:
    laptop = await host.drive(session, _ALLOWED)
    started = await start_task(laptop)
    assert (started["task_id"], started["tool_use_id"], started["task_type"]) == ("bash_1", "toolu_1", "local_bash")
    (host.project / "go").touch()
    seen = await answer(laptop, says("it ended", "msg_3"))
    ended = news(laptop, "task_notification")
    assert [(each["status"], each["task_id"]) for each in ended] == [("completed", "bash_1")]
    assert len(news(laptop, "init")) == 2
    assert "<task-notification>" in seen and "<status>completed</status>" in seen and started["output_file"] in seen
    result = await laptop.message("result")
    assert (result["result"], result["origin"]["kind"]) == ("it ended", "task-notification")
    assert told(host, session) == ["task:bash_1"]
    listed = (await laptop.request("rewind_points"))["response"]["points"]
    assert [each["text"] for each in listed] == ["go"], "nobody has written the notice"


async def test_the_output_of_a_task_is_read_without_a_trace_in_the_journal(host: WorkerHost, session: str) -> None:
    laptop = await host.drive(session, _ALLOWED)
    assert OUTPUT in laptop.hello.capabilities
    await start_task(laptop, f"seq 1 40000; printf begun; {_UNTIL_GO}")
    viewer = await host.connect(session)
    await viewer.attach(role="viewer")

    async def read(number: int, after: int, most: int = 20, before: int | None = None) -> Json:
        await viewer.send(ReadOutput(viewer.epoch, number, "bash_1", after, most, before))
        return (await viewer.next(OutputRead, lambda frame: frame.request == number)).body

    number, newest = 1, await read(1, 0)
    while newest["begun"] != "begun":
        number, newest = number + 1, await read(number + 1, 0)
    size = sum(len(f"{each}\n") for each in range(1, 40001))
    assert newest["status"] == "running" and newest["seconds"] > 0
    assert (newest["next"], newest["text"].splitlines()[-1]) == (size, "40000")
    assert (await read(100, 0, 12, before=6))["text"] == "1\n2\n3\n"
    (host.project / "go").touch()
    await answer(laptop, says("it ended", "msg_3"))
    ended = await read(101, size)
    assert (ended["status"], ended["start"], ended["text"], ended["begun"]) == ("completed", size, "begungone\n", "")
    await viewer.send(ReadOutput(viewer.epoch, 102, "bash_9", 0, 20))
    assert (await viewer.next(OutputRead, lambda frame: frame.request == 102)).body == {}
    assert [event.kind for event in laptop.events].count("input") == 1


async def test_the_end_of_a_task_joins_a_running_turn(host: WorkerHost, session: str) -> None:
    laptop = await host.drive(session, _ALLOWED)
    await start_task(laptop)
    await laptop.say("more")
    journalled = "../.local/state/ccb/sessions/*/journal.jsonl"
    command = f"touch go; while ! grep -q '\"queued\",' {journalled}; do sleep 0.02; done"
    await laptop.tell(calls(("toolu_2", "Bash", {"command": command}), message_id="msg_3"))
    seen = await answer(laptop, says("both", "msg_4"))
    assert "toolu_2" in seen and "<task-notification>" in seen
    result = await laptop.message("result")
    assert "origin" not in result


async def test_a_notice_waits_while_the_person_is_asked(host: WorkerHost, session: str) -> None:
    laptop = await host.connect(session)
    (host.project / "wait.sh").write_text(_UNTIL_GO)
    await laptop.attach(SessionOptions(permission_prompts="stdio", allowed_tools=["Bash(sh wait.sh)"]))
    await start_task(laptop, "sh wait.sh")
    await laptop.begin("more", calls(("toolu_2", "Bash", {"command": "touch made"}), message_id="msg_3"))
    asked = await laptop.message("control_request")
    (host.project / "go").touch()
    await laptop.message("system", "task_notification")
    assert told(host, session) == []
    refusal = {"behavior": "deny", "message": "no"}
    await laptop.reply(asked["request_id"], refusal)
    assert "<task-notification>" in await answer(laptop, says("well", "msg_4"))
    await laptop.message("result")


async def test_a_worker_that_is_killed_tells_once_that_its_task_is_gone(host: WorkerHost, session: str) -> None:
    first = await host.drive(session, _ALLOWED)
    await start_task(first)
    await first.kill()
    second = await host.drive(session, have=first.last_seq)
    assert "<status>killed</status>" in await answer(second, says("a pity", "msg_3"))
    ended = news(second, "task_notification")
    assert [(each["status"], each["task_id"]) for each in ended] == [("stopped", "bash_1")]
    await second.message("result")
    await second.kill()
    third = await host.drive(session, have=second.last_seq)
    started = await start_task(third, number=2)
    assert started["task_id"] == "bash_2"  # an id is never used twice
    assert told(host, session) == ["task:bash_1"]


async def test_a_stopped_session_tells_with_the_next_prompt_what_it_ended(host: WorkerHost, session: str) -> None:
    first = await host.drive(session, _ALLOWED)
    await start_task(first)
    await first.stop()
    second = await host.drive(session, have=first.last_seq)
    seen = str((await second.sent("and now?", says("well", "msg_3")))["messages"][-1])
    assert seen.index("<status>killed</status>") < seen.index("and now?")
    assert told(host, session) == ["task:bash_1"]


async def test_a_killed_task_is_not_told_again(host: WorkerHost, session: str) -> None:
    laptop = await host.drive(session, _ALLOWED)
    await start_task(laptop)
    await laptop.begin("end it", calls(("toolu_2", "KillShell", {"shell_id": "bash_1"}), message_id="msg_3"))
    assert "<task-notification>" not in await answer(laptop, says("done", "msg_4"))
    assert [each["status"] for each in news(laptop, "task_notification")] == ["stopped"]
    await laptop.message("result")
    assert told(host, session) == []


async def test_a_command_that_runs_on_goes_to_the_background(host: WorkerHost, session: str) -> None:
    laptop = await host.drive(session, SessionOptions(allowed_tools=["Bash"], background_after_ms=200))
    await laptop.begin("go", calls(("toolu_1", "Bash", {"command": f"echo begun; {_UNTIL_GO}"})))
    seen = await answer(laptop, says("I wait", "msg_2"))
    assert "takes longer than 0.2 s" in seen and "ID: bash_1" in seen and "begun" in seen
    await laptop.message("result")
    (host.project / "go").touch()
    assert "<status>completed</status>" in await answer(laptop, says("it ended", "msg_3"))
    (started,) = news(laptop, "task_started")
    output = Path(started["output_file"])
    assert output.read_text() == "begun\ngone\n"
    assert [each.name for each in output.parent.iterdir()] == [output.name]


async def test_the_person_moves_the_running_command_to_the_background(host: WorkerHost, session: str) -> None:
    laptop = await host.drive(session, _ALLOWED)
    await laptop.begin("go", calls(("toolu_1", "Bash", {"command": _UNTIL_GO})))
    await laptop.next(Event, lambda event: event.kind == "tool_start")
    await laptop.control("background_tasks")
    assert "It goes on in the background with ID: bash_1" in await answer(laptop, says("I wait", "msg_2"))
    await laptop.message("result")
    asked = await laptop.control("stop_task", task_id="bash_1")
    assert "<status>killed</status>" in await answer(laptop, says("a pity", "msg_3"))
    assert answers(laptop)[asked]["subtype"] == "success"
    await laptop.message("result")
    again = await laptop.control("stop_task", task_id="bash_1")
    await laptop.message("control_response")
    assert "not running" in answers(laptop)[again]["error"]


def answers(laptop: Laptop) -> dict[str, Json]:
    """The answers to the requests of this client."""
    lines = [each.body for each in laptop.events if each.body.get("type") == "control_response"]
    return {line["response"]["request_id"]: line["response"] for line in lines}


async def test_a_prompt_is_taken_back_before_a_turn_takes_it(host: WorkerHost, session: str) -> None:
    laptop = await host.drive(session, _ALLOWED)
    await laptop.say("go")
    opened, _ = await laptop.call()
    await laptop.send(Input(laptop.epoch, "i2", user_message("never mind", uuid="u-2")))
    await laptop.send(Input(laptop.epoch, "i3", user_message("but this", uuid="u-3")))
    asked = await laptop.control("cancel_async_message", message_uuid="u-2")
    late = await laptop.control("cancel_async_message", message_uuid="u-1")
    await laptop.next(Event, lambda event: event.body.get("response", {}).get("request_id") == late)
    assert answers(laptop)[asked]["response"] == {"cancelled": True}
    assert answers(laptop)[late]["response"] == {"cancelled": False}
    await laptop.answer(opened, content(says("first")))
    opened, body = await laptop.call()
    assert "but this" in body.decode() and "never mind" not in body.decode()
    await laptop.kill()
    second = await host.drive(session, have=laptop.last_seq)
    await second.say("and now?")
    opened, body = await second.call()
    assert "never mind" not in body.decode()


async def test_a_notice_waits_for_somebody_through_whom_the_model_can_be_called(host: WorkerHost, session: str) -> None:
    first = await host.drive(session, _ALLOWED)
    await start_task(first)
    await first.drop()
    (host.project / "go").touch()
    await until(lambda: any(line["kind"] == "queued" for line in host.journal(session)), "the task has ended")
    assert told(host, session) == []
    second = await host.connect(session)
    assert (await second.attach(have=first.last_seq)).state == "idle"
    assert "<status>completed</status>" in await answer(second, says("it ended", "msg_3"))
    await second.message("result")
    assert told(host, session) == ["task:bash_1"]
