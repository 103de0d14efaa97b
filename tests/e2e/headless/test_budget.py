"""A budget holds over runs, because this machine counts for itself; `ccb usage` shows what it has counted."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.support.model.fake_model import FakeModel
from tests.support.model.model_script import uses
from tests.support.person.laptop import Laptop

from ccb.local.command_line.exit_codes import ExitCode

ARGV = ["-p", "go", "--output-format", "stream-json", "--verbose"]


async def test_a_run_beyond_the_budget_of_the_day_is_refused_on_the_laptop(
    laptop: Laptop, fake_model: FakeModel
) -> None:
    config = laptop.home / ".config" / "ccb"
    config.mkdir(parents=True)
    (config / "settings.json").write_text(json.dumps({"budgets": {"dayUsd": 0.000001}}))
    fake_model.add({"text": "one"}, {"text": "two"})
    first = await laptop.run(ARGV)
    assert (first.code, first.results[0]["result"]) == (0, "one"), first.stderr
    second = await laptop.run(ARGV)
    (result,) = second.results
    assert (second.code, result["subtype"]) == (ExitCode.LIMIT_REACHED, "error_max_budget_usd")
    assert "the budget of the day is used up" in result["errors"][0]
    assert "No more model calls: the budget of the day is used up" in second.stderr
    assert len(fake_model.requests) == 1
    shown = await laptop.run(["usage", "--by", "session", "--json"])
    (row,) = map(json.loads, shown.stdout.splitlines())
    assert (row["session"], row["calls"]) == (first.results[0]["session_id"], 1)
    assert row["usd"] == pytest.approx(first.results[0]["total_cost_usd"])
    table = (await laptop.run(["usage", "--by", "model"])).stdout.splitlines()
    assert table[0].split() == ["MODEL", "CALLS", "FAILED", "INPUT", "CACHED", "OUTPUT", "COST", "LAST"]
    assert table[1].split()[1:3] == ["1", "0"] and len(table) == 2


async def test_a_budget_for_a_model_without_a_price_is_refused_before_anything_is_asked(
    laptop: Laptop, fake_model: FakeModel
) -> None:
    done = await laptop.run([*ARGV, "--model", "some/model-9", "--max-budget-usd", "1"])
    assert done.code == ExitCode.USAGE and "the price of some/model-9 is not known" in done.stderr
    assert not fake_model.requests


async def test_a_run_is_revoked_from_another_terminal_and_audited(laptop: Laptop, fake_model: FakeModel) -> None:
    fake_model.add(uses("Bash", command="echo hi"))
    fake_model.add({"text": "a long answer", "stall_after": 2})
    async with laptop.start(ARGV) as running:
        session = str((await running.until("system", "init"))["session_id"])
        await running.until("user")
        async with asyncio.timeout(60):
            while len(fake_model.requests) < 2:
                await asyncio.sleep(0.01)
        revoked = await laptop.run(["proxy", "revoke", session])
        assert (revoked.code, session in revoked.stdout) == (0, True), revoked.stderr
        result = await running.until("result")
    assert result["is_error"] and "revoked" in json.dumps(result)
    audit = await laptop.run(["audit", session[:8], "--json"])
    kinds = [json.loads(line)["kind"] for line in audit.stdout.splitlines()]
    assert audit.code == 0
    assert [each for each in kinds if each != "also"] == ["prompt", "asked", "wanted", "result", "revoked"]
    assert len(fake_model.requests) == 2
