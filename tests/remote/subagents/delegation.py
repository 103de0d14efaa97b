"""A whole session in this process, whose model is scripted for each agent: a request belongs to the agent whose prompt
holds the key of a script."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from tests.remote.agent_kit import Json, Reply, ScriptedTransport, calls, says

from ccb.remote.daemon.assembly import begin_session, resume_session
from ccb.remote.daemon.model_relay import ModelRelay
from ccb.remote.daemon.model_streams import ModelStreams
from ccb.remote.session.session import Session
from ccb.remote.session_store.client_outbox import ClientOutbox
from ccb.remote.session_store.journal import Journal
from ccb.remote.session_store.session_log import SessionLog
from ccb.remote.tools.toolset import close_context, make_context
from ccb.tunnel.wire.journal_records import MessageRecord, Record
from ccb.tunnel.wire.session_options import SessionOptions

SESSION = "6f1c1f5e-0000-4000-8000-000000000002"
MAIN, ONE, TWO = "main: ", "toolu_one", "toolu_two"


class ModelOfAgents:
    """Answers each call from the script whose key is in the first prompt of the request, and keeps the request."""

    def __init__(self, scripts: Mapping[str, Sequence[Reply]]) -> None:
        self._scripts = {key: ScriptedTransport(replies) for key, replies in scripts.items()}
        self.requests: dict[str, list[Json]] = {key: [] for key in scripts}
        self.open: set[str] = set()
        self.most_at_once = 0

    def link_up_since(self) -> float | None:
        return 0.0

    @asynccontextmanager
    async def request(
        self, call_id: str, method: str, path: str, headers: Mapping[str, str], body: Sequence[bytes]
    ) -> AsyncIterator[Reply]:
        whole: Json = json.loads(b"".join(body))
        first = json.dumps(whole["messages"][0])
        key = next(key for key in self._scripts if key in first)
        self.requests[key].append(whole)
        self.open.add(key)
        self.most_at_once = max(self.most_at_once, len(self.open))
        try:
            async with self._scripts[key].request(call_id, method, path, headers, body) as reply:
                yield reply
        finally:
            self.open.discard(key)


class Shown(ClientOutbox):
    """Keeps what a client is shown without a record."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal)
        self.bodies: list[Json] = []

    def progress(self, seq: int, key: str, body: Json) -> None:
        self.bodies.append(body)


@dataclass
class Delegation:
    """The session in `directory`."""

    session: Session
    journal: Journal
    model: ModelOfAgents
    shown: Shown

    async def turn(self, text: str) -> Json:
        """Run one turn of the main agent and return its result."""
        self.say(text)
        self.session.turns.finish()
        await asyncio.wait_for(self.session.turns.run(), 60)
        return self.messages("result")[-1]

    def say(self, text: str) -> None:
        body = {"type": "user", "message": {"role": "user", "content": text}, "parent_tool_use_id": None}
        self.session.take_input(f"i{self.journal.seq}", body)

    def records(self) -> list[Record]:
        return list(self.journal.read(0, self.journal.seq))

    def messages(self, kind: str, subtype: str = "", agent_id: str | None = None) -> list[Json]:
        """The public messages of a type, of one agent or of all."""
        return [
            record.body
            for record in self.records()
            if isinstance(record.content, MessageRecord)
            and record.body["type"] == kind
            and subtype in ("", record.body.get("subtype"))
            and agent_id in (None, record.agent_id)
        ]

    def printed(self, tool_use_id: str, text: str) -> bool:
        """Whether a running call has printed a text. The progress of its agent quotes the command, too."""
        mine = (each for each in self.shown.bodies if each.get("tool_use_id") == tool_use_id)
        return any(text in str(each.get("output")) for each in mine)

    def results(self, agent_id: str = "") -> dict[str, Json]:
        """The user messages with the tool results of an agent, by the id of the call. Each call has one."""
        found: dict[str, Json] = {}
        for message in self.messages("user", agent_id=agent_id):
            for block in message["message"]["content"]:
                if block["type"] == "tool_result":
                    assert block["tool_use_id"] not in found
                    found[block["tool_use_id"]] = message
        return found

    def result_text(self, tool_use_id: str, agent_id: str = "") -> str:
        return str(self.results(agent_id)[tool_use_id]["message"]["content"][0]["content"])


@asynccontextmanager
async def delegation(
    directory: Path, scripts: Mapping[str, Sequence[Reply]], **options: Any
) -> AsyncIterator[Delegation]:
    """Begin the session, or go on with it. It works in `directory`/project."""
    project = directory / "project"
    project.mkdir(parents=True, exist_ok=True)
    journal, model = Journal(str(directory / "journal.jsonl")), ModelOfAgents(scripts)
    shown = Shown(journal)
    context = make_context(str(project), "")
    host = (
        SessionLog(SESSION, journal, [shown], lambda: None),
        cast(ModelStreams, model),
        context,
        cast(ModelRelay, None),
    )
    if journal.seq:
        session, _ = resume_session(*host)
    else:
        session = begin_session(*host, SessionOptions(**{"permission_prompts": "stdio", **options}), {})
    try:
        yield Delegation(session, journal, model, shown)
    finally:
        await close_context(context)


@asynccontextmanager
async def worked(place: Path, *script: Reply, call: Json | None = None, **options: Any) -> AsyncIterator[Delegation]:
    """After a turn in which the main agent has started an agent by the call ONE, with a script of its own."""
    scripts = {MAIN: delegates(task(ONE, "edit it", **(call or {}))), "edit it": script}
    async with delegation(place, scripts, **options) as d:
        await d.turn(MAIN + "go")
        yield d


def task(tool_use_id: str, prompt: str, **fields: Any) -> tuple[str, str, Json]:
    """A call that starts an agent."""
    return tool_use_id, "Task", {"description": f"Do {prompt}", "prompt": prompt, **fields}


def delegates(*tasks: tuple[str, str, Json]) -> list[Reply]:
    """The main agent starts agents and is done when they are."""
    return [calls(*tasks, message_id="msg_main1"), says("All done.", "msg_main2")]
