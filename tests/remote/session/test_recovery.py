"""A worker that was killed and starts again: what was open is closed once and for all, and nothing runs twice."""

from __future__ import annotations

import fcntl
import functools
import json
import shutil

from tests.remote.agent_kit import calls, says
from tests.remote.worker_process import WorkerHost, alive, until

from ccb.tunnel.wire.frames import Event
from ccb.tunnel.wire.session_options import SessionOptions


def _is_input(input_id: str, event: Event) -> bool:
    return event.kind == "input" and bool(event.body["id"] == input_id)


async def test_a_turn_that_was_cut_gets_its_one_result(host: WorkerHost, session: str) -> None:
    first = await host.drive(session)
    await first.opened("go")
    await first.kill()
    second = await host.drive(session)
    result = await second.message("result")
    assert result["subtype"] == "error_during_execution"
    assert "stopped in the middle" in result["errors"][0]
    await second.kill()
    third = await host.drive(session)
    await third.begin("and now?", says("now it works"))
    await third.next(Event, lambda event: event.kind == "turn_end" and event.seq > second.hello.seq + 3)
    results = [r["body"] for r in host.journal(session) if r["body"].get("type") == "result"]
    assert [each["subtype"] for each in results] == ["error_during_execution", "success"]
    kinds = [r["kind"] for r in host.journal(session)]
    assert kinds.count("turn_start") == kinds.count("turn_end") == 2


async def test_the_files_and_processes_that_a_killed_worker_has_left_are_removed(
    host: WorkerHost, session: str
) -> None:
    first = await host.drive(session, SessionOptions(allowed_tools=["Write", "Bash"]))
    written = host.project / "deep" / "written"
    write = ("toolu_1", "Write", {"file_path": str(written), "content": "x"})
    command = "trap - TERM; echo $$ > pid; touch started; sleep 600"
    await first.begin("go", calls(write, ("toolu_2", "Bash", {"command": command})))
    await until((host.project / "started").exists, "the file is written, and the command has started")
    await first.kill()
    pid = int((host.project / "pid").read_text())
    assert alive(pid)
    names = (".ccb-0123456789abcdef", ".ccb-00000000000000ff", ".ccb-of-somebody", ".ccb-0123456789abcde")
    left, used, *others = [written.with_name(name) for name in names]
    at_the_top, outputs = host.project / left.name, host.state(session) / "outputs"
    for path in (left, used, at_the_top, *others):
        path.write_text("half")
    (outputs / f".{first.hello.pid}-9-cwd").touch()  # where a shell says at its end which directory it is in
    (outputs / "0009-bash").touch()
    with used.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # as the worker that writes it does
        await host.drive(session)
        await until(lambda: not left.exists() and not at_the_top.exists(), "they are removed")
        assert [path.exists() for path in (written, used, *others)] == [True] * 4
    await until(lambda: not alive(pid), "the process of the dead worker has ended")
    await until(lambda: [path.name for path in outputs.iterdir()] == ["0009-bash"], "the small files are gone")


async def test_the_person_s_order_of_waiting_prompts_outlives_the_worker(host: WorkerHost, session: str) -> None:
    first = await host.drive(session)
    assert "move_async_message" in first.hello.capabilities
    await first.opened("running")
    for each in ("b", "c", "d"):
        await first.say(each, input_id=each)
    for subtype, fields, said in (
        ("move_async_message", {"message_uuid": "d", "before": ["gone", "b", "c"]}, {"moved": True}),
        ("move_async_message", {"message_uuid": "running", "before": []}, {"moved": False}),
        ("cancel_async_message", {"message_uuid": "b"}, {"cancelled": True}),
    ):
        assert (await first.request(subtype, **fields))["response"] == said
    for _ in range(2):  # as after a reconnect: the same input comes again
        await first.say("b, edited", "b2", before=["b", "c"])
    assert (await first.request("move_async_message", message_uuid="c", before=[]))["response"] == {"moved": True}
    await first.kill()
    second = await host.drive(session)
    taken = []
    for number in range(3):
        request = await second.tell(says("done", f"msg_{number}"))
        taken.append(request["messages"][-1]["content"][-1]["text"])
    assert taken == ["d", "b, edited", "c"]
    moved = [(record["body"]["id"], record["body"].get("before", "")) for record in host.journal(session)
             if record["kind"] == "moved"]  # fmt: skip
    assert moved == [("d", "b"), ("b2", "c"), ("c", "")]


async def test_what_steers_goes_with_the_next_tool_results_once_and_the_rest_waits(
    host: WorkerHost, session: str
) -> None:
    first = await host.drive(session, SessionOptions(allowed_tools=["Bash"]))
    assert "steer" in first.hello.capabilities
    await first.opened("go")
    for text in ("queued", "promoted", "promoted then", "steers"):
        await first.say(text, text, uuid=text, **({} if text == "steers" else {"priority": "later"}))
        await first.next(Event, functools.partial(_is_input, text))
    await first.request("move_async_message", message_uuid="promoted", before=["queued"], steer=True)
    again = await host.drive(session)  # the connection is lost, and the same input comes once more
    await again.say("steers", "steers")
    await again.answers(calls(("toolu_1", "Bash", {"command": "true"})))
    _, body = await again.call()
    last = json.loads(body)["messages"][-1]["content"]
    assert [block["type"] for block in last] == ["tool_result", "text", "text"]
    assert [block["text"] for block in last[1:]] == ["steers", "promoted"]
    await again.request("move_async_message", message_uuid="promoted then", before=["queued"], steer=True)
    await again.kill()
    second = await host.drive(session)
    _, body = await second.call()
    assert json.loads(body)["messages"][-1]["content"][-1]["text"] == "promoted then", "it comes before what waits"
    assert body.count(b'"steers"') == body.count(b'"promoted"') == 1


async def test_the_session_goes_on_where_it_worked_unless_another_directory_is_chosen_or_it_is_gone(
    host: WorkerHost, session: str
) -> None:
    (host.home / "elsewhere").mkdir()
    first = await host.drive(session)
    await first.next(Event)
    await first.stop()
    second = await host.drive(session, cwd="~/elsewhere")
    assert second.hello.cwd == str(host.project)
    await second.stop()
    third = await host.drive(session, cwd="~/elsewhere", named=True)
    assert third.hello.cwd == str(host.home / "elsewhere")
    await third.stop()
    shutil.rmtree(host.home / "elsewhere")
    for cwd, missing in (("", "elsewhere"), ("~/missing", "missing")):
        refused = await host.refused(session, cwd)
        assert (refused.code, refused.data["path"]) == ("no_such_path", str(host.home / missing))
    assert (host.state(session) / "journal.jsonl").exists()
    assert (await host.greeted(session)).cwd == str(host.project)
