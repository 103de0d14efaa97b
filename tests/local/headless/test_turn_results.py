"""Every turn of a headless run has exactly one result on stdout, and the last one is the exit code."""

from __future__ import annotations

import pytest

from ccb.local.command_line.exit_codes import ExitCode
from ccb.local.headless import output_formats as formats
from ccb.local.headless.output_formats import HeadlessOutput, RetryReports
from ccb.local.headless.turn_results import TurnReports, TurnResults
from ccb.local.session.session_client import Json
from ccb.local.session.turn_outcomes import PendingPrompts, exit_code
from ccb.local.terminal.stdio import Writer
from ccb.tunnel.wire.messages import BLOCKED_PROMPT, ResultMessage, TaskMessage, parse_message

RESULT: Json = {"type": "result", "subtype": "success", "is_error": False, "result": "Done."}


class KeptOutput(HeadlessOutput):
    def __init__(self) -> None:
        self.messages: list[Json] = []
        self.results: list[Json] = []

    async def message(self, body: Json) -> None:
        self.messages.append(body)

    async def result(self, body: Json) -> None:
        self.results.append(body)


def turn_results(
    output: KeptOutput, *, print_all: bool = False, print_failures: bool = True, lifecycle: bool = False
) -> TurnResults:
    reports = TurnReports(output, None, lifecycle)
    return TurnResults(reports, output, RetryReports(quiet=True), print_all, print_failures)


@pytest.mark.parametrize(
    "steps",
    [
        "sent:a sent:b sent:c sent:a taken:ab ours:1 taken:c ours:0",
        "foreign sent:a others:1 ours:0",
        "sent:a begins taken:x others:1 begins taken:x others:1 taken:x taken:a ours:0 others:0",
        "foreign sent:a sent:b begins ours:1 taken:b ours:0",
        "runs:a sent:a ours:0",
        "taken:a others:0 sent:a waits:0",
    ],
    ids=[
        "prompts that a turn took together share its result",
        "the result of a turn that somebody else started answers nothing",
        "that of a turn that took only foreign prompts, too, until one of ours comes while it runs",
        "a result without a turn answers the prompt that waits longest: the host could not take it",
        "a prompt that is sent again while its turn runs is answered by that turn",
        "a prompt that is sent again after its result has passed does not wait",
    ],
)
def test_which_prompts_a_result_answers(steps: str) -> None:
    """`ours` and `others`: a result comes, of this run or of another one, and so many prompts wait afterwards."""
    pending = PendingPrompts()
    for step, _, given in (each.partition(":") for each in steps.split()):
        if step == "sent":
            pending.sent(given)
        elif step == "taken":
            pending.taken([*given])
        elif step == "runs":
            pending.runs_already([*given])
        elif step == "begins":
            pending.turn_began_or_ended()
        elif step == "foreign":
            pending.foreign_turn = True
        else:
            assert step == "waits" or pending.result_came() is (step == "ours")
            assert len(pending) == int(given)


async def test_a_turn_without_a_result_gets_one_and_a_turn_with_a_result_no_second_one() -> None:
    output = KeptOutput()
    results = turn_results(output)
    results.pending.sent("a")
    await results.fail(["it broke"], reason="link_lost")
    await results.fail(["again"], reason="link_lost")
    (result,) = output.results
    assert (result["errors"], result["terminal_reason"], output.messages) == (["it broke"], "link_lost", [])
    assert results.exit_code is ExitCode.AGENT_FAILED


async def test_a_result_of_another_turn_is_printed_only_with_print_all() -> None:
    for print_all in (False, True):
        output = KeptOutput()
        results = turn_results(output, print_all=print_all)
        await results.from_host(RESULT, ours=False)
        assert bool(output.results) == print_all and not output.messages


async def test_a_failure_is_not_printed_as_text() -> None:
    output = KeptOutput()
    await turn_results(output, print_failures=False).fail(["on stderr"], reason="aborted")
    assert (output.messages, output.results) == ([], [])


async def test_a_denial_that_nobody_was_asked_about_has_its_own_exit_code_but_in_a_run_of_json_messages() -> None:
    for print_all, denied, code in (
        (False, False, ExitCode.OK),
        (False, True, ExitCode.PERMISSION_DENIED),
        (True, True, ExitCode.OK),
    ):
        results = turn_results(KeptOutput(), print_all=print_all)
        results.pending.sent("a")
        results.denied_unasked = denied
        await results.from_host(RESULT, ours=results.pending.result_came())
        assert results.complete and results.exit_code is code


async def test_a_result_names_its_place_and_its_prompts() -> None:
    output = KeptOutput()
    results = turn_results(output, print_all=True, lifecycle=True)
    reports = results.reports
    for each in ("i1", "i2", "i3"):
        results.pending.sent(each)
        await reports.queued(each, f"uuid of {each}")
    for taken in (["i1", "i2"], ["i3"]):
        results.pending.taken(taken)
        await reports.taken(taken)
        await results.from_host(RESULT, ours=results.pending.result_came())
        await reports.turn_ended()
    assert {each["type"] for each in output.messages} == {"command_lifecycle"}
    first, second = output.results
    assert (first["result_index"], first["queued_turn_count"]) == (0, 1)
    assert (first["user_message_uuid"], first["user_message_uuids"]) == ("uuid of i2", ["uuid of i1", "uuid of i2"])
    assert (second["result_index"], second["queued_turn_count"], second["user_message_uuid"]) == (1, 0, "uuid of i3")


