"""The ledger keeps one row for each model call, and a budget holds over all ccb of this machine."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import sqlite3
import stat
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.run_words import run_words

from ccb.local.command_line.arguments import FleetOptions
from ccb.local.command_line.exit_codes import ExitCode
from ccb.local.config.settings import settings_path
from ccb.local.config.settings_loading import load_settings
from ccb.local.ledger import budgets as module
from ccb.local.ledger import call_ledger
from ccb.local.ledger.budgets import BUDGET_KIND, Budgets, LedgerThread, SessionAccounts, budgets
from ccb.local.ledger.call_ledger import CallLedger, CallPlace, dollars, ledger_path, open_ledger
from ccb.local.ledger.proxy_control import call_policy, check_allowed
from ccb.tunnel.errors import ConfigError, UsageError
from ccb.tunnel.providers.api_errors import Refusal
from ccb.tunnel.providers.costs import BilledRequest
from ccb.tunnel.proxy.metering import CallReport, Reservation, TokenCounts
from ccb.tunnel.proxy.policy import MAX_CALLS, Policy
from ccb.tunnel.wire.model_facts import claude_facts

PLACE = CallPlace("s1", "gpu", "/work")


def report(usd: float = 0.5, *, began: float | None = None, model: str = "claude-sonnet-4-5") -> CallReport:
    at = time.time() if began is None else began
    rest = (0.2, 1.0, 200, True, 100, "d")  # the times, the status, whether it is complete, the bytes, the digest
    priced = claude_facts(model).priced
    return CallReport("c1", "/v1/messages", model, TokenCounts(10, 20, 30, 40), usd, at, *rest, priced=priced)


def test_calls_are_summed_by_group_and_rows_are_never_changed(tmp_path: Path) -> None:
    with CallLedger(tmp_path / "state" / "ledger.sqlite3") as ledger:
        ledger.add(PLACE, report(began=1_000))
        ledger.add(CallPlace("s2", "web", "/x"), report(0.25, began=2_000, model="claude-haiku-4-5"))
        ledger.add(PLACE, report(began=3_000))
        hosts = ledger.sums("host")
        assert [(each.group, each.calls, each.usd, each.last) for each in hosts] == [
            ("web", 1, 0.25, 2_000),
            ("gpu", 2, 1.0, 3_000),
        ]
        assert [each.group for each in ledger.sums("model")] == ["claude-haiku-4-5", "claude-sonnet-4-5"]
        assert ledger.spent(since=2_000).usd == 0.75
        assert (ledger.spent(session="s1").usd, ledger.spent(host="web").tokens) == (1.0, 100)
        with pytest.raises(sqlite3.IntegrityError, match="not changed"):
            ledger._base.execute("UPDATE calls SET usd = 0")
        with pytest.raises(sqlite3.IntegrityError, match="not removed"):
            ledger._base.execute("DELETE FROM calls")
    path = tmp_path / "state" / "ledger.sqlite3"
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)) == (0o600, 0o700)


def test_a_ledger_of_an_older_version_learns_which_calls_are_estimated(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite3"
    with sqlite3.connect(path) as older:
        older.execute(call_ledger._TABLE.replace(", estimated INTEGER NOT NULL DEFAULT 0", ""))
        older.execute("PRAGMA user_version=4")
    older.close()
    with CallLedger(path) as ledger:
        ledger.add(PLACE, report())
        ledger.add(PLACE, replace(report(), estimated=True))
        (sums,) = ledger.sums("host")
    assert (sums.calls, sums.estimated) == (2, 1)


def _add_many(path: Path, count: int) -> None:
    with CallLedger(path) as ledger:
        for _ in range(count):
            ledger.add(PLACE, report(0.01))


def test_several_ccb_write_at_once_and_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite3"
    writers = [multiprocessing.get_context("fork").Process(target=_add_many, args=(path, 50)) for _ in range(4)]
    for each in writers:
        each.start()
    for each in writers:
        each.join(60)
        assert each.exitcode == 0
    with CallLedger(path) as ledger:
        assert [each.calls for each in ledger.sums("session")] == [200]


@pytest.mark.parametrize(
    ("amount", "shown"),
    [(0, "$0.00"), (0.0004, "$0.0004"), (0.00123, "$0.0012"), (0.02, "$0.02"), (1234.5, "$1,234.50")],
)
def test_an_amount_never_rounds_to_nothing(amount: float, shown: str) -> None:
    assert dollars(amount) == shown


ASKED = BilledRequest("claude-haiku-4-5", 100, 1_000)
DEAR = BilledRequest("claude-opus-4-1", 10, 64_000)
FREE = Reservation()


async def test_a_budget_counts_what_other_ccb_have_spent(tmp_path: Path) -> None:
    with CallLedger(ledger_path(tmp_path)) as other:
        other.add(CallPlace("s9", "web", "/"), report(0.7))
        told: list[str] = []
        async with SessionAccounts(tmp_path, Budgets(day_usd=1.0), warn=told.append) as accounts:
            accounts.place = PLACE
            accounts.ended(report(0.2), await accounts.reserve(ASKED))
            accounts.ended(report(0.0), await accounts.reserve(ASKED))
            assert told == ["$0.90 of the budget of the day ($1.00) are spent."]
            other.add(CallPlace("s9", "web", "/"), report(0.2))
            with pytest.raises(Refusal, match=r"the budget of the day is used up: \$1.10 of \$1.00") as refused:
                await accounts.reserve(ASKED)
            assert (refused.value.kind, refused.value.headers) == ("laptop_budget", {"x-should-retry": "false"})
            assert told[1:] == ["No more model calls: the budget of the day is used up: $1.10 of $1.00."]
        assert other.spent(session="s1").usd == pytest.approx(0.2)


async def refused_at_once(accounts: SessionAccounts, monkeypatch: pytest.MonkeyPatch) -> Refusal:
    """Return how a call is refused that has no time to wait for those under way."""
    with monkeypatch.context() as at, pytest.raises(Refusal) as refused:
        at.setattr(module, "_WAITS_S", 0.0)
        await accounts.reserve(DEAR)
    return refused.value


LIMITS = Budgets(run_usd=1.0), Budgets(session_usd=1.0), Budgets(day_usd=1.0), Budgets(session_tokens=70_000)


@pytest.mark.parametrize("budgets", LIMITS, ids=str)
async def test_near_the_end_of_a_budget_calls_wait_for_those_under_way(
    tmp_path: Path, budgets: Budgets, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SessionAccounts(tmp_path, budgets) as accounts:
        reserved = await accounts.reserve(replace(DEAR, size=1_000))  # may cost more than all of it
        waiting = asyncio.create_task(accounts.reserve(DEAR))
        await asyncio.sleep(0)  # it has begun to wait
        refused = await refused_at_once(accounts, monkeypatch)
        assert (refused.status, refused.headers) == (529, {"retry-after": "1"})
        assert not waiting.done()
        accounts.ended(report(0.1), reserved)
        accounts.ended(report(0.9), await waiting)
        if budgets.in_dollars:
            with pytest.raises(Refusal, match="is used up"):
                await accounts.reserve(ASKED)


@pytest.mark.parametrize(
    "budgets",
    [Budgets(run_usd=0.05, strict=True), Budgets(day_usd=0.05, strict=True), Budgets(day_tokens=3_000, strict=True)],
)
async def test_under_a_strict_budget_no_call_may_pass_it(tmp_path: Path, budgets: Budgets) -> None:
    small = BilledRequest("claude-opus-4-5", 100, 1_000)  # at most $0.025 and its bytes
    async with SessionAccounts(tmp_path, budgets) as accounts:
        with pytest.raises(Refusal) as caught:
            await accounts.reserve(replace(small, longest=4_000))
        assert caught.value.kind == BUDGET_KIND and " are left, and this call may take " in str(caught.value)
        accounts.ended(report(0.03), await accounts.reserve(small))
        if budgets.in_dollars:
            with pytest.raises(Refusal):
                await accounts.reserve(small)


async def test_small_calls_go_out_together_and_who_gives_up_while_it_reserves_holds_nothing(tmp_path: Path) -> None:
    async with SessionAccounts(tmp_path, Budgets(day_usd=1.0, run_usd=1.0)) as accounts:
        reserving = asyncio.create_task(accounts.reserve(DEAR))
        await asyncio.sleep(0)
        reserving.cancel()
        await asyncio.gather(reserving, return_exceptions=True)
        accounts.ended(report(0.0), await accounts.reserve(DEAR))
        for _ in range(50):
            assert (await accounts.reserve(replace(ASKED, size=300))).usd == pytest.approx(0.005 + 0.0002)


OTHER_CCB = """
import asyncio, sys
from pathlib import Path
from ccb.local.ledger.budgets import Budgets, SessionAccounts
from tests.local.ledger.test_ledger import DEAR, PLACE, report

