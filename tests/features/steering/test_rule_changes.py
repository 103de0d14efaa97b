"""Permission rules that the person adds and removes in a session, without a question."""

from __future__ import annotations

import os
import signal

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
