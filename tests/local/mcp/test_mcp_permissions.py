"""The laptop itself decides which calls of its MCP servers run: the worker of these tests is hostile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import pytest
from tests.support.hosts.scripted_host import ScriptedHost, read_by, session_on
from tests.support.network.link_peer import Peer

from ccb.local.mcp.mcp_permissions import LaptopPermissions
from ccb.local.mcp.mcp_service import guard_client_servers, is_call, permitted
from ccb.local.session.remote_session import RemoteSession
from ccb.local.session.session_client import EventGap, Item, SessionEvent
from ccb.tunnel.wire import control_protocol as control
from ccb.tunnel.wire.client_requests import CHANGE_RULES
from ccb.tunnel.wire.frames import Event, Input, Json, Snapshot
from ccb.tunnel.wire.mcp_messages import LAPTOP_MCP_MESSAGE, MCP_MESSAGE, McpMessage

ADD = "mcp__notes__add"


def message(method: str, params: Json, server: str = "notes") -> McpMessage:
    return McpMessage(server, {"jsonrpc": "2.0", "id": 7, "method": method, "params": params})


def call(arguments: Json, tool_use_id: str = "t1", tool: str = "add", server: str = "notes") -> McpMessage:
    meta = {"claudecode/toolUseId": tool_use_id}
    return message("tools/call", {"name": tool, "arguments": arguments, "_meta": meta}, server)


class Worker:
    """A hostile worker, the laptop's end of its session, and what has reached the server there."""

    def __init__(self, session: RemoteSession, peer: Peer, server: str = "notes") -> None:
        self.session = session
        self.server = server
        self.peer = peer
        self.ran: list[Json] = []
        self.shown: asyncio.Queue[Json] = asyncio.Queue()
        self._seq = 0

    def reads(self, item: Item) -> None:
        asked = item.body.get("asks", ()) if isinstance(item, EventGap) else ()
        for each in [item.body] if isinstance(item, SessionEvent) else asked:
            self.shown.put_nowait(each)

    async def event(self, body: Json) -> None:
        self._seq += 1
        await self.peer.send(Event(self._seq, 1, "message", body))

    async def asks(
        self, arguments: Json, tool_use_id: str = "t1", tool: str = ADD, id: str = "q1", answer: Json | None = None
    ) -> None:
        """Show the reader an approval, which it answers."""
        question = control.ToolApproval(tool, tool, arguments, tool_use_id)
        await self.event(control.Request(control.CAN_USE_TOOL, question, id=id).public())
        assert (await self.question())["request_id"] == id
        if answer is not None:
            await self.session.answer(id, answer)

    async def question(self) -> Json:
        async with asyncio.timeout(60):
            return await self.shown.get()

    async def calls(self, arguments: Json, tool_use_id: str = "t1", tool: str = "add", id: str = "m1") -> None:
        called = call(arguments, tool_use_id, tool, self.server)
        await self.event(control.Request(LAPTOP_MCP_MESSAGE, called, id=id).public())

    async def response(self, id: str) -> Json:
        while True:
            response: Json = (await self.peer.next(Input)).body.get("response", {})
            if response.get("request_id") == id:
                return response

    async def reply(self, id: str = "m1") -> str:
        """The error with which a message was answered, "" if it has reached the server."""
        return str((await self.response(id)).get("error", ""))

    async def tries(self, arguments: Json, tool_use_id: str = "t1", tool: str = "add", id: str = "m1") -> str:
        await self.calls(arguments, tool_use_id, tool, id)
        return await self.reply(id)

    async def sends(self, method: str, id: str, **params: object) -> str:
        await self.event(control.Request(LAPTOP_MCP_MESSAGE, message(method, params), id=id).public())
        return await self.reply(id)


@asynccontextmanager
async def hostile(
    rules: Mapping[str, Sequence[str]] | None = None,
    *,
    mode: str = "default",
    somebody: bool = False,
    host: ScriptedHost | None = None,
) -> AsyncIterator[Worker]:
    """A session with a server `notes` on the laptop. `somebody`: a person can be asked there."""
    async with session_on(host or ScriptedHost()) as (session, peer):
        worker = Worker(session, peer)

        async def ask(question: control.ToolApproval) -> control.ToolPermission:
            return await session.ask_reader(control.Request(control.CAN_USE_TOOL, question))

        permissions = LaptopPermissions(
            lambda: rules or {}, ask if somebody else None, mode=mode, may_bypass=mode == "bypassPermissions"
        )

        async def serve(message: McpMessage) -> Json:
            worker.ran.append(await permitted(permissions, message.server_name, message.message))
            return {"mcp_response": {"jsonrpc": "2.0", "id": 1, "result": {}}}

        session.watched_by(permissions)
        session.register(control.CAN_USE_TOOL)
        session.register(control.HOOK_CALLBACK)
        session.register(LAPTOP_MCP_MESSAGE, serve, is_call)
        session.register(MCP_MESSAGE)
        guard_client_servers(session, permissions)
        async with read_by(session, worker.reads):
            yield worker


