"""Headless sessions on this machine, whole: real processes, real daemon, scripted model."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import sys
import uuid
from pathlib import Path

import pytest
from tests.support.machine.processes import left_with_home
from tests.support.machine.waiting import until
from tests.support.model.model_script import uses
from tests.support.person.laptop import STREAM, STREAMS, Here, user_message

from ccb.local.command_line.exit_codes import ExitCode


def edits(here: Here) -> Path:
    path = here.project / "greet.txt"
    path.write_text("hello wrold\n")
    edit = uses("Edit", file_path=str(path), old_string="wrold", new_string="world")
    here.model.add(uses("Read", file_path=str(path)), edit, {"text": "Corrected."})
    return path


async def test_a_session_without_settings_never_loads_what_checks_them(here: Here) -> None:
    """Pydantic also checks lists of sessions, which this session never asks for. Loading it takes longer than the
    worker does to start."""
    here.model.add({"text": "Four."})
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-X", "importtime", "-m", "ccb", str(here.project), "-p", "2+2?"),
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env=here.laptop.env, cwd=here.laptop.home,
    )  # fmt: skip
    out, loaded = await process.communicate()
    assert (process.returncode, out) == (0, b"Four.\n")
    assert b"aiohttp" in loaded and b"pydantic" not in loaded


async def test_the_stream_is_init_first_result_last_and_one_session(here: Here) -> None:
    path, session = edits(here), str(uuid.uuid4())
    done = await here.run("-p", "go", *STREAM, "--permission-mode", "acceptEdits", "--session-id", session)
    messages = done.messages
    assert (done.code, done.stderr, path.read_text()) == (0, "", "hello world\n")
    assert (messages[0]["type"], messages[0]["subtype"], messages[0]["cwd"]) == ("system", "init", str(here.project))
    assert messages[-1]["type"] == "result" and len(done.results) == 1
    assert {message["session_id"] for message in messages} == {session}
    assert not [message for message in messages if message["type"] == "stream_event"]
    results = [m["message"]["content"][0] for m in messages if m["type"] == "user"]
    assert len(results) == 2 and not any(block.get("is_error") for block in results)


async def test_a_run_waits_for_what_it_has_started_in_the_background(here: Here) -> None:
    command = "while [ ! -e go ]; do sleep 0.02; done; echo gone"
    here.model.add(uses("Bash", command=command, run_in_background=True), uses("Bash", command="touch go"))
    here.model.add({"text": "It runs."}, {"text": "It has ended."})
    done = await here.run("-p", "go", "--allowedTools", "Bash")
    last = here.model.requests[-1].messages[-1]
    assert (done.code, "<task-notification>" in json.dumps(last)) == (0, True)
    assert done.stdout in ("It has ended.\n", "It runs.\n")  # the end may join the running turn


async def test_a_run_ends_what_outlives_the_time_it_waits_for_it(here: Here) -> None:
    here.model.add(uses("Bash", command="sleep 600", run_in_background=True), {"text": "It runs."})
    done = await here.run("-p", "go", *STREAM, "--allowedTools", "Bash", CLAUDE_CODE_PRINT_BG_WAIT_CEILING_MS="100")
    assert done.code == 0
    assert [each["result"] for each in done.results] == ["It runs."]
    assert [each["status"] for each in done.messages if each.get("subtype") == "task_notification"] == ["stopped"]


async def test_what_nobody_can_be_asked_about_is_denied_with_code_3(here: Here) -> None:
    here.model.add(uses("Bash", command=f"touch {here.project}/made"), {"text": "I was not allowed to."})
    done = await here.run("-p", "go", *STREAM)
    assert done.code == 3
    assert not (here.project / "made").exists()
    assert [denial["tool_name"] for denial in done.results[0]["permission_denials"]] == ["Bash"]
    assert "Nobody can be asked" in here.model.requests[1].tool_result_text
    (result,) = [each for each in done.messages if each["type"] == "user"]
    decision = {"decision": "reject", "source": "config"}
    assert [each["permission_decision"] for each in result["tool_result_meta"]] == [decision]


@pytest.mark.skipif(os.geteuid() != 0, reason="the rule is about root")
async def test_root_may_not_skip_permissions(here: Here) -> None:
    here.model.add({"text": "ok"})
    words = ["-p", "go", *STREAM, "--dangerously-skip-permissions"]
    done = await here.run(*words)
    assert done.code == 2
    assert "cannot be used with root" in done.stderr and len(done.results) == 1
    assert not here.model.requests
    assert (await here.run(*words, IS_SANDBOX="1")).code == 0


async def test_a_question_open_at_the_end_of_stdin_is_denied_and_the_turn_goes_on(here: Here) -> None:
    here.model.add(uses("Bash", command=f"touch {here.project}/made"), {"text": "Then not."})
    async with here.start(*STREAMS, "--permission-prompt-tool", "stdio") as running:
        await running.send(user_message("go"))
        await running.until("control_request")
        done = await running.finish()
    assert done.code == 0 and done.results[0]["result"] == "Then not."
    said = "Tool permission request failed: AbortError: Tool permission stream closed before response received"
    assert here.model.requests[1].tool_result_text == said
    assert not (here.project / "made").exists()


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=["INT", "TERM", "HUP"]
)
@pytest.mark.quick_rows(1)
async def test_a_signal_in_a_tool_kills_it_with_one_result(here: Here, number: signal.Signals, code: int) -> None:
    here.model.add(uses("Bash", command="echo started > began; sleep 60"), {"text": "never"})
    async with here.start("-p", "go", *STREAM, "--allowedTools", "Bash", piped=False) as running:
        await running.until("assistant")
        await until((here.project / "began").exists)
        running.process.send_signal(number)
        done = await running.done()
    assert done.code == code
    assert [result["subtype"] for result in done.results] == ["error_during_execution"]
    assert done.messages[-1]["type"] == "result"


async def test_a_second_interrupt_ends_at_once_and_still_stops_the_worker(here: Here) -> None:
    stubborn = "trap '' INT TERM; echo started > began; sleep 60; sleep 60"
    here.model.add(uses("Bash", command=stubborn), {"text": "never"})
    async with here.start("-p", "go", *STREAM, "--allowedTools", "Bash", piped=False) as running:
        await until((here.project / "began").exists)
        running.process.send_signal(signal.SIGINT)
        await asyncio.sleep(0.005)  # as fast as fingers are; at the same moment they would be one signal
        running.process.send_signal(signal.SIGINT)
        done = await running.done(timeout=30)  # the command sleeps for 120
    assert (done.code, len(done.results)) == (130, 1)
    assert left_with_home(here.laptop.home) == [], done.stderr


@pytest.mark.parametrize("output", [["--output-format", "text"], ["--output-format", "json"], STREAM])
@pytest.mark.parametrize(("sent", "code"), [(">/dev/full", 73), (">&-", 129), ("| true", 129)])
@pytest.mark.quick_rows(2)
async def test_an_unwritable_answer_is_no_success(here: Here, sent: str, code: int, output: list[str]) -> None:
    here.model.add({"text": "Four."})
    ccb = shlex.join([sys.executable, "-m", "ccb", str(here.project), "-p", "2+2?", *output])
    process = await asyncio.create_subprocess_exec(
        "bash", "-c", f'{ccb} </dev/null {sent}; exit "${{PIPESTATUS[0]}}"',
        stderr=asyncio.subprocess.PIPE, env=here.laptop.env, cwd=here.laptop.home,
    )  # fmt: skip
    async with asyncio.timeout(40):
        _, said = await process.communicate()
    assert process.returncode == code, said
    assert (b"stdout cannot be written: No space left" in said) == (code == 73)


ARGV = ["-p", "go", *STREAM]


async def test_a_run_beyond_the_budget_of_the_day_is_refused_on_the_laptop(here: Here) -> None:
    here.laptop.settings(budgets={"dayUsd": 0.000001})
    here.model.add({"text": "one"}, {"text": "two"})
    first = await here.laptop.run(ARGV)
    assert (first.code, first.results[0]["result"]) == (0, "one"), first.stderr
    second = await here.laptop.run(ARGV)
    (result,) = second.results
    assert (second.code, result["subtype"]) == (ExitCode.LIMIT_REACHED, "error_max_budget_usd")
    assert "the budget of the day is used up" in result["errors"][0]
    assert "No more model calls: the budget of the day is used up" in second.stderr
    assert len(here.model.requests) == 1
    shown = await here.laptop.run(["usage", "--by", "session", "--json"])
    (row,) = map(json.loads, shown.stdout.splitlines())
    assert (row["session"], row["calls"]) == (first.results[0]["session_id"], 1)
    assert row["usd"] == pytest.approx(first.results[0]["total_cost_usd"])
    table = (await here.laptop.run(["usage", "--by", "model"])).stdout.splitlines()
    assert table[0].split() == ["MODEL", "CALLS", "FAILED", "INPUT", "CACHED", "OUTPUT", "COST", "LAST"]
    assert table[1].split()[1:3] == ["1", "0"] and len(table) == 2


async def test_a_budget_for_a_model_without_a_price_is_refused_before_anything_is_asked(here: Here) -> None:
    done = await here.laptop.run([*ARGV, "--model", "some/model-9", "--max-budget-usd", "1"])
    assert done.code == ExitCode.USAGE and "the price of some/model-9 is not known" in done.stderr
    assert not here.model.requests


async def test_a_run_is_revoked_from_another_terminal_and_audited(here: Here) -> None:
    here.model.add(uses("Bash", command="echo hi"), {"text": "a long answer", "stall_after": 2})
    async with here.laptop.start(ARGV) as running:
        session = str((await running.until("system", "init"))["session_id"])
        await running.until("user")
        await until(lambda: len(here.model.requests) == 2)
        revoked = await here.laptop.run(["proxy", "revoke", session])
        assert (revoked.code, session in revoked.stdout) == (0, True), revoked.stderr
        result = await running.until("result")
    assert result["is_error"] and "revoked" in json.dumps(result)
    audit = await here.laptop.run(["audit", session[:8], "--json"])
    kinds = [json.loads(line)["kind"] for line in audit.stdout.splitlines()]
    assert audit.code == 0
    assert [each for each in kinds if each != "also"] == ["prompt", "asked", "wanted", "result", "revoked"]
    assert len(here.model.requests) == 2
