"""Agents of other makers, unmodified, work on a host: the real Gemini CLI and the real Claude Code, over a real sshd
whose connections are lost. Scripted servers of their own APIs answer them, through the proxy of the laptop."""

from __future__ import annotations

import json
import os
import random
import shlex
import shutil
from pathlib import Path

import pytest
from tests.conformance.acp_clients import node
from tests.conformance.official_sdks import PACKAGES, ROOT, asked, require_sdks, text_of_deltas
from tests.faults.play.host import kill_worker
from tests.support.hosts.host_search import found_on_host
from tests.support.hosts.reached_host import Host
from tests.support.hosts.whole_session import allow
from tests.support.machine.programs import shell_script
from tests.support.model.fake_model import API_KEY
from tests.support.model.model_script import uses
from tests.support.network.relay import Relay, relay
from tests.support.person.laptop import STDIO, Json, Running, user_message
from tests.support.providers.dialect_server import KEY, DialectServer, Held
from tests.support.providers.gemini_server import GeminiServer, function_results
from tests.support.providers.turns import Said

pytestmark = pytest.mark.visited

CLAUDE = ROOT / ".make" / "reference-cli" / "claude_agent_sdk" / "_bundled" / "claude"
COUNT = "echo run >> count; echo counted"
LONG = random.Random(33).randbytes(400).hex(" ", 4)  # in which Gemini CLI sees no loop