async def test_a_result_tells_what_was_used_since_the_one_before() -> None:
    output = KeptOutput()
    results = turn_results(output, print_all=True)
    sums = {"inputTokens": 3, "costUSD": 0.5, "contextWindow": 200_000}
    other = {"inputTokens": 1, "costUSD": 0.25, "contextWindow": 100_000}
    await results.from_host({**RESULT, "modelUsage": {"one": sums}}, ours=True)
    await results.from_host({**RESULT, "modelUsage": {"one": sums, "two": other}}, ours=True)
    later = {**other, "inputTokens": 11, "costUSD": 1.0}
    await results.from_host({**RESULT, "modelUsage": {"one": sums, "two": later}}, ours=True)
    since = [each["model_usage_since_last_result"] for each in output.results]
    assert since[:2] == [{"one": sums}, {"two": other}]
    assert since[2] == {"two": {"inputTokens": 10, "costUSD": 0.75, "contextWindow": 100_000}}


async def test_every_change_of_what_runs_in_the_background_is_told_with_all_that_does() -> None:
    output = KeptOutput()
    results, printed = turn_results(output, print_all=True, lifecycle=True), output.messages

    async def news(subtype: str, **more: object) -> None:
        body = {"type": "system", "subtype": subtype, "task_id": "b1", "tool_use_id": "t1", **more}
        line = parse_message(body)
        assert isinstance(line, TaskMessage)
        results.pending.task_news(line)
        await results.reports.background(results.pending.tasks.values())

    await news("task_started", task_type="local_bash", description="the build")
    assert not printed, "the agent waits for it"
    await news("task_updated", patch={"is_backgrounded": True})
    await news("task_notification", status="completed")
    assert {each["subtype"] for each in printed} == {"background_tasks_changed"}
    task = {"task_id": "b1", "task_type": "local_bash", "description": "the build", "tool_use_id": "t1"}
    assert [each["tasks"] for each in printed] == [[task], []]


DONE: Json = {"type": "result", "subtype": "success", "is_error": False, "result": "All good."}
UNANSWERED = "The turn ended without an answer"
STOPPED: Json = {"subtype": "error_during_execution", "is_error": True, "result": None}


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


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        ({}, ExitCode.OK, "All good."),
        ({"result": " \n"}, ExitCode.AGENT_FAILED, f"{UNANSWERED}."),
        ({"result": "", "terminal_reason": "completed"}, ExitCode.AGENT_FAILED, f"{UNANSWERED}."),
        ({"result": "", "terminal_reason": "hook_stopped"}, ExitCode.AGENT_FAILED, f"{UNANSWERED} (hook stopped)."),
        ({"result": "", "num_turns": 0}, ExitCode.OK, ""),
        ({"result": f"{BLOCKED_PROMPT} no", "num_turns": 0}, ExitCode.AGENT_FAILED, f"{BLOCKED_PROMPT} no"),
        ({"result": "", "structured_output": {"n": 1}}, ExitCode.OK, '{"n":1}'),
        ({"result": "API Error: 500 x", "is_error": True}, ExitCode.AGENT_FAILED, "API Error: 500 x"),
        ({**STOPPED, "errors": ["Bad\x1b[2J"]}, ExitCode.AGENT_FAILED, "Error: Bad"),
        (STOPPED, ExitCode.AGENT_FAILED, "Error: error_during_execution"),
    ],
)
async def test_only_answers_count(change: Json, code: ExitCode, text: str, capfd: pytest.CaptureFixture[str]) -> None:
    result = {**DONE, "num_turns": 1, **change}
    assert exit_code(result, wants_answer=True) is code
    of_json = ExitCode.AGENT_FAILED if result["is_error"] else ExitCode.OK
    assert exit_code(result) is of_json, "JSON has the whole result"
    writer = Writer(1)
    output = formats.make_output("text", writer, verbose=False, terminal=False)
    await output.result(result)
    await output.finish()
    await writer.drain()
    out, err = capfd.readouterr()
    told = f"{text}\n" if text else ""
    assert (out, err) == ((told, "") if code is ExitCode.OK else ("", f"ccb: {told}"))


def test_a_result_made_here_has_what_clients_require() -> None:
    result = formats.local_result("sid", ["no link"], reason="link_lost", duration_ms=12)
    assert isinstance(parse_message(result), ResultMessage)
    assert (result["terminal_reason"], result["session_id"]) == ("link_lost", "sid")
    for name in ("subtype", "duration_ms", "duration_api_ms", "is_error", "num_turns", "session_id"):
        assert name in result
