"""What the status line says where there is little room for it."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import Any

import pytest
from tests.support.repl.paper import PALETTE
from tests.support.repl.pilot import Desk, desk

from ccb.local.session.session_client import LinkState
from ccb.local.transcript.session_facts import UsageTotals
from ccb.local.tui.widgets.status_line import Busy, LinkFacts, PlaceFacts, StatusFacts, state_in_words, status_text

PLACE = PlaceFacts("devbox", "/srv/deep/app")
IDLE = StatusFacts(PLACE, "claude-sonnet-4-5", "default", LinkFacts(LinkState.CONNECTED), UsageTotals(), None)
WORKING = replace(IDLE, busy=Busy(4.0))
ASKING = replace(IDLE, busy=Busy(4.0, asking=True), card_waits="approval")
RECONNECTING = replace(WORKING, link=LinkFacts(LinkState.RECONNECTING))
EDITS: dict[str, Any] = {"mode": "acceptEdits"}
BYPASS: dict[str, Any] = {"mode": "bypassPermissions"}
LONG = PlaceFacts("alice@build-server-17.internal.example.com", "/home/alice/work/customer-portal")


def test_the_state_in_words_says_whether_the_person_may_look_away() -> None:
    waiting = replace(WORKING, busy=Busy(9.0, for_model=True))
    states = [state_in_words(each) for each in (IDLE, WORKING, waiting, ASKING, RECONNECTING)]
    assert states == ["", "working", "waits for the model", "waits for you", "reconnecting"]
    assert state_in_words(replace(WORKING, link=LinkFacts(LinkState.CONNECTED, 7.0))) == "no answer"
    assert "waits for the model 9 s, Esc interrupts" in line(waiting, 120)


def trip(seconds: float, state: LinkState = LinkState.CONNECTED) -> LinkFacts:
    return LinkFacts(state, round_trip_s=seconds)


def line(facts: StatusFacts, width: int) -> str:
    """The line in a terminal of so many columns, of which it leaves the outer two free."""
    text = status_text(facts, PALETTE, width - 2)
    assert text.cell_len <= width - 2
    return text.plain


@pytest.mark.parametrize(
    ("sandbox", "at_40", "at_80"),
    [
        ("read-only cage", "● devbox:…/app  ask  read-only cage", "● devbox:/srv/deep/app  ask  read-only cage"),
        ("workspace cage", "● devbox:…/deep/app  caged", "● devbox:/srv/deep/app  caged"),
        ("no cage: no Landlock", "● devbox:…/deep/app  ask  no cage", "● devbox:/srv/deep/app  ask  no cage"),
    ],
)
def test_the_cage_in_force_stands_beside_the_mode(sandbox: str, at_40: str, at_80: str) -> None:
    idle = replace(IDLE, sandbox=sandbox)
    assert line(idle, 40) == at_40
    assert line(idle, 80).startswith(at_80)
    assert "cage" in line(replace(idle, busy=Busy(4.0, asking=True)), 60), "also while something goes on"
    assert line(replace(idle, busy=Busy(4.0)), 80).startswith(f"{at_80}  working 4 s, Esc interrupts")


@pytest.mark.parametrize(
    ("facts", "at_40", "at_60", "at_80"),
    [
        (
            IDLE,
            "● devbox:…/deep/app  ask",
            "● devbox:/srv/deep/app  ask  claude-sonnet-4-5",
            "● devbox:/srv/deep/app  ask  claude-sonnet-4-5",
        ),
        (
            replace(WORKING, **EDITS),
            "● devbox:…/app  edits  working 4 s",
            "● devbox:…/app  accept edits  working 4 s, Esc interrupts",
            "● devbox:/srv/deep/app  accept edits  working 4 s, Esc interrupts",
        ),
        (
            replace(ASKING, **EDITS),
            "● devbox:…/app  edits  Tab: answer",
            "● devbox:/srv/deep/app  accept edits  approval waits: Tab",
            "● devbox:/srv/deep/app  accept edits  approval waits: Tab  claude-sonnet-4-5",
        ),
        (
            replace(RECONNECTING, **BYPASS),
            "◌ devbox:…/app  BYPASS  reconnecting",
            "◌ devbox:/srv/deep/app  BYPASS  reconnecting  working 4 s",
            "◌ devbox:/srv/deep/app  BYPASS  reconnecting  working 4 s  claude-sonnet-4-5",
        ),
        (
            replace(WORKING, place=LONG, **EDITS, busy=Busy(1234.0)),
            "● bui…17:cus…al  edits  working 1234 s",
            "● build-server-17:…/customer-portal  edits  working 1234 s",
            "● build-server-17:…/work/customer-portal  accept edits  working 1234 s",
        ),
    ],
    ids=["idle", "working", "approval", "reconnecting", "long names"],
)
def test_the_narrower_the_terminal_the_shorter_the_line(facts: StatusFacts, at_40: str, at_60: str, at_80: str) -> None:
    assert [line(facts, width) for width in (40, 60, 80)] == [at_40, at_60, at_80]


@pytest.mark.parametrize(
    ("mode", "said"), [("default", "ask"), ("acceptEdits", "edits"), ("bypassPermissions", "BYPASS")]
)
@pytest.mark.parametrize(
    "where", [PLACE, LONG, PlaceFacts("web on devbox", "/"), PlaceFacts("デブ箱サーバーの名前が長い", PLACE.path)]
)
def test_at_every_width_from_40_mark_place_mode_and_work_are_seen(mode: str, said: str, where: PlaceFacts) -> None:
    for width in range(40, 130):
        for facts, mark, going in [
            (WORKING, "●", "working 4 s"),
            (replace(WORKING, busy=Busy(9999.0)), "●", "working 9999 s"),
            (ASKING, "●", "Tab"),
            (RECONNECTING, "◌", "reconnecting"),
            (replace(ASKING, link=LinkFacts(LinkState.RECONNECTING)), "◌", "Tab"),
        ]:
            shown = line(replace(facts, mode=mode, place=where), width)
            assert shown.startswith(mark) and said in shown and going in shown, shown
            host, _, directory = shown.split("  ")[0].removeprefix(f"{mark} ").rpartition(":")
            assert len(host) >= 3 and directory, shown


@pytest.mark.parametrize(
    ("host", "short"),
    [
        ("alice@devbox.example.com", "devbox"),
        ("web on alice@devbox.example.com", "web on devbox"),
        ("10.20.30.40", "10.20.30.40"),
        ("root@fe80::1", "fe80::1"),
        ("kubectl exec -i web.0 --", "kubectl exec -i web.0 --"),
    ],
)
def test_a_host_is_shortened_to_the_name_it_is_known_by(host: str, short: str) -> None:
    place = PlaceFacts(host, "/" + "x" * 26)
    assert line(replace(IDLE, place=place), 80).startswith(f"● {short}:")


def test_a_hint_has_the_place_of_the_mode_where_there_is_not_enough_for_both() -> None:
    hinted = replace(IDLE, hint="press Ctrl+C again to quit")
    assert line(hinted, 60).startswith("● devbox:/srv/deep/app  ask  press Ctrl+C again to quit")
    assert line(hinted, 40) == "● devbox:…/app  press Ctrl+C again to…"


async def test_shift_tab_is_seen_in_a_narrow_terminal_while_the_agent_works() -> None:
    async with desk(size=(60, 24)) as at:
        await at.turn(then=lambda: "  ask  working" in at.status)
        await at.press("shift+tab", then=lambda: "  accept edits  working" in at.status)


WORKED = re.compile(r"(?:working|waits for the model) (\d+) s")


@pytest.mark.slow
async def test_the_time_in_which_it_waits_for_the_person_is_not_counted_as_work(at: Desk) -> None:
    await at.prompt("go")
    began_at = time.monotonic()
    at.session.begin()
    await at.until(lambda: WORKED.search(at.status))
    at.session.ask("ask", "Bash", {"command": "make"})
    await at.card_focused(then=lambda: "waits for an answer" in at.status)
    asked_at = time.monotonic()
    assert not WORKED.search(at.status)
    await at.until(lambda: time.monotonic() - asked_at > 2.5)
    waited = time.monotonic() - asked_at
    await at.answer("1", then=lambda: WORKED.search(at.status))
    shown = WORKED.search(at.status)
    assert shown and int(shown[1]) <= time.monotonic() - began_at - waited + 0.5


def test_a_wide_terminal_also_shows_branch_share_of_the_context_queue_and_round_trip() -> None:
    totals = UsageTotals(context_tokens=24_000, model="m", cost_usd=0.5)
    place = replace(PLACE, branch="fix/total")
    full = replace(WORKING, place=place, model="m", totals=totals, waiting=(2, 0), link=trip(0.0351))
    assert line(full, 120) == (
        "● devbox:/srv/deep/app  ask  2 queued  working 4 s, Esc interrupts  fix/total  m  context 24.0k  $0.50  35 ms"
    )
    totals.set_from_result({"modelUsage": {"m": {"contextWindow": 200_000}}})
    assert "context 12%" in line(full, 120)
    used = {"inputTokens": 1_000, "outputTokens": 20, "estimated": True}
    totals.set_from_result({"modelUsage": {"m": used}, "total_cost_usd": 0.5})
    assert "~1.0k in, ~20 out  ~$0.50" in line(full, 140), "the provider has not told all of it"


def test_a_slow_connection_is_called_slow() -> None:
    assert "slow connection, 1.2 s" in line(replace(WORKING, link=trip(1.24)), 80)
    assert "slow" not in line(replace(WORKING, link=trip(0.3)), 80)
    assert "slow" not in line(replace(WORKING, link=trip(1.24, LinkState.RECONNECTING)), 80), "it is gone"