async def main():
    async with SessionAccounts(Path(sys.argv[1]), Budgets(day_usd=1.0)) as accounts:
        accounts.place = PLACE
        for line in sys.stdin:
            reserved = await accounts.reserve(DEAR)
            print("reserved", flush=True)
            sys.stdin.readline()
            accounts.ended(report(0.1), reserved)

asyncio.run(main())
"""


async def test_a_budget_holds_over_calls_of_several_ccb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process has a call under way that may use the budget up: no call goes out here before that has ended,
    or its process."""
    root = Path(__file__).parents[3]
    environ = {"PYTHONPATH": f"{root}/src:{root}"}
    command = (sys.executable, "-c", OTHER_CCB, str(tmp_path))
    other = await asyncio.create_subprocess_exec(*command, cwd=root, env=environ, stdin=-1, stdout=-1)
    assert other.stdin is not None and other.stdout is not None
    told: list[str] = []
    async with SessionAccounts(tmp_path, Budgets(day_usd=1.0), warn=told.append) as accounts:
        for ends in ("its call", "its process"):
            other.stdin.write(b"\n")
            assert await other.stdout.readline() == b"reserved\n"
            waiting = asyncio.create_task(accounts.reserve(DEAR))
            await asyncio.sleep(0)  # it has begun to wait
            assert (await refused_at_once(accounts, monkeypatch)).status == 529 and not waiting.done()
            if ends == "its call":
                other.stdin.write(b"\n")
            else:
                other.kill()
            async with asyncio.timeout(30):
                accounts.ended(report(0.1), await waiting)
    await other.wait()
    assert told == ["A model call waits: those under way may use up the budget of the day."]
    with CallLedger(ledger_path(tmp_path)) as ledger:
        assert ledger.spent().usd == pytest.approx(0.3), "the call of the process that was killed is not known"
        for table in ("reservations", "settlements"):
            with pytest.raises(sqlite3.IntegrityError, match="not removed"):
                ledger._base.execute(f"DELETE FROM {table}")
    assert not list((tmp_path / "ledger.owners").iterdir())


