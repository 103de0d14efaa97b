"""The slash commands about a session, in clients that have no screen of ccb, with a real worker."""

from __future__ import annotations

import json
from typing import Any

from tests.features.extensions.test_hooks import hooks, options
from tests.remote.agent_kit import says
from tests.remote.worker_process import Laptop, WorkerHost

from ccb.tunnel.wire.session_options import SessionOptions

Json = dict[str, Any]


async def told(laptop: Laptop, command: str) -> str:
    """Return what a command prints. The model is not called: it would be waited for."""
    result = await laptop.turn(command)
    assert (result["subtype"], result["num_turns"]) == ("success", 0), result
    return str(result["result"])


async def test_what_fills_the_context_is_told_without_the_model(host: WorkerHost, session: str) -> None:
    (host.project / "CLAUDE.md").write_text("Say please.\n" * 2000)
    laptop = await host.drive(session, SessionOptions(model="sonnet"))
    picture = await told(laptop, "/context")
    shown = {line.split()[1]: line.split()[-3] for line in picture.splitlines() if line.endswith("%")}
    assert shown["System"] != "0" and shown["Instructions"] != "0", "what the first turn will send is shown before it"
    await laptop.say("hello")
    await laptop.tell(says("hi"))
    assert (await laptop.message("result"))["num_turns"] == 1


async def test_a_command_of_the_laptop_is_refused_with_a_word_and_others_are_text(
    host: WorkerHost, session: str
) -> None:
    laptop = await host.drive(session)
    for name in ("/vim", "/theme dark", "/mode bypassPermissions", "/quit"):
        assert "belongs to the screen of ccb" in await told(laptop, name)
    for name in ("/cost", "/help", "/mcp", "/model opus", "/status"):  # from a laptop that does not answer them itself
        assert "the one there is too old" in await told(laptop, name)
    assert "/nosuch thing" in json.dumps((await laptop.sent("/nosuch thing", says("no")))["messages"])


async def test_a_conversation_that_is_cleared_ends_and_starts_for_hooks(host: WorkerHost, session: str) -> None:
    note = 'cat >> said; echo "the house rules"'
    laptop = await host.drive(session, options(hooks(SessionStart=note, SessionEnd=("clear", "cat >> said"))))
    assert "the house rules" in json.dumps((await laptop.sent("one", says("1")))["messages"])
    assert await told(laptop, "/clear") == ""
    said = [json.loads(line) for line in (host.project / "said").read_text().splitlines()]
    events = [(each["hook_event_name"], each.get("source", each.get("reason"))) for each in said]
    assert events == [("SessionStart", "startup"), ("SessionEnd", "clear"), ("SessionStart", "clear")]
    await laptop.say("two")
    messages = json.dumps((await laptop.tell(says("2", "msg_2")))["messages"])
    assert "the house rules" in messages and '"one"' not in messages, "the model has forgotten what they said"
