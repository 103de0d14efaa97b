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


async def test_added_directories_outlive_the_worker_a_change_of_the_cage_and_another_client(
    host: WorkerHost, session: str
) -> None:
    library, lent, other = (host.project.parent / name for name in ("my lib", "lent", "other"))
    for each in (library, lent, other):
        each.mkdir()
        (each / "notes.txt").write_text(f"of {each.name}")
    laptop = await host.drive(session, SessionOptions(add_dirs=["../gone"], permission_prompts="stdio"))
    warned = (await laptop.message("system", "informational"))["content"]
    assert f"there is no directory {host.project.parent}/gone on the host. Create it: mkdir -p" in warned
    refused = (await laptop.request("add_directory", path="../no ne"))["error"]
    assert f"Create it: mkdir -p '{host.project.parent}/no ne'" in refused
    answer = await laptop.request("add_directory", path="../my lib")
    assert answer.get("response") == {"path": str(library)}, answer
    read = calls(("t1", "Read", {"file_path": str(library / "notes.txt")}))
    await laptop.say("Read it.")
    assert f"lets you work in {library}" in json.dumps((await laptop.tell(read))["messages"])
    await laptop.tell(calls(("t2", "Read", {"file_path": str(lent / "notes.txt")}), message_id="m2"))
    asked = await laptop.message("control_request")
    grant = {"type": "addDirectories", "directories": [str(lent)], "destination": "session"}
    await laptop.reply(asked["request_id"], {"behavior": "allow", "updatedPermissions": [grant]})
    await laptop.tell(says("Milk.", "m3"))
    await laptop.message("result")
    assert (await laptop.request("set_sandbox", sandbox="read-only"))["subtype"] == "success"
    await laptop.drop()
    laptop = await host.drive(session, SessionOptions(add_dirs=[str(other)]))
    await laptop.drop()
    os.kill(laptop.hello.pid, signal.SIGKILL)
    await until(lambda: not alive(laptop.hello.pid), "the worker is gone")
    laptop = await host.drive(session, SessionOptions())
    for number, each in enumerate((library, lent, other), start=4):
        await laptop.say("Again.")
        await laptop.tell(
            calls((f"t{number}", "Read", {"file_path": str(each / "notes.txt")}), message_id=f"m{number}")
        )
        told = await laptop.tell(says("Read.", f"n{number}"))
        assert f"of {each.name}" in json.dumps(told["messages"][-1])
        await laptop.message("result")