async def test_a_strict_budget_holds_over_the_many_sessions_of_two_fleets(tmp_path: Path) -> None:
    """Each fleet has one thread with the ledger for all its sessions, as another process has."""
    small = BilledRequest("claude-opus-4-5", 100, 1_000)
    async with SessionAccounts(tmp_path, Budgets(day_usd=1.0)) as accounts:
        usd = (await accounts.reserve(small)).usd  # it is given up

    async def one_call(ledger: LedgerThread) -> bool:
        async with SessionAccounts(tmp_path, Budgets(day_usd=40.5 * usd, strict=True), shared=ledger) as accounts:
            try:
                accounts.ended(report(usd), await accounts.reserve(small))
            except Refusal as refusal:
                assert refusal.kind == BUDGET_KIND
                return False
        return True

    fleets = LedgerThread(tmp_path), LedgerThread(tmp_path)
    went = await asyncio.gather(*(one_call(fleets[number % 2]) for number in range(120)))
    for each in fleets:
        await each.aclose()
    assert sum(went) == 40
    with CallLedger(ledger_path(tmp_path)) as ledger:
        assert ledger.spent().usd == pytest.approx(40 * usd)


async def test_a_fleet_has_one_budget_and_each_of_its_hosts_another(tmp_path: Path) -> None:
    limits = Budgets(fleet="f1", fleet_usd=1.0, fleet_host_usd=0.5)
    with CallLedger(ledger_path(tmp_path)) as ledger:
        ledger.join("f1", ["s1", "s2", "s3"])
        ledger.add(CallPlace("s9", "web", "/"), report(9.0))  # of no fleet
        ledger.add(CallPlace("s1", "web", "/"), report(0.3))
        async with SessionAccounts(tmp_path, limits) as accounts:
            accounts.place = CallPlace("s2", "web", "/")
            accounts.ended(report(0.3), await accounts.reserve(ASKED))
            with pytest.raises(Refusal, match=r"the budget of the fleet on web is used up: \$0.60 of \$0.50"):
                await accounts.reserve(ASKED)
            accounts.place = CallPlace("s3", "db", "/")
            accounts.ended(report(0.4), await accounts.reserve(ASKED))
            with pytest.raises(Refusal, match=r"the budget of the fleet is used up: \$1.00 of \$1.00"):
                await accounts.reserve(ASKED)
        assert ledger.spent(fleet="f1").usd == pytest.approx(1.0) and not ledger.spent(fleet="f2").usd