ALLOW: Json = {"behavior": "allow"}


async def test_a_worker_that_does_not_ask_gets_nothing() -> None:
    async with hostile() as worker:
        assert "has not allowed mcp__notes__add, and nobody can be asked" in await worker.tries({"a": 1})
        reading = await worker.sends("resources/read", "m2", uri="notes://today")
        assert "has not allowed ReadMcpResourceTool" in reading
        assert "has not allowed mcp__notes__review" in await worker.sends("prompts/get", "m3", name="review")
        assert worker.ran == []


async def test_a_server_inside_the_program_gets_only_what_this_laptop_has_allowed() -> None:
    async with hostile({"allow": ["mcp__notes__list"], "deny": ["mcp__notes__remove"]}) as worker:
        for number, tool in enumerate(("add", "remove", "list")):
            await worker.event(control.Request(MCP_MESSAGE, call({}, tool=tool), id=f"m{number}").public())
        assert "has not allowed mcp__notes__add" in await worker.reply("m0")
        assert "denies mcp__notes__remove" in await worker.reply("m1")
        asked = await worker.question()  # the first of which the program hears
        assert asked["request"]["message"]["params"]["name"] == "list"
        await worker.session.answer(asked["request_id"], {"mcp_response": {"jsonrpc": "2.0", "id": 1, "result": {}}})
        assert await worker.reply("m2") == ""


async def test_an_approval_lets_exactly_the_call_that_was_shown_run_once() -> None:
    shown = {"a": 1, "b": True}
    async with hostile() as worker:
        await worker.asks(shown, answer={**ALLOW, "updatedInput": shown})
        assert await worker.tries({"a": 1, "b": 1}, id="m0")  # true is not 1
        await worker.asks(shown, id="q2", answer=ALLOW)
        assert await worker.tries({"b": True, "a": 1}, id="m1") == ""
        assert await worker.tries(shown, id="m2")
        await worker.asks(shown, id="q3", answer={**ALLOW, "updatedInput": {"a": 5}})
        assert await worker.tries({"a": 5}, id="m3") == ""
        assert [each["params"]["arguments"] for each in worker.ran] == [shown, {"a": 5}]


@pytest.mark.parametrize(
    "tried",
    [
        {"arguments": {"a": 2}},
        {"arguments": {"a": 1}, "tool": "remove"},
        {"arguments": {"a": 1}, "tool_use_id": "t2"},
        {"arguments": {"a": 1}, "tool_use_id": ""},
    ],
)
async def test_an_approval_of_another_call_does_not_count(tried: Json) -> None:
    async with hostile() as worker:
        await worker.asks({"a": 1}, answer=ALLOW)
        assert await worker.tries(**tried)
        assert worker.ran == []


async def test_one_id_for_two_questions_grants_neither() -> None:
    async with hostile() as worker:
        await worker.asks({"a": 1})
        await worker.event(control.public_withdrawal("q1"))
        await worker.question()
        await worker.asks({"a": 666}, answer=ALLOW)
        assert await worker.tries({"a": 666})


async def test_a_question_that_was_withdrawn_or_denied_or_interrupted_grants_nothing() -> None:
    async with hostile() as worker:
        await worker.asks({"a": 1}, answer={"behavior": "deny", "message": "not today"})
        assert await worker.tries({"a": 1}) == "not today"
        await worker.asks({"a": 2}, "t2", id="q2", answer=ALLOW)
        await worker.session.send(control.Request(control.INTERRUPT, None).public())
        assert await worker.tries({"a": 2}, "t2", id="m2")
        await worker.asks({"a": 3}, "t3", id="q3")
        await worker.event(control.public_withdrawal("q3"))
        await worker.question()
        await worker.session.answer("q3", ALLOW)
        assert await worker.tries({"a": 3}, "t3", id="m3")
        assert worker.ran == []


async def test_an_answer_that_another_client_gave_does_not_count_here() -> None:
    async with hostile() as worker:
        await worker.asks({"a": 1})
        answer = control.public_answer(control.Success("q1", ALLOW))
        await worker.peer.send(Event(2, 1, "input", {"id": "answer:q1", "body": answer}))
        worker._seq = 2
        assert await worker.tries({"a": 1})