def link(source: str | Path, target: str | Path) -> Path:
    """A program where users of the host can run it: the directory of the project may be closed to them."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return Path(target)


@pytest.fixture
def gemini(tmp_path: Path) -> Path:
    """The Gemini CLI and its Node, as a program of the host."""
    require_sdks()
    package = tmp_path / "gemini-cli"
    shutil.copytree(PACKAGES / "@google" / "gemini-cli", package, copy_function=link)
    command = [str(link(node(), tmp_path / "node")), str(package / "bundle" / "gemini.js")]
    return shell_script(tmp_path / "gemini", f'exec {shlex.join(command)} "$@"')


@pytest.fixture
def claude(tmp_path: Path) -> Path:
    if not CLAUDE.exists():
        pytest.skip("Claude Code is not installed: `make thorough` does it, where PyPI can be reached")
    return link(CLAUDE, tmp_path / "claude")


def deltas(running: Running) -> str:
    return text_of_deltas([each for each in running.lines if each["type"] == "stream_event"])


async def ask_to_count(running: Running, between: Relay, tool: str) -> Json:
    """Send a prompt, lose the connection while the agent asks for the command, and allow it."""
    await running.send(user_message("count"))
    asks = await running.until("control_request")
    between.cut()
    assert asks["request"]["tool_name"] == tool and COUNT in json.dumps(asks["request"]["input"])
    await running.reply(asks, {"behavior": "allow", "updatedInput": asks["request"]["input"]})
    return asks


async def test_gemini_works_on_the_host_with_a_model_key_of_the_laptop(host: Host, gemini: Path) -> None:
    server = GeminiServer(
        Said("I count.", calls=(("run_shell_command", {"command": COUNT, "description": "count"}),)),
        Said(LONG),
        Said("the second answer"),
        Said("the third answer"),
    )
    async with server.running(), relay(host.server.port) as between:
        own = {"baseUrl": f"{server.url}/v1beta/openai", "keyVariable": "THE_KEY"}
        host.laptop.settings(providers={"gemini": own})
        words = host.ssh("-p", *STDIO, "--include-partial-messages", "--agent", f"{gemini} --acp", port=between.port)
        async with host.laptop.start(words, THE_KEY=KEY) as running:
            await ask_to_count(running, between, "Bash")
            server.held = Held(2_000)
            await server.held.reached.wait()
            between.cut()
            server.held.release()
            assert (await running.until("result"))["result"] == LONG
            assert found_on_host(host, KEY) == [] and found_on_host(host, LONG[:50]), "the search finds what is there"
            await running.send(user_message("again"))
            await running.until("result")
            kill_worker(host.user)
            await running.send(user_message("and now?"))
            await running.until("result")
            done = await running.finish()
    assert (done.code, server.refused) == (0, []) and len(server.requests) == 4
    assert deltas(running) == "I count." + LONG + "the second answer" + "the third answer"
    assert (host.home / "count").read_text() == "run\n"
    (result,) = function_results(server.requests[1])
    assert "counted" in json.dumps(result)
    assert [each["result"] for each in done.results] == [LONG, "the second answer", "the third answer"]
    told = [each["content"] for each in done.messages if each.get("subtype") == "informational"]
    assert "does not know this conversation" in told[-1], "a new process of Gemini CLI cannot load its sessions"


@pytest.mark.thorough
async def test_gemini_works_on_after_an_interrupt_at_a_question(host: Host, gemini: Path) -> None:
    """Gemini CLI keeps the call without a result then, and its models refuse that for ever."""
    server = GeminiServer(Said("I count.", calls=(("run_shell_command", {"command": COUNT}),)), Said("an answer"))
    async with server.running():
        own = {"baseUrl": f"{server.url}/v1beta/openai", "keyVariable": "THE_KEY"}
        host.laptop.settings(providers={"gemini": own})
        async with host.laptop.start(host.ssh("-p", *STDIO, "--agent", f"{gemini} --acp"), THE_KEY=KEY) as running:
            await running.send(user_message("count"))
            await running.until("control_request")
            interrupt = {"type": "control_request", "request_id": "i1", "request": {"subtype": "interrupt"}}
            await running.send(interrupt)
            assert (await running.until("result"))["errors"] == ["Request interrupted by user"]
            await running.send(user_message("and now?"))
            assert (await running.until("result"))["result"] == "an answer"
            done = await running.finish()
    told = [each["content"] for each in done.messages if each.get("subtype") == "informational"]
    assert server.refused == [] and "does not know this conversation" in told[-1]


@pytest.mark.thorough
async def test_claude_code_works_on_the_host_with_a_model_key_of_the_laptop(host: Host, claude: Path) -> None:
    host.model.add(uses("Bash", command=COUNT), {"text": LONG, "stall_after": 20})
    host.model.add({"text": "the second answer"}, {"text": "the third answer"})
    async with relay(host.server.port) as between:
        words = ["-p", *STDIO, "--include-partial-messages", "--remote-bin", str(claude)]
        async with host.start(*words, port=between.port) as running:
            await ask_to_count(running, between, "Bash")
            await host.model.until(asked(2))
            between.cut()
            host.model.release()
            assert (await running.until("result"))["result"] == LONG
            assert found_on_host(host, API_KEY) == [] and found_on_host(host, LONG[:50])
            await running.send(user_message("again"))
            await running.until("result")
            kill_worker(host.user)
            await running.send(user_message("and now?"))
            await running.until("result")
            done = await running.finish()
    assert done.code == 0 and len(host.model.requests) == 4
    assert deltas(running) == LONG + "the second answer" + "the third answer"
    assert (host.home / "count").read_text() == "run\n"
    assert "counted" in host.model.requests[1].tool_result_text
    assert [each["result"] for each in done.results] == [LONG, "the second answer", "the third answer"]
    assert LONG in json.dumps(host.model.requests[3].messages), "a new process goes on with the conversation"


@pytest.mark.thorough
async def test_claude_code_asks_no_model_after_an_interrupt_at_a_question(host: Host, claude: Path) -> None:
    host.model.add(uses("Bash", command=COUNT), {"text": "an answer"})
    async with host.start("-p", *STDIO, "--remote-bin", str(claude)) as running:
        await running.send(user_message("count"))
        await running.until("control_request")
        await running.send({"type": "control_request", "request_id": "i1", "request": {"subtype": "interrupt"}})
        assert (await running.until("result"))["errors"] == ["Request interrupted by user"]
        await running.send(user_message("and now?"))
        assert (await running.until("result"))["result"] == "an answer"
        done = await running.finish()
    assert done.code == 0 and len(host.model.requests) == 2


@pytest.mark.thorough
async def test_claude_code_works_with_a_model_of_another_provider(host: Host, claude: Path) -> None:
    server = DialectServer("responses", Said("Hi."))  # Claude Code checks a new model with a call of its own
    server.add(Said("I look.", calls=(("Bash", {"command": COUNT}),)), Said("It counts."))
    async with server.running():
        own = {"baseUrl": server.url, "keyVariable": "THE_KEY", "dialect": "responses"}
        host.laptop.settings(providers={"openai": own})
        words = ["-p", *STDIO, "--remote-bin", str(claude), "--model", "openai/gpt-5"]
        async with host.laptop.start(host.ssh(*words), THE_KEY=KEY) as running:
            await running.send(user_message("count"))
            await allow(running, "Bash")
            await running.until("result")
            done = await running.finish()
    assert (done.code, server.refused) == (0, []) and done.results[-1]["result"] == "It counts."
    assert (host.home / "count").read_text() == "run\n" and host.model.requests == []


@pytest.mark.thorough
async def test_gemini_works_with_a_model_of_another_provider(host: Host, gemini: Path) -> None:
    """All that it asks goes to the session's model: the call that chooses one of Gemini's models, too."""
    host.model.add({"text": json.dumps({"complexity_reasoning": "simple", "complexity_score": 5})})
    host.model.add(uses("run_shell_command", command=COUNT), {"text": "It counts."})
    words = ["-p", *STDIO, "--agent", f"{gemini} --acp", "--model", "claude-sonnet-4-5"]
    async with host.start(*words) as running:
        await running.send(user_message("count"))
        await allow(running, "Bash")
        await running.until("result")
        done = await running.finish()
    assert done.code == 0 and done.results[-1]["result"] == "It counts."
    assert {each.body["model"] for each in host.model.requests if each.body} == {"claude-sonnet-4-5"}
    assert (host.home / "count").read_text() == "run\n"
    assert "counted" in host.model.requests[2].tool_result_text