async def test_a_budget_in_dollars_needs_prices(tmp_path: Path) -> None:
    async with SessionAccounts(tmp_path, Budgets(run_usd=1.0)) as accounts:
        accounts.check_model("opus")
        accounts.check_model(None)
        with pytest.raises(UsageError, match="the price of grok-9 is not known"):
            accounts.check_model("grok-9")
        given_up = replace(report(0.0, model="grok-9"), tokens=TokenCounts(10, 20, 30, 0))  # its request is paid for
        accounts.ended(given_up, await accounts.reserve(ASKED))
        with pytest.raises(Refusal, match="the price of grok-9 is not known"):
            await accounts.reserve(ASKED)
    async with SessionAccounts(tmp_path, Budgets()) as accounts:
        accounts.check_model("grok-9")


async def test_without_a_ledger_calls_go_on_budgets_refuse(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ledger_path(tmp_path).write_bytes(b"this is no database" * 100)
    with pytest.raises(ConfigError, match="cannot be used"):
        open_ledger(tmp_path)
    told: list[str] = []
    async with SessionAccounts(tmp_path, Budgets(), warn=told.append) as accounts:
        accounts.ended(report(), await accounts.reserve(ASKED))
        async with asyncio.timeout(10):
            while not told:
                await asyncio.sleep(0.01)
                accounts.ended(report(), FREE)
    assert "not in the ledger" in caplog.text
    assert len(told) == 1 and "not in the ledger any more: " in told[0]
    async with SessionAccounts(tmp_path, Budgets(day_usd=1.0)) as accounts:
        for _ in range(2):
            with pytest.raises(Refusal, match="no budget can hold"):
                await accounts.reserve(ASKED)


async def test_writing_and_reserving_do_not_hold_up_the_answers(tmp_path: Path) -> None:
    """Another program holds the file for writing. Rows and reservations wait, the loop does not."""
    with CallLedger(ledger_path(tmp_path)) as ledger:
        ledger._base.execute("BEGIN IMMEDIATE")
        async with SessionAccounts(tmp_path, Budgets(day_usd=9.0)) as accounts:
            async with asyncio.timeout(4):  # it would wait for five
                accounts.ended(report(), FREE)
                reserving = asyncio.create_task(accounts.reserve(ASKED))
                for _ in range(10):
                    await asyncio.sleep(0)
                assert not reserving.done()
            ledger._base.execute("COMMIT")
            assert (await reserving).row
        assert ledger.spent().usd == 0.5


async def test_a_ledger_that_was_locked_counts_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_ledger, "_BUSY_MS", 20)
    with CallLedger(ledger_path(tmp_path)) as ledger:
        async with SessionAccounts(tmp_path, Budgets(day_usd=1.0)) as accounts:
            accounts.ended(report(0.1), await accounts.reserve(ASKED))
            ledger._base.execute("BEGIN IMMEDIATE")
            accounts.ended(report(0.2), FREE)
            with pytest.raises(Refusal, match="no budget can hold: database is locked"):
                await accounts.reserve(ASKED)
            ledger._base.execute("COMMIT")
            accounts.ended(report(0.4), await accounts.reserve(ASKED))
        assert ledger.spent().usd == pytest.approx(0.7), "what has ended meanwhile is not lost"


async def test_a_person_without_a_budget_is_told_once_that_five_dollars_are_spent(tmp_path: Path) -> None:
    for limits, count in ((Budgets(), 1), (Budgets(day_tokens=10**9), 1), (Budgets(run_usd=50.0), 0)):
        told: list[str] = []
        async with SessionAccounts(tmp_path, limits, warn=told.append) as accounts:
            accounts.place = PLACE
            accounts.ended(report(4.9), FREE)
            assert told == []
            accounts.ended(report(0.3), FREE)
            accounts.ended(report(3.0), FREE)
            assert len(told) == count
            assert all(text.startswith("This session has cost $5.20 since you connected") for text in told)


