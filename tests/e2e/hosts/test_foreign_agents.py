"""Agents of others on a host over a real OpenSSH server: connections are lost, workers are killed, terminals leave."""

from __future__ import annotations

import os
import shlex
import signal
from pathlib import Path

import pytest
from tests.e2e.drops.test_reconnect import daemon_of
from tests.support.acp_client import acp, chosen
from tests.support.hosts.reached_host import Host
from tests.support.machine.processes import processes_of
from tests.support.machine.waiting import until
from tests.support.network.relay import relay
from tests.support.person.laptop import STDIO, STREAM, user_message

pytestmark = pytest.mark.visited

_AGENT = Path(__file__).resolve().parents[2] / "support" / "acp_agent.py"


def agent_of(host: Host, *options: str) -> list[str]:
    """Put the scripted agent on the host. Return the options that let it work."""
    program = host.put("acp_agent.py", _AGENT.read_bytes())
    return ["--agent", shlex.join(["python3", str(program), str(host.home / "agent.log"), *options])]


async def test_a_headless_run_shows_what_an_agent_of_others_does(host: Host) -> None:
    done = await host.run("-p", "think:hm say:I_look edit say:all_done", *STREAM, *agent_of(host))
    assert (done.code, done.texts[-1]) == (0, "all done"), done.stderr
    await until(lambda: not processes_of(host.user))


async def test_a_cut_in_mid_turn_loses_nothing_and_shows_nothing_twice(host: Host) -> None:
    options = agent_of(host)
    async with relay(host.server.port) as between:
        argv = host.ssh("-p", *STDIO, *options, port=between.port)
        async with host.laptop.start(argv) as running:
            await running.send(user_message("say:first terminal ask say:last"))
            asked = await running.until("control_request")
            between.cut()
            await until(lambda: between.connections == 2)
            await running.reply(asked, {"behavior": "allow"})
            await running.until("result")
            done = await running.finish()
    said = [
        block for each in done.messages if each["type"] in ("assistant", "user") for block in each["message"]["content"]
    ]
    kinds = ["text", "tool_use", "tool_result", "tool_use", "tool_result", "text"]
    assert (done.code, [block["type"] for block in said]) == (0, kinds), done.stderr
    assert (host.home / "agent.log").read_text().count("session/prompt") == 1


async def test_a_killed_worker_takes_the_agent_along_and_the_next_one_starts_it(host: Host) -> None:
    options = agent_of(host, "load")
    async with host.start("-p", *STDIO, *options) as running:
        await running.send(user_message("say:first wait"))
        await running.until("assistant")
        os.kill(daemon_of(host.user).pid, signal.SIGKILL)
        assert (await running.until("result"))["is_error"]
        await running.send(user_message("say:again"))
        assert (await running.until("result"))["result"] == "again"
        done = await running.finish()
    assert done.code == 0 and "session/load" in (host.home / "agent.log").read_text()
    await until(lambda: not processes_of(host.user))


async def test_who_attaches_later_sees_the_whole_work_of_the_agent(host: Host) -> None:
    session = (await host.run("-p", "say:first", *STREAM, *agent_of(host))).messages[0]["session_id"]
    again = await host.run("-p", "say:second", "--resume", session, *STREAM)
    assert (again.code, again.texts[-1]) == (0, "second"), again.stderr
    logs = await host.command("logs", session)
    assert "first" in logs.stdout and "second" in logs.stdout


async def test_an_editor_drives_an_agent_of_others_through_ccb(host: Host) -> None:
    """ACP at both ends: what the agent on the host asks and does reaches the editor as if it ran there."""
    words = [f"{host.login}:~", *host.server.client_options(), *agent_of(host)]
    here = host.laptop.home / "work"
    here.mkdir()
    async with acp(host.laptop, words) as editor:
        editor.answers["session/request_permission"] = lambda params: chosen(
            next(each["optionId"] for each in params["options"] if each["kind"] == "allow_always")
        )
        await editor.initialize()
        session = await editor.new(here)
        assert await editor.prompt(session, "think:hm say:I_look terminal plan ask say:done") == {
            "stopReason": "end_turn"
        }
        assert (editor.text(), editor.text("agent_thought_chunk")) == ("I lookdone", "hm")
        assert [each["content"] for each in editor.updates("plan")[-1]["entries"]] == ["look", "mend"]
        states = [each["status"] for each in editor.updates("tool_call_update") if each.get("status")]
        assert states.count("failed") == 1 and "completed" in states
        loaded = await editor.load(session, here)
        (models,) = [each for each in loaded["configOptions"] if each["id"] == "model"]
        assert [each["value"] for each in models["options"]] == ["small-1", "large-2"]
    assert '"optionId": "allow_always"' in (host.home / "agent.log").read_text()
