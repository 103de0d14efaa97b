"""An editor in the middle of faults, whose prompts are worked on by ccb's own agent or by one of another maker: what is
said comes once, a command runs once, the next editor gets all of it, and nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable

import pytest
from tests.e2e.hosts.test_foreign_agents import agent_of
from tests.faults.play.host import kill_worker, left_by
from tests.faults.play.plan import DEAD_S
from tests.support.acp_client import AcpClient, AcpError, acp, chosen, content
from tests.support.hosts.reached_host import Host
from tests.support.model.model_script import Json, uses
from tests.support.network.relay import Fault, Relay, relay

pytestmark = pytest.mark.visited

SEED = os.environ.get("CCB_FAULT_SEEDS", "1")
LONG = random.Random(33).randbytes(600).hex(" ", 4)
WHOLE = f"I count.{LONG}The end."
SPAN = 60_000  # bytes to the editor in both prompts; they are 70,000 at least
FAULTS = ["reset", "close", "freeze", "repeat", "double", "kill daemon"]
COUNT = "echo run >> count"
ENDED = {"stopReason": "end_turn"}


def own_work(host: Host) -> tuple[list[str], list[str]]:
    """The options of ccb, and the prompts."""
    host.model.add(
        {"text": "The end.", "when": {"user_contains": "end it"}},
        {**uses("Bash", command=COUNT), "text": "I count."},
        {"text": LONG, "delay": 0.005, "when": {"has_tool_result": True}, "times": 2},
    )
    return [], ["count", "end it"]


def foreign_work(host: Host) -> tuple[list[str], list[str]]:
    return agent_of(host), [f"say:I_count. ask say:{LONG.replace(' ', '_')}", "say:The_end."]


WORKS = {"own": own_work, "foreign": foreign_work}


def editor_words(host: Host, between: Relay, options: list[str]) -> list[str]:
    return [f"{host.login}:~", *host.server.client_options(between.port), *options]


def somewhere(between: Relay, name: str, kind: str, act: Callable[[], None] | None = None) -> Fault:
    """A fault in the middle of the work, at another byte for each seed."""

    async def happen() -> None:
        assert act is not None
        act()

    at = between.down + random.Random(f"{SEED} {name} {kind}").randrange(1, SPAN)
    between.faults.append(Fault("call" if act else kind, at, upward=False, seconds=DEAD_S, act=happen))
    return between.faults[-1]


def allow(params: Json) -> Json:
    return chosen(next(each["optionId"] for each in params["options"] if each["kind"] == "allow_once"))


async def prompted(editor: AcpClient, session: str, prompt: str) -> Json:
    try:
        return await editor.prompt(session, prompt)
    except AcpError as error:
        return {"error": error.code}


def got_once(editor: AcpClient, *, cut: bool) -> bool:
    """Whether the editor got text and call once, up to the end. If the turn was `cut`, some of it is missing."""
    text, calls = editor.text(), editor.updates("tool_call")
    assert text.endswith("The end.") and WHOLE.startswith(text.removesuffix("The end.")) and len(calls) <= 1
    if not cut:
        (call,) = calls
        assert text == WHOLE and editor.tool_call(call["toolCallId"])["status"] == "completed"
    return True


@pytest.mark.timeout(240)
@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("name", WORKS)
@pytest.mark.parametrize("kind", FAULTS)
async def test_a_prompt_in_the_middle_of_a_fault(host: Host, kind: str, name: str) -> None:
    options, prompts = WORKS[name](host)
    cut = kind == "kill daemon"
    async with relay(host.server.port) as between:
        words = editor_words(host, between, options)
        async with acp(host.laptop, words) as editor:
            editor.answers["session/request_permission"] = allow
            await editor.initialize()
            session = await editor.new(host.laptop.home)
            fault = somewhere(between, name, kind, (lambda: kill_worker(host.user)) if cut else None)
            first, second = [await prompted(editor, session, each) for each in prompts]
        assert fault.happened and second == ENDED and (first == ENDED or (cut and first == {"error": -32603}))
        assert got_once(editor, cut=cut)
        async with acp(host.laptop, words) as again:
            await again.initialize()
            await again.load(session, host.laptop.home)
            assert got_once(again, cut=cut)
            await again.call("session/delete", sessionId=session)  # the process of an agent of others stays otherwise
    if name == "own":
        counts = (host.home / "count").read_text() if (host.home / "count").exists() else ""
        assert counts == "run\n" or (cut and not counts)
    assert await left_by(host.user) == []


@pytest.mark.timeout(240)
@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("name", WORKS)
async def test_an_editor_that_is_killed_leaves_the_work_to_the_next_one(host: Host, name: str) -> None:
    """Its ccb takes a model call along: the next editor sees what had come of it, and then the whole answer."""
    options, (prompt, last) = WORKS[name](host)
    async with relay(host.server.port) as between:
        words = editor_words(host, between, options)
        async with host.laptop.start(["acp", *words]) as running:
            editor = AcpClient(running, {"session/request_permission": allow})
            reading = asyncio.create_task(editor.read())
            await editor.initialize()
            session = await editor.new(host.laptop.home)
            fault = somewhere(between, name, "kill editor", running.process.kill)
            await editor.begin("session/prompt", sessionId=session, prompt=content(prompt))
            await reading
        assert fault.happened
        async with acp(host.laptop, words) as again:
            again.answers["session/request_permission"] = allow
            await again.initialize()
            await again.load(session, host.laptop.home)
            assert await again.prompt(session, last) == ENDED
        async with acp(host.laptop, words) as third:
            await third.initialize()
            await third.load(session, host.laptop.home)
            assert got_once(third, cut=False)
            await third.call("session/delete", sessionId=session)
    assert await left_by(host.user) == []