TEXT = """
{
  "modelCalls": {
    "models": ["claude-*"], "maxConcurrent": 8,
    "hosts": {"gpu-*": {"expiresHours": 2, "models": ["m"]}, "gpu-7": {"perMinute": 5}}
  },
  "budgets": {"dayUsd": 9, "sessionTokens": 7, "hosts": {"gpu-*": {"dayUsd": 3}}}
}
"""


def settings_file(home: Path, text: str) -> dict[str, str]:
    environ = {"HOME": str(home)}
    path = settings_path(environ)
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return environ


def test_a_host_has_its_own_limits_and_budgets(tmp_path: Path) -> None:
    policy = call_policy(load_settings({"HOME": str(tmp_path)}), "web")
    assert policy == Policy() and policy.max_calls == MAX_CALLS, "without settings they are those of the proxy"
    settings = load_settings(settings_file(tmp_path, TEXT))
    assert settings.warnings == []
    other, gpu = call_policy(settings, "web"), call_policy(settings, "gpu-7")
    assert (other.requests.models, other.max_calls, other.lasts_s) == (("claude-*",), 8, None)
    assert (gpu.requests.models, gpu.max_calls, gpu.lasts_s, gpu.max_per_minute) == (("m",), 8, 7200, 5)
    web, there = (budgets(usd, settings, host, FleetOptions()) for usd, host in ((None, "web"), (1.5, "gpu-7")))
    assert (web.host_usd, web.session_tokens, web.day_usd) == (None, 7, 9)
    assert (there.host_usd, there.run_usd) == (3, 1.5)
    check_allowed("claude-sonnet-4-5[1m]", settings, "web")
    with pytest.raises(UsageError, match="do not allow the model gpt-5 on web") as caught:
        check_allowed("gpt-5", settings, "web")
    assert "claude-*" in caught.value.evidence


def test_a_wrong_limit_of_a_host_is_named_with_its_line(tmp_path: Path) -> None:
    environ = settings_file(tmp_path, TEXT.replace('"perMinute": 5', '"perMinute": 0'))
    with pytest.raises(ConfigError, match=r"line 5: modelCalls\.hosts\.gpu-7\.perMinute"):
        load_settings(environ)


def test_sums_are_printed_with_their_total(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}

    def costs() -> list[tuple[str, str]]:
        """The name of each row, and what it has cost."""
        assert run_words(["usage", "--by", "model", "--days", "1"], environ) == ExitCode.OK
        heading, *rows = capsys.readouterr().out.splitlines()
        assert heading.split()[0] == "MODEL" and heading.split()[6] == "COST"
        assert len({len(row) for row in [heading, *rows]}) == 1 and "\x1b" not in "".join(rows)
        return [(row.split()[0][:6], row.split()[6]) for row in rows]

    assert run_words(["usage"], environ) == ExitCode.OK
    assert capsys.readouterr().out == "No model calls yet.\n"
    with CallLedger(ledger_path(tmp_path / "ccb")) as ledger:
        ledger.add(PLACE, report(1.5, model="claude-\x1b[31mred"))
        ledger.add(PLACE, report(0.25))
        ledger.add(PLACE, report(9.0, began=1_000))
        assert costs() == [("claude", "$1.50"), ("claude", "$0.25"), ("total", "$1.75")]
        assert run_words(["usage", "--by", "host", "--json"], environ) == ExitCode.OK
        (line,) = capsys.readouterr().out.splitlines()
        assert (json.loads(line)["host"], json.loads(line)["calls"]) == ("gpu", 3)
        ledger.add(PLACE, replace(report(0.5, model="silent"), estimated=True))
        assert costs()[1:] == [("claude", "$0.25"), ("silent", "~$0.50"), ("total", "~$2.25")], "some are estimated"


def test_wrong_options_and_a_broken_file_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    for args in (["--by", "moon"], ["--days", "-1"], ["--days", "many"]):
        assert run_words(["usage", *args], environ) == ExitCode.USAGE
        assert "error: option '--" in capsys.readouterr().err
    path = ledger_path(tmp_path / "ccb")
    path.parent.mkdir()
    with sqlite3.connect(path) as base:
        base.execute("PRAGMA user_version=9")
    assert run_words(["usage"], environ) == ExitCode.CONFIG
    assert "cannot be read" in capsys.readouterr().err
