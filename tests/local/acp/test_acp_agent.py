"""The process of `ccb acp`: what it answers before there is a host, and what reaches its stdout."""

from __future__ import annotations

import json
import subprocess
import sys

import psutil
import pytest
from tests.support.acp_client import AcpError, acp, chosen
from tests.support.model.model_script import uses
from tests.support.person.laptop import Here, Laptop

from ccb.local.command_line.exit_codes import ExitCode
from ccb.tunnel.wire.ndjson import MAX_FRAME

STRAY = """
import asyncio, os
from ccb.local.acp.acp_agent import run_acp
from ccb.local.command_line.parser import parse_arguments
serving = run_acp(parse_arguments(["acp", "nobody@127.0.0.1:/srv/app"]), os.environ)
print("stray", flush=True)
os.system("echo stray; cat")
asyncio.run(serving)
"""


def test_nothing_but_the_protocol_reaches_stdout_and_nobody_else_reads_stdin() -> None:
    lines = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":9}}\nno json\n'
    done = subprocess.run([sys.executable, "-c", STRAY], input=lines, capture_output=True, check=True, timeout=60)
    hello, refusal = map(json.loads, done.stdout.splitlines())
    assert (hello["id"], hello["result"]["protocolVersion"], hello["result"]["authMethods"]) == (1, 1, [])
    assert (refusal["id"], refusal["error"]["code"]) == (None, -32700)
    assert done.stderr == b"stray\nstray\n"


def test_a_line_over_the_limit_is_an_error_and_no_bug(laptop: Laptop) -> None:
    argv, line = [sys.executable, "-m", "ccb", "acp", "nobody@127.0.0.1:/srv/app"], b"x" * (MAX_FRAME + 1)
    done = subprocess.run(argv, input=line, capture_output=True, env=laptop.env, check=False, timeout=60)
    assert json.loads(done.stdout)["error"]["code"] == -32700 and done.returncode == ExitCode.PROTOCOL
    assert b"Send a shorter prompt" in done.stderr


async def test_the_first_answer_needs_no_host_and_little_time(laptop: Laptop) -> None:
    async with acp(laptop, ["nobody@127.0.0.1:/srv/app"]) as editor:
        await editor.initialize()
        used = psutil.Process(editor.running.process.pid).cpu_times()
        assert used.user + used.system < 0.3


async def test_without_a_key_the_editor_is_told_how_to_give_one(here: Here) -> None:
    keyless = {"ANTHROPIC_API_KEY": "", "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}
    async with acp(here.laptop, [], keyless) as editor:
        await editor.initialize()
        with pytest.raises(AcpError, match="ANTHROPIC_API_KEY") as raised:
            await editor.new(here.project)
        assert raised.value.code == -32000 and raised.value.data["authMethods"] == []


async def test_on_this_machine_a_session_works_in_the_folder_of_the_editor(here: Here) -> None:
    (here.project / "a.txt").write_text("words\n")
    here.model.add({"text": "Read."})
    async with acp(here.laptop, []) as editor:
        await editor.initialize()
        session = await editor.new(here.project)
        link = {"type": "resource_link", "uri": (here.project / "a.txt").as_uri(), "name": "a.txt"}
        assert await editor.prompt(session, "look at", link) == {"stopReason": "end_turn"}
        assert "words" in json.dumps(here.model.requests[-1].messages)
        assert (await editor.call("session/list"))["sessions"][0]["cwd"] == str(here.project)


async def test_nothing_that_the_host_says_can_drive_the_terminal_of_an_editor(here: Here) -> None:
    evil = "a\x1b]0;x\x07\x9b2Jb\u202e"
    edit = {"file_path": f"{here.project}/{evil}", "content": evil}
    blocks = [{"type": "text", "text": evil}, *uses("Write", **edit)["blocks"], *uses(evil, key=evil)["blocks"]]
    here.model.add({"blocks": blocks}, {"text": evil})
    async with acp(here.laptop, []) as editor:  # whose client looks at each line
        editor.answers["session/request_permission"] = lambda params: chosen("allow")
        await editor.initialize()
        await editor.prompt(await editor.new(here.project), "go")
        assert editor.asked and editor.text() and len(editor.updates("tool_call")) == 2
