"""Agents of others in a session of the real worker: what clients see of them, and what survives what."""

from __future__ import annotations

import json
import shlex
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from tests.remote.agent_kit import Json
from tests.remote.worker_process import Laptop, WorkerHost, alive, until

from ccb.tunnel.wire.frames import Progress
from ccb.tunnel.wire.session_options import SessionOptions

_AGENT = Path(__file__).resolve().parents[2] / "support" / "acp_agent.py"


class Foreign:
    """A session in which the scripted agent works. `options` are words for it."""

    def __init__(self, host: WorkerHost, *options: str) -> None:
        self.host, self.session, self.log = host, str(uuid.uuid4()), host.home / "agent.log"
        self.command = shlex.join([sys.executable, str(_AGENT), str(self.log), *options])

    async def drive(self, *, have: int = 0, **options: Any) -> Laptop:
        given = {"permission_prompts": "stdio", "client": "alice@laptop pid 1 aa", **options}
        given = SessionOptions(foreign_agent=self.command, **given)
        return await self.host.drive(self.session, given, have=have)

    def notes(self, method: str) -> list[Json]:
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [each["params"] for each in lines if each.get("method") == method]

    def said(self) -> list[Json]:
        """The public messages in the journal, without those that only begin a turn."""
        bodies = [each["body"] for each in self.host.journal(self.session) if each["kind"] == "message"]
        return [each for each in bodies if each.get("subtype") != "init"]


def blocks(messages: list[Json]) -> list[Json]:
    return [block for each in messages if each["type"] in ("assistant", "user") for block in each["message"]["content"]]


async def turn(laptop: Laptop, prompt: str) -> Json:
    await laptop.say(prompt)
    return await laptop.message("result")


async def test_what_an_agent_says_is_public_messages(host: WorkerHost) -> None:
    foreign = Foreign(host)
    laptop = await foreign.drive(partial_messages=True)
    result = await turn(laptop, "think:hm_well say:I_look plan terminal edit title:Mended say:all_done")
    print(result, foreign.log.read_text())
    assert (result["subtype"], result["result"], result["total_cost_usd"]) == ("success", "all done", 0.25)
    said = foreign.said()
    shown = [{name: value for name, value in block.items() if name in ("type", "text", "thinking", "name", "input")}
             for block in blocks(said) if block["type"] != "tool_result"]  # fmt: skip
    todos = [{"content": "look", "status": "completed", "activeForm": "look"},
             {"content": "mend", "status": "pending", "activeForm": "mend"}]  # fmt: skip
    edited = {"file_path": str(host.project / "a.py"), "old_string": "old", "new_string": "new"}
    assert shown == [
        {"type": "thinking", "thinking": "hm well"},
        {"type": "text", "text": "I look"},
        {"type": "tool_use", "name": "TodoWrite", "input": {"todos": todos}},
        {"type": "tool_use", "name": "Bash", "input": {"command": "touch made", "description": "touch made"}},
        {"type": "tool_use", "name": "Edit", "input": edited},
        {"type": "text", "text": "all done"},
    ]
    uses = [block["id"] for block in blocks(said) if block["type"] == "tool_use"]
    results = {block["tool_use_id"]: block for block in blocks(said) if block["type"] == "tool_result"}
    assert list(results) == uses
    assert results[uses[1]]["content"] == "Exit code 3\none\ntwo" and results[uses[1]]["is_error"]
    assert next(each["title"] for each in said if each.get("subtype") == "session_title_changed") == "Mended"
    live = [frame.body for frame in laptop.frames if isinstance(frame, Progress)]
    deltas = [each["event"].get("delta", {}) for each in live if each["type"] == "stream_event"]
    assert "".join(each["text"] for each in deltas if each.get("type") == "text_delta") == "I lookall done"
    assert [each["output"] for each in live if each["type"] == "tool_progress"][-1] == "one\ntwo\n"
    await laptop.end()
