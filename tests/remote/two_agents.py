"""Two agents in one session with a real journal, each with its own history, id, tools and model. Run as a program, it
starts a turn of both and waits in a tool of each to be killed."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from tests.remote.agent_kit import FixedPrompts, OpenPermissions, Reply, ScriptedTransport, calls, no_hooks, says

from ccb.remote.agent.agent import Agent
from ccb.remote.agent.agent_config import AgentConfig
from ccb.remote.agent.turn_state import Prompt
from ccb.remote.daemon.assembly import AgentFactory, close_open_tools, sdk_requests
from ccb.remote.daemon.model_streams import ModelStreams
from ccb.remote.session.client_setup import ClientSetup
from ccb.remote.session.recovery import restore, take_up
from ccb.remote.session.session import Session
from ccb.remote.session_store.client_outbox import ClientOutbox
from ccb.remote.session_store.journal import Journal
from ccb.remote.session_store.session_log import SessionLog
from ccb.remote.tools.tool_contract import Tool, ToolContext, ToolDeclaration, ToolResult
from ccb.remote.tools.toolset import Toolset, make_context
from ccb.tunnel.wire.journal_records import MAIN_AGENT, OptionsRecord
from ccb.tunnel.wire.session_options import SessionOptions
from ccb.tunnel.wire.tool_traits import Effect, ToolTraits

Json = dict[str, Any]

SESSION = "6f1c1f5e-0000-4000-8000-000000000001"
SECOND = "toolu_task"
MODELS = {MAIN_AGENT: "claude-sonnet-4-5", SECOND: "claude-haiku-4-5"}
TOOLS = {MAIN_AGENT: "Step", SECOND: "Probe"}
_OPTIONS = SessionOptions(permission_prompts="stdio")
_SCHEMA: Json = {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}


class Meeting:
    """Holds the first one who comes until the second is there."""

    def __init__(self) -> None:
        self._first = True
        self._both = asyncio.Event()

    async def join(self) -> None:
        if not self._first:
            self._both.set()
        self._first = False
        await self._both.wait()


class LoggedTool(Tool):
    """Appends the key of each call to a file. `meet` waits for the other agent, `stay` for ever."""

    def __init__(self, name: str, ran: Path, meeting: Meeting) -> None:
        self.declaration = ToolDeclaration(ToolTraits(name, Effect.WRITE), "A tool for tests.", _SCHEMA)
        self._ran = ran
        self._meeting = meeting

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        key = str(tool_input["key"])
        with self._ran.open("a") as file:
            file.write(f"{self.name} {key}\n")
        context.call.progress({"output": key, "total_bytes": len(key), "elapsed_seconds": 0})
        if key == "meet":
            await self._meeting.join()
        elif key == "stay":
            await asyncio.Event().wait()
        return ToolResult(f"did {key}")


class ModelRouter:
    """Answers each model call from the script of its model, and keeps the request."""

    def __init__(self, directory: Path, scripts: Mapping[str, Sequence[Reply]]) -> None:
        self._directory = directory
        self._scripted = {MODELS[agent_id]: ScriptedTransport(replies) for agent_id, replies in scripts.items()}

    def link_up_since(self) -> float | None:
        return 0.0

    @asynccontextmanager
    async def request(
        self, call_id: str, method: str, path: str, headers: Mapping[str, str], body: Sequence[bytes]
    ) -> AsyncIterator[Reply]:
        whole = b"".join(body)
        model = str(json.loads(whole)["model"])
        with (self._directory / f"requests-{model}").open("ab") as file:
            file.write(whole + b"\n")
        async with self._scripted[model].request(call_id, method, path, headers, body) as reply:
            yield reply


class Shown(ClientOutbox):
    """Keeps what a client is shown without a record."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal)
        self.bodies: list[Json] = []

    def progress(self, seq: int, key: str, body: Json) -> None:
        self.bodies.append(body)


@dataclass
class TwoAgents:
    """The session in `directory`, with its agents."""

    directory: Path
    shown: Shown
    journal: Journal
    session: Session
    main: Agent
    second: Agent

    @staticmethod
    def open(directory: Path, scripts: Mapping[str, Sequence[Reply]]) -> TwoAgents:
        """Begin the session, or go on with it."""
        journal, meeting = Journal(str(directory / "journal.jsonl")), Meeting()
        shown = Shown(journal)
        router = cast(ModelStreams, ModelRouter(directory, scripts))
        context = make_context(str(directory), "")
        if not journal.seq:
            journal.append(OptionsRecord(_OPTIONS.to_json(), SESSION))
        restored = restore(SessionLog(SESSION, journal, [shown], lambda: None))
        permissions, histories = OpenPermissions(), restored.histories
        factory = AgentFactory(restored.parts, router, "9.9.9", no_hooks(restored.parts.log, permissions))
        close_open_tools(restored.parts.log, histories)

        def agent(agent_id: str) -> Agent:
            config = AgentConfig(
                prompts=FixedPrompts(f"You are {agent_id or 'the main agent'}."),
                tools=Toolset([LoggedTool(TOOLS[agent_id], directory / "ran", meeting)]),
                permissions=permissions,
                context=replace(context, add_dirs=[]),
                model=MODELS[agent_id],
                take_queued=restored.parts.inputs.take_all,
            )
            return factory.agent(config, histories.of(agent_id))

        main, second = agent(MAIN_AGENT), agent(SECOND)
        session = take_up(restored, main, ClientSetup(main, restored.parts.broker, print), sdk_requests)
        return TwoAgents(directory, shown, journal, session, main, second)

    async def turn(self, text: str, input_id: str) -> Json:
        """Run a turn of both agents at the same time. Return the result of the second."""
        body = {"type": "user", "message": {"role": "user", "content": text}, "parent_tool_use_id": None}
        self.session.take_input(input_id, body)
        self.session.turns.finish()
        prompt = Prompt([{"type": "text", "text": f"second: {text}"}])
        _, result = await asyncio.gather(self.session.turns.run(), self.second.run_turn([prompt]))
        await self.session.log.commit()
        return result

    def requests(self, agent_id: str) -> list[bytes]:
        """The bodies of the model calls of one agent, in order, over all runs."""
        return (self.directory / f"requests-{MODELS[agent_id]}").read_bytes().splitlines()


def until_cut(agent_id: str, tag: str) -> list[Reply]:
    """An agent that meets the other one in its first tool, stays in the second, and has a third waiting behind it."""
    name = TOOLS[agent_id]
    return [
        calls((f"{tag}1", name, {"key": "meet"}), message_id=f"msg_{tag}1"),
        calls((f"{tag}2", name, {"key": "stay"}), (f"{tag}3", name, {"key": "after"}), message_id=f"msg_{tag}2"),
    ]


def afterwards(agent_id: str, tag: str) -> list[Reply]:
    """An agent that calls one more tool and is done."""
    return [
        calls((f"{tag}4", TOOLS[agent_id], {"key": "meet"}), message_id=f"msg_{tag}3"),
        says(f"{tag} is done", f"msg_{tag}4"),
    ]


async def run_until_killed(directory: Path) -> None:
    scripts = {MAIN_AGENT: until_cut(MAIN_AGENT, "m"), SECOND: until_cut(SECOND, "s")}
    await TwoAgents.open(directory, scripts).turn("go", "i1")


if __name__ == "__main__":
    asyncio.run(run_until_killed(Path(sys.argv[1])))
