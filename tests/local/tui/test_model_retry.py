"""While a model does not answer, every way to see a session says so, and when it is asked again."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.repl.pilot import desk

from ccb.local.headless.output_formats import RetryReports
from ccb.local.plain.line_output import LinePrinter
from ccb.local.transcript.notices import Notices
from ccb.tunnel.wire.messages import SystemMessage, parse_message


def retry(attempt: int, delay_s: float) -> dict[str, Any]:
    note = {"type": "system", "subtype": "api_retry", "error": "overloaded", "error_status": 529, "max_retries": 10}
    return {**note, "attempt": attempt, "retry_delay_ms": delay_s * 1000}


def line_of(body: dict[str, Any]) -> SystemMessage:
    line = parse_message(body)
    assert isinstance(line, SystemMessage)
    return line


async def test_the_status_line_counts_down_to_the_next_try_and_stops_when_the_model_answers() -> None:
    async with desk(size=(120, 30), turn="go") as at:
        at.session.say(retry(3, 30))
        await at.sees("The model is overloaded (HTTP 529); try 3 of 10 in 30 s", "asks the model again in 30 s")
        await at.sees("asks the model again in 29 s")
        await at.says("The answer.", then=lambda: "again" not in at.screen.splitlines()[-1])
        assert "try 3 of 10" in at.screen and "in 30 s" not in at.screen  # nobody waits any more


def test_lines_say_each_try() -> None:
    lines: list[str] = []
    notices = Notices(LinePrinter(lambda *more: lines.extend(more)), "me")
    for attempt, delay_s in ((1, 1), (2, 8)):
        notices.system(line_of(retry(attempt, delay_s)))
    assert [line.partition("try ")[2] for line in lines] == ["1 of 10 in 1 s", "2 of 10 in 8 s"]


def test_headless_runs_report_the_first_try_and_those_that_take_long(capsys: pytest.CaptureFixture[str]) -> None:
    reports = RetryReports(quiet=False)
    for attempt, delay_s in ((1, 0.5), (2, 1), (3, 8), (4, 16)):
        reports.system(line_of(retry(attempt, delay_s)))
    said = [line.partition("try ")[2] for line in capsys.readouterr().err.splitlines()]
    assert said == ["1 of 10; trying again", "3 of 10 in 8 s; trying again", "4 of 10 in 16 s; trying again"]


def test_the_last_try_promises_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    RetryReports(quiet=False).system(line_of(retry(10, 32)))
    assert capsys.readouterr().err == "ccb: The model is overloaded (HTTP 529); last try 10 of 10 in 32 s\n"


def silence(silent_s: float | None, left_s: float = 0) -> dict[str, Any]:
    told: dict[str, float | None] = {"silent_ms": None, "retry_in_ms": None}
    if silent_s is not None:
        told = {"silent_ms": silent_s * 1000, "retry_in_ms": left_s * 1000}
    return {"type": "system", "subtype": "model_silent", **told}


async def test_the_status_line_counts_down_while_the_model_says_nothing_until_it_goes_on() -> None:
    async with desk(size=(120, 30), turn="go") as at:
        at.session.progress(silence(60, 240))
        await at.sees("said nothing for 60 s; it is asked again in 240 s", "asks the model again in 240 s")
        await at.sees("asks the model again in 239 s")
        at.session.progress(silence(None))
        await at.loses("again")
        assert "The model has said nothing for 60 s." in at.screen


def test_lines_and_headless_runs_say_that_the_model_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    lines: list[str] = []
    notices = Notices(LinePrinter(lambda *more: lines.extend(more)), "me")
    reports = RetryReports(quiet=False)
    for body in (silence(30, 270), silence(60, 240), silence(None)):
        notices.system(line_of(body))
        reports.system(line_of(body))
    said = [f"The model has said nothing for {s} s; it is asked again in {300 - s} s" for s in (30, 60)]
    assert lines == [f"ccb: warning: {text}" for text in said]
    assert capsys.readouterr().err.splitlines() == [f"ccb: {text}" for text in said]