async def test_a_lost_connection_gives_no_second_call_for_one_approval() -> None:
    host = ScriptedHost()
    async with hostile(host=host) as worker:
        await worker.asks({"a": 1}, answer=ALLOW)
        assert await worker.tries({"a": 1}) == ""
        worker.peer.hang_up()
        worker.peer, _ = await host.granted(seq=9)  # all of it is a replay: the worker claims that it has had no answer
        await worker.calls({"a": 1})
        await worker.asks({"a": 1})  # nobody answers it again, but the outbox sends both answers again
        worker._seq += 1
        answer = {"id": "answer:q1", "body": control.public_answer(control.Success("q1", ALLOW))}
        await worker.peer.send(Event(worker._seq, 1, "input", answer))
        while worker._seq < 9:
            await worker.calls({"a": 1}, id=f"again-{worker._seq}")
        assert "has not allowed" in await worker.reply("again-8")
        assert "has not allowed" in await worker.tries({"a": 1}, id="live")
        assert len(worker.ran) == 1


@pytest.mark.parametrize(
    ("rules", "mode", "runs"),
    [
        ({"allow": ["mcp__notes"]}, "default", True),
        ({"allow": ["Bash(ls),mcp__notes__add"]}, "default", True),
        ({"allow": ["mcp__notes__*"]}, "dontAsk", True),
        ({"allow": ["mcp__notes__remove", "mcp__note", "Bash"]}, "default", False),
        ({"allow": ["mcp__notes__add(a)"]}, "default", False),
        ({"allow": ["mcp__notes"], "deny": ["mcp__notes__add"]}, "bypassPermissions", False),
        ({"allow": ["mcp__notes"], "ask": ["mcp__notes__add"]}, "bypassPermissions", False),
        ({}, "bypassPermissions", True),
        ({}, "acceptEdits", False),
    ],
)
async def test_the_rules_and_the_mode_of_the_laptop_count(rules: dict[str, list[str]], mode: str, runs: bool) -> None:
    async with hostile(rules, mode=mode) as worker:
        assert (await worker.tries({"a": 1}) == "") is runs
        assert bool(worker.ran) is runs


async def test_a_deny_rule_outranks_an_answer_and_a_mode_that_this_laptop_may_not_choose_does_not_count() -> None:
    async with hostile({"deny": ["mcp__notes__add"]}) as worker:
        await worker.asks({"a": 1}, answer=ALLOW)
        assert "denies" in await worker.tries({"a": 1})
        await worker.session.send(control.Request(control.SET_PERMISSION_MODE, "bypassPermissions").public())
        assert await worker.tries({"a": 1}, tool="remove", id="m2")


async def test_always_in_this_session_counts_from_then_on() -> None:
    rule = {"type": "addRules", "rules": [{"toolName": ADD}], "behavior": "allow", "destination": "session"}
    async with hostile() as worker:
        await worker.asks({"command": "ls"}, tool="Bash", answer={**ALLOW, "updatedPermissions": [rule]})
        assert await worker.tries({"a": 1}, "t9") == ""
        assert await worker.tries({"a": 2}, "t10", id="m2") == ""
        assert await worker.tries({"a": 2}, "t11", id="m3", tool="remove")


async def test_rules_that_the_person_adds_and_removes_on_the_list_count_from_then_on() -> None:
    async def change(kind: str, behavior: str, tool: str = ADD) -> None:
        update = {"type": kind, "rules": [{"toolName": tool}], "behavior": behavior, "destination": "localSettings"}
        await worker.session.send(control.Request(CHANGE_RULES, [update]).public())

    async with hostile() as worker:
        await change("addRules", "allow")
        assert await worker.tries({"a": 1}, id="m1") == ""
        await change("removeRules", "allow")
        assert await worker.tries({"a": 1}, id="m2")
        await change("addRules", "allow")
        await change("addRules", "deny", "mcp__notes")
        assert "denies" in await worker.tries({"a": 1}, id="m3")
        await worker.session.send(control.Request(CHANGE_RULES, [{"type": "setMode", "mode": "default"}]).public())
        assert "denies" in await worker.tries({"a": 1}, id="m4")


