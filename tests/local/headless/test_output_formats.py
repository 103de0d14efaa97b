"""What a result means for the exit code and for a reader of text."""

from __future__ import annotations

import pytest

from ccb.local.command_line.exit_codes import ExitCode
from ccb.local.headless.output_formats import exit_code, local_result, make_output, result_text
from ccb.local.session.session_client import Json
from ccb.local.terminal.stdio import Writer
from ccb.tunnel.wire.messages import BLOCKED_PROMPT, ResultMessage, parse_message

DONE: Json = {"type": "result", "subtype": "success", "is_error": False, "result": "All good."}


@pytest.mark.parametrize(
    ("change", "denied", "code"),
    [
        ({}, False, ExitCode.OK),
        ({}, True, ExitCode.PERMISSION_DENIED),
        ({"is_error": True, "api_error_status": 500}, True, ExitCode.AGENT_FAILED),
        ({"is_error": True, "api_error_status": 401}, False, ExitCode.AUTH_FAILED),
        ({"is_error": True, "api_error_status": 403}, False, ExitCode.AUTH_FAILED),
        ({"subtype": "error_max_turns", "is_error": True}, True, ExitCode.LIMIT_REACHED),
        ({"subtype": "error_max_budget_usd", "is_error": True}, False, ExitCode.LIMIT_REACHED),
        ({"subtype": "error_during_execution", "is_error": True}, False, ExitCode.AGENT_FAILED),
        ({"subtype": "error_during_execution", "terminal_reason": "storage_full"}, False, ExitCode.NO_STORAGE),
        ({"subtype": "error_during_execution", "terminal_reason": "turn_setup_failed"}, False, ExitCode.USAGE),
        ({"subtype": "something_new"}, False, ExitCode.AGENT_FAILED),
    ],
)
def test_exit_codes(change: Json, denied: bool, code: ExitCode) -> None:
    assert exit_code({**DONE, **change}, denied_unasked=denied) is code


def test_text_is_the_answer_or_the_errors() -> None:
    assert result_text(DONE) == "All good."
    assert result_text({"subtype": "error_max_turns", "errors": ["Reached max"]}) == "Error: Reached max"
    assert result_text({"subtype": "error_during_execution"}) == "Error: error_during_execution"


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        ({}, ExitCode.OK, "All good."),
        ({"result": " \n"}, ExitCode.AGENT_FAILED, "The turn ended without an answer."),
        ({"result": "", "terminal_reason": "completed"}, ExitCode.AGENT_FAILED, "The turn ended without an answer."),
        (
            {"result": "", "terminal_reason": "hook_stopped"},
            ExitCode.AGENT_FAILED,
            "The turn ended without an answer (hook stopped).",
        ),
        ({"result": "", "num_turns": 0}, ExitCode.OK, ""),
        ({"result": f"{BLOCKED_PROMPT} no", "num_turns": 0}, ExitCode.AGENT_FAILED, f"{BLOCKED_PROMPT} no"),
        ({"result": "", "structured_output": {"n": 1}}, ExitCode.OK, '{"n":1}'),
        ({"result": "API Error: 500 x", "is_error": True}, ExitCode.AGENT_FAILED, "API Error: 500 x"),
    ],
)
async def test_only_an_answer_is_one(
    change: Json, code: ExitCode, text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    result = {**DONE, "num_turns": 1, **change}
    assert exit_code(result, wants_answer=True) is code
    assert exit_code(result) is (ExitCode.AGENT_FAILED if result["is_error"] else ExitCode.OK), (
        "JSON has the whole result"
    )
    writer = Writer(1)
    output = make_output("text", writer, verbose=False, terminal=False)
    await output.result(result)
    await output.finish()
    await writer.drain()
    out, err = capfd.readouterr()
    told = f"{text}\n" if text else ""
    assert (out, err) == ((told, "") if code is ExitCode.OK else ("", f"ccb: {told}"))


def test_a_result_made_here_has_what_clients_require() -> None:
    result = local_result("sid", ["no link"], reason="link_lost", duration_ms=12)
    assert isinstance(parse_message(result), ResultMessage)
    assert (result["terminal_reason"], result["session_id"]) == ("link_lost", "sid")
    for name in ("subtype", "duration_ms", "duration_api_ms", "is_error", "num_turns", "session_id"):
        assert name in result
