"""What a result means for the exit code and for a reader of text."""

from __future__ import annotations

import pytest

from ccb.local.command_line.exit_codes import ExitCode
from ccb.local.headless.results import exit_code, local_result, result_text
from ccb.local.session.client import Json
from ccb.local.session.messages import Result, parse_message

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


def test_a_result_made_here_has_what_clients_require() -> None:
    result = local_result("sid", ["no link"], reason="link_lost", duration_ms=12)
    parsed = parse_message(result)
    assert isinstance(parsed, Result) and parsed.terminal_reason == "link_lost" and parsed.session_id == "sid"
    for name in ("subtype", "duration_ms", "duration_api_ms", "is_error", "num_turns", "session_id"):
        assert name in result