async def test_a_hook_of_the_client_may_allow_what_it_is_for_and_the_strictest_of_several_holds() -> None:
    async def hooks(worker: Worker, tool_use_id: str, *decisions: str, callback: str = "cb") -> None:
        event = {"hook_event_name": "PreToolUse", "tool_name": ADD, "tool_input": {"a": 1}}
        for number, decision in enumerate(decisions):
            request_id = f"{tool_use_id}h{number}"
            asked = control.HookCallback(callback, {**event, "tool_use_id": tool_use_id}, tool_use_id)
            await worker.event(control.Request(control.HOOK_CALLBACK, asked, id=request_id).public())
            await worker.question()
            output = {"hookEventName": "PreToolUse", "permissionDecision": decision}
            await worker.session.answer(request_id, {"hookSpecificOutput": output})

    def entry(callback: str, matcher: str | None = None) -> Json:
        return {"matcher": matcher, "hookCallbackIds": [callback]}

    before = [entry("cb", "mcp__notes__.*"), entry("read", "Read"), entry("broken", "(")]
    registered = {"PreToolUse": before, "PostToolUse": [entry("after")]}
    initialize = {"subtype": "initialize", "hooks": registered}
    async with hostile() as worker:
        await worker.session.send({"type": "control_request", "request_id": "i", "request": initialize})
        for callback in ("read", "broken", "after", "unknown"):  # a hook that allows all of what it is registered for
            await hooks(worker, callback, "allow", callback=callback)
            assert await worker.tries({"a": 1}, callback, id=callback), callback
        assert worker.ran == []
        await hooks(worker, "t1", "allow")
        assert await worker.tries({"a": 2}, "t1", id="m0")
        await hooks(worker, "t2", "allow")
        assert await worker.tries({"a": 1}, "t2", id="m1") == ""
        await hooks(worker, "t3", "allow", "ask")
        assert await worker.tries({"a": 1}, "t3", id="m2")
        await hooks(worker, "t4", "deny", "allow")
        assert await worker.tries({"a": 1}, "t4", id="m3")


async def test_the_laptop_asks_its_person_itself() -> None:
    async with hostile(somebody=True) as worker:
        await worker.calls({"a": 1})
        asked = await worker.question()
        assert asked["request"]["tool_name"] == ADD and asked["request"]["input"] == {"a": 1}
        assert "did not ask you" in asked["request"]["decision_reason"]
        await worker.session.answer(asked["request_id"], {**ALLOW, "updatedInput": {"a": 7}})
        assert await worker.reply() == ""
        assert worker.ran[0]["params"]["arguments"] == {"a": 7}
        await worker.calls({"a": 1}, id="m2")
        asked = await worker.question()
        await worker.session.refuse(asked["request_id"], "AbortError: nobody is there")
        assert "nobody is there" in await worker.reply("m2")
        assert len(worker.ran) == 1


async def test_a_question_of_the_laptop_survives_a_lost_connection_and_ends_with_its_call() -> None:
    async with hostile(somebody=True) as worker:
        await worker.calls({"a": 1})
        asked = await worker.question()
        again = control.Request(LAPTOP_MCP_MESSAGE, call({"a": 1}), id="m1").public()
        await worker.peer.send(Snapshot(1, 5, {"asks": [again]}))
        assert await worker.question() == asked  # it is open for a reader that begins with a snapshot
        await worker.peer.send(Snapshot(1, 9, {"asks": []}))  # meanwhile the agent was interrupted
        while (shown := await worker.question()) == asked:
            pass
        assert shown == control.public_withdrawal(asked["request_id"])
        assert worker.ran == []


async def test_the_host_cannot_ask_in_the_name_of_the_laptop() -> None:
    async with hostile(somebody=True) as worker:
        question = control.ToolApproval(ADD, ADD, {"a": 1}, "t1")
        forged = control.Request(control.CAN_USE_TOOL, question, id="laptop-1").public()
        await worker.event(forged)
        await worker.peer.send(Snapshot(1, 5, {"asks": [forged]}))
        worker._seq = 5
        await worker.asks({"a": 2}, id="q2")  # the first that the reader gets


async def test_what_the_person_mentions_may_be_read() -> None:
    diary = {"server": "notes", "uri": "notes://diary"}
    async with hostile() as worker:
        await worker.session.prompt("look at @notes:notes://today please")
        assert await worker.sends("resources/read", "m1", uri="notes://today") == ""
        assert await worker.sends("resources/read", "m2", uri="notes://diary")
        await worker.session.prompt("/mcp__notes__review this")
        assert await worker.sends("prompts/get", "m3", name="review", arguments={"what": "this"}) == ""
        await worker.asks(diary, tool="ReadMcpResourceTool", answer=ALLOW)
        assert await worker.sends("resources/read", "m4", uri="notes://diary") == ""
