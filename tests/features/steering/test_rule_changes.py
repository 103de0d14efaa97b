"""Permission rules and directories that the person adds in a session, without a question."""

from __future__ import annotations

import json
import os
import signal

from tests.remote.agent_kit import calls, says
from tests.remote.worker_process import WorkerHost, alive, until
from tests.support.model.model_script import Json

from ccb.tunnel.wire.session_options import SessionOptions


def change(kind: str, rule: str, destination: str = "session") -> Json:
    tool, _, content = rule.partition("(")
    rules = [{"toolName": tool, **({"ruleContent": content[:-1]} if content else {})}]
    return {"type": kind, "behavior": "allow", "rules": rules, "destination": destination}


async def test_rules_are_added_and_removed_and_outlive_the_worker(host: WorkerHost, session: str) -> None:
    laptop = await host.drive(session, SessionOptions())

    async def rules() -> set[tuple[str, str]]:
        state = (await laptop.request("list_permission_rules"))["response"]["state"]
        return {(each["rule"], each["source"]) for each in state["rules"]}

    for update in (change("addRules", "Bash(make *)"), change("addRules", "Edit", "localSettings")):
        assert (await laptop.request("change_permission_rules", updates=[update]))["subtype"] == "success"
    assert await rules() == {("Bash(make *)", "session"), ("Edit", "localSettings")}
    denied = await laptop.request("change_permission_rules", updates=[{"type": "setMode", "mode": "bypassPermissions"}])
    assert denied["subtype"] == "error" and "addRules and removeRules" in denied["error"]
    wrong = await laptop.request("change_permission_rules", updates=[change("addRules", "Bash( )")])
    assert wrong["subtype"] == "error"
    await laptop.request("change_permission_rules", updates=[change("removeRules", "Edit", "localSettings")])
    await laptop.drop()
    os.kill(laptop.hello.pid, signal.SIGKILL)
    await until(lambda: not alive(laptop.hello.pid), "the worker is gone")
    laptop = await host.drive(session, SessionOptions())
    assert await rules() == {("Bash(make *)", "session")}


async def test_a_directory_is_added_and_outlives_the_worker(host: WorkerHost, session: str) -> None:
    library = host.project.parent / "my lib"
    library.mkdir()
    (library / "notes.txt").write_text("remember the milk")
    laptop = await host.drive(session, SessionOptions())
    assert "there is no directory" in (await laptop.request("add_directory", path="../none"))["error"]
    answer = await laptop.request("add_directory", path="../my lib")
    assert answer.get("response") == {"path": str(library)}, answer
    read = calls(("t1", "Read", {"file_path": str(library / "notes.txt")}))
    await laptop.say("Read it.")
    assert f"lets you work in {library}" in json.dumps((await laptop.tell(read))["messages"])
    assert "remember the milk" in json.dumps((await laptop.tell(says("Milk.", "m2")))["messages"])
    await laptop.message("result")
    await laptop.drop()
    os.kill(laptop.hello.pid, signal.SIGKILL)
    await until(lambda: not alive(laptop.hello.pid), "the worker is gone")
    laptop = await host.drive(session, SessionOptions())
    await laptop.say("Again.")
    await laptop.tell(calls(("t2", "Bash", {"command": f"cat '{library}/notes.txt'"}), message_id="m3"))
    assert json.dumps((await laptop.tell(says("Milk.", "m4")))["messages"][-1]).count("remember the milk") == 1
    await laptop.message("result")
