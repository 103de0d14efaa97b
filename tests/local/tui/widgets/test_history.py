"""A long session on a fresh terminal: the tail is there at once, and what came before when the person looks for it."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.repl.pilot import Desk, desk
from tests.support.repl.scripted_session import ScriptedSession, question
from textual import events

from ccb.local.session.session_client import LinkState, SessionEvent
from ccb.local.tui.widgets import drawing

TOP = "… earlier events are not loaded · PgUp here loads them"
RESULT = {
    "total_cost_usd": 1.25,
    "modelUsage": {
        "a": {"inputTokens": 100_000, "cacheReadInputTokens": 20_000, "outputTokens": 8_000},
        "b": {"inputTokens": 3_000, "outputTokens": 500},
    },
}


def said(seq: int, text: str) -> SessionEvent:
    message = {"id": f"msg_{seq}", "role": "assistant", "content": [{"type": "text", "text": text}]}
    return SessionEvent("message", {"type": "assistant", "message": message, "uuid": f"u{seq}"}, seq, True)


def long_session(count: int = 25, kind: type[ScriptedSession] = ScriptedSession) -> ScriptedSession:
    """One whose first `count` events are not replayed."""
    session = kind()
    session.past = [said(seq, f"event {seq:04}") for seq in range(1, count + 1)]
    session.skip(count)
    with session.replay():
        session.text(f"event {count + 1:04}")
    return session


def numbers(at: Desk) -> list[str]:
    return [line.strip().removeprefix("event ") for line in at.lines if "event 0" in line]


def told(at: Desk) -> list[str]:
    texts = (getattr(block, "text", "") for block in at.view.transcript.blocks)
    return [text for text in texts if text.startswith("event")]


async def _top(at: Desk) -> None:
    """Page up until nothing moves any more."""
    for _ in range(60):
        await at.press("pageup")
        await at.pilot.pause()


async def test_a_fresh_terminal_begins_with_a_line_and_knows_what_has_to_be_known() -> None:
    session = ScriptedSession()
    session.skip(
        1234,
        model="claude-opus-4",
        permission_mode="acceptEdits",
        result=RESULT,
        todos=[{"content": "Read the code", "status": "completed"}, {"content": "Fix it", "status": "pending"}],
        asks=[question("ask", "Bash", {"command": "make"})],
    )
    with session.replay():
        session.text("The end of the story.")
    async with desk(session) as at:
        await at.sees(
            TOP, "☒ Read the code", "☐ Fix it", "The end of the story.", "Bash on devbox:/srv/shop", "1 Yes, once"
        )
        await at.card_focused(sees="accept edits  waits for an answer  claude-opus-4  123.0k in, 8.5k out  $1.25")
        assert at.screen.index(TOP) < at.screen.index("The end of the story.")


async def test_what_the_tail_says_again_is_counted_and_shown_once() -> None:
    todos = [{"content": "Fix it", "status": "pending"}]
    session = ScriptedSession()
    session.skip(10, result=RESULT, todos=todos)
    with session.replay():
        session.done(session.call("TodoWrite", todos=todos), "ok")
        session.finish(modelUsage=RESULT["modelUsage"], cost=1.25)
    async with desk(session, sees="123.0k in, 8.5k out  $1.25") as at:
        assert [line.split("   ")[-1].strip() for line in at.screen.splitlines() if "Fix it" in line] == [
            "☐ Fix it",  # in the conversation, once
            "0 of 1 done, Ctrl+T",  # above the composer
        ]


async def test_an_ask_of_the_snapshot_that_the_tail_answers_is_never_shown() -> None:
    session = ScriptedSession()
    session.skip(10, asks=[question("ask", "Bash", {"command": "make"})])
    with session.replay():
        session.answered("ask")
    session.text("Made.")
    async with desk(session, sees="Made.") as at:
        assert at.view.card is None and not len(at.view.approvals.questions)


def sent(identity: str, text: str, *, taken: bool) -> dict[str, object]:
    return {"input": identity, "uuid": identity, "text": text, "taken": taken}


async def test_a_tail_in_the_middle_of_a_turn_has_its_prompt_above_it_and_what_is_queued_below() -> None:
    session = ScriptedSession()
    session.skip(10, prompts=[sent("p1", "port it to Rust", taken=True), sent("p2", "and then rest", taken=False)])
    session.text("Still at it.")
    async with desk(session, sees=(TOP, "❯ port it to Rust", "Still at it.", "❯ and then rest  (queued)")) as at:
        order = [at.screen.index(text) for text in (TOP, "port it", "Still at it.", "and then rest")]
        assert order == sorted(order)
        session.take("p2")
        session.text("Resting.", message_id="msg_2")
        await at.sees("Resting.")
        assert at.screen.index("Still at it.") < at.screen.index("and then rest") < at.screen.index("Resting.")
        await at.loses("queued")


async def test_a_prompt_told_with_the_tail_goes_to_its_place_when_that_is_loaded() -> None:
    session = ScriptedSession()
    body = {
        "id": "p1",
        "body": {"type": "user", "uuid": "p1", "message": {"role": "user", "content": "port it to Rust"}},
    }
    session.past = [
        said(1, "event 0001"), SessionEvent("input", body, 2, True), SessionEvent("turn_start", {}, 3, True),
        SessionEvent("prompt", {"items": [{"input": "p1"}]}, 4, True), said(5, "event 0005"),
    ]  # fmt: skip
    session.skip(5, prompts=[sent("p1", "port it to Rust", taken=True)])
    session.text("event 0006")
    async with desk(session, sees=(TOP, "❯ port it to Rust", "event 0006")) as at:
        await at.press("pageup", sees=("event 0001", "event 0005"))
        assert at.screen.count("port it to Rust") == 1
        assert at.screen.index("event 0001") < at.screen.index("port it to Rust") < at.screen.index("event 0005")


async def test_a_queued_prompt_that_was_taken_in_events_that_are_not_loaded_waits_no_more(at: Desk) -> None:
    session = at.session
    await at.turn("first")
    await at.prompt("second")
    session.deliver()
    await at.sees("❯ second  (queued)")
    session.skip(5000, prompts=[sent("p3", "of somebody else", taken=False)])
    await at.sees("❯ of somebody else  (queued)", lacks="second  (queued)")
    session.skip(5000, prompts=[sent("p3", "of somebody else", taken=True)])
    await at.loses("(queued)")
    await at.sees("of somebody else")
    assert at.screen.count("of somebody else") == 1


async def test_page_up_at_the_line_loads_a_page_that_ends_where_the_one_before_began() -> None:
    async with desk(long_session(), size=(60, 14), sees=(TOP, "event 0026")) as at:
        await at.press("pageup", then=lambda: at.session.fetched == [26], sees=("event 0025", "event 0026"))
        shown = numbers(at)
        assert shown == [f"{n:04}" for n in range(27 - len(shown), 27)]
        assert len(shown) == 6


async def test_everything_can_be_reached_in_order_and_each_once() -> None:
    async with desk(long_session(), size=(60, 14), sees=TOP) as at:
        await _top(at)
        await at.until(lambda: at.session.fetched == [26, 16, 6], loses="not loaded")
        at.view.transcript.scroll_home(animate=False)
        await at.sees("event 0001")
        assert told(at) == [f"event {n:04}" for n in range(1, 27)]


async def test_the_wheel_loads_and_the_lines_stay_where_they_are() -> None:
    session = long_session()
    with session.replay():
        for n in range(27, 40):
            session.text(f"event {n:04}", message_id=f"msg_{n}")
    async with desk(session, size=(60, 14), sees="event 0039") as at:
        at.view.transcript.scroll_home(animate=False)
        await at.sees(TOP)
        before = at.lines
        row = next(n for n, line in enumerate(before) if "event 0026" in line)
        at.app.post_message(events.MouseScrollUp(None, 5, 5, 0, -1, 0, False, False, False))
        await at.until(lambda: at.session.fetched == [26], sees="event 0025")
        after = at.lines
        assert "event 0026" in after[row] and after[row:10] == before[row:10]


async def test_a_hole_after_a_long_drop_is_filled_from_below() -> None:
    async with desk(ScriptedSession(), size=(60, 20)) as at:
        await at.says("event 0001", message_id="msg_1", sees="event 0001")
        at.session.past = [said(seq, f"event {seq:04}") for seq in range(1, 22)]
        at.session.link(LinkState.RECONNECTING, "eof")
        at.session.link(LinkState.CONNECTED)
        at.session.skip(20)
        with at.session.replay():
            at.session.text("event 0022", message_id="msg_22")
        await at.sees("event 0001", "… 20 events are not loaded · PgUp here loads them", "event 0022")
        for _ in range(8):
            await at.press("pageup")
            await at.pilot.pause()
        await at.until(lambda: at.session.fetched == [22, 12])
        await at.until(lambda: not any("not loaded" in getattr(b, "text", "") for b in at.view.transcript.blocks))
        assert told(at) == [f"event {n:04}" for n in range(1, 23)]


async def test_a_call_and_its_result_meet_over_the_edge_of_a_page() -> None:
    session = ScriptedSession()
    call = {"type": "tool_use", "id": "toolu_9", "name": "Bash", "input": {"command": "make"}}
    running = {"type": "tool_use", "id": "toolu_10", "name": "Bash", "input": {"command": "make all"}}
    message = {"id": "msg_1", "role": "assistant", "content": [call, running]}
    session.past = [SessionEvent("message", {"type": "assistant", "message": message, "uuid": "u"}, 1, True)]
    session.skip(1)
    with session.replay():
        session.fact("turn_start")
        session.done("toolu_9", "it was made")
    async with desk(session, sees=(TOP, "working")) as at:
        await at.press("pageup", sees=("● Bash make", "it was made", "○ Bash make all"))
        session.done("toolu_10", "all of it")
        await at.sees("● Bash make all", "all of it")


async def test_what_was_withdrawn_later_is_not_loaded() -> None:
    session = ScriptedSession()
    session.past = [said(1, "a try that was taken back"), said(2, "a second try")]
    session.skip(2)
    with session.replay():
        session.fact("withdrawn", message_id="msg_1")
    async with desk(session, sees=TOP) as at:
        await at.press("pageup", sees="a second try", lacks="taken back")


async def test_a_running_call_whose_end_was_skipped_is_not_called_failed(at: Desk) -> None:
    await at.turn()
    at.session.run(at.session.call("Bash", command="make"), "compiling", 3)
    at.session.streams("Half a sen", message_id="msg_2")
    await at.sees("compiling", "Half a sen")
    at.session.skip(500)
    await at.sees("? Bash make", "its result is not known here", loses="Half a sen")


async def test_what_the_host_has_lost_to_damage_leaves_nothing_running_and_no_hole_to_load(at: Desk) -> None:
    await at.turn()
    at.session.run(at.session.call("Bash", command="make"), "compiling", 3)
    await at.sees("compiling", "working")
    at.session.fact("damaged", what="the host has lost the last 2 event(s)")
    for _ in range(3):
        at.session.fact("damaged")  # what cannot be read is told as often as there is of it
    at.session.lose(2)
    await at.sees("is damaged: “the host has lost the last 2", "? Bash make", loses="working")
    at.session.finish(is_error=True, errors=["the worker was stopped"])
    await at.sees("the worker was stopped")
    assert at.screen.count("is damaged") == 1 and not any("not loaded" in line for line in at.lines)


async def test_a_prompt_that_is_shown_already_is_not_loaded_again(at: Desk) -> None:
    session = at.session
    await at.prompt("only once")
    own = {"type": "user", "uuid": session.identities[0], "message": {"role": "user", "content": "only once"}}
    other = {"type": "user", "uuid": "other", "message": {"role": "user", "content": "of another"}}
    session.skip(2)
    session.past = [
        SessionEvent("input", {"id": session.identities[0], "body": own}, 2, True),
        SessionEvent("input", {"id": "other", "body": other}, 3, True),
    ]
    await at.sees("events are not loaded")
    await at.press("pageup", sees="❯ of another")
    assert at.screen.count("only once") == 1


class Slow(ScriptedSession):
    """Its earlier events come when `gate` is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()

    async def earlier(self, before: int, most: int = 256 * 1024) -> list[SessionEvent]:
        records = await super().earlier(before, most)
        await self.gate.wait()
        return records


async def test_what_is_being_loaded_is_not_asked_for_twice() -> None:
    session = long_session(kind=Slow)
    assert isinstance(session, Slow)
    async with desk(session, sees=TOP) as at:
        await at.press("pageup", "pageup", sees="… loading earlier events")
        await at.press("pageup")
        assert at.session.fetched == [26]
        session.gate.set()
        await at.sees("event 0016", TOP)
        assert at.screen.count("event 0025") == 1


async def test_without_a_connection_the_line_says_why_and_the_next_page_up_tries_again() -> None:
    async with desk(long_session(), sees=TOP) as at:
        await at.link(LinkState.NEEDS_PERSON, "a password is asked for", sees="a password is asked for")
        await at.press("pageup", sees="earlier events are not loaded: there is no connection · PgUp tries again")
        at.session.link(LinkState.CONNECTED)
        await at.press("pageup", sees="event 0025")


async def test_events_that_the_host_has_lost_are_said_to_be_missing() -> None:
    session = long_session()
    session.past = session.past[:20]
    async with desk(session, size=(60, 40), sees=TOP) as at:
        await at.press("pageup", sees=("event 0020", "… 5 events are missing on the host", "event 0026"))


async def test_loading_stops_where_the_page_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "MAX_BLOCKS", 20)
    async with desk(long_session(100), size=(60, 14), sees=TOP) as at:
        async with asyncio.timeout(60):
            while "… earlier events are not loaded: this page is full" not in at.screen:
                await _top(at)
        assert at.session.fetched == [101, 91] and len(at.view.transcript.blocks) <= 25


async def test_odd_snapshots_and_pages_hurt_nobody() -> None:
    session = ScriptedSession()
    session.past = [
        SessionEvent("message", {"type": "assistant", "message": 7}, 1, True),
        SessionEvent("input", {"id": 1, "body": [2]}, 2, True),
        SessionEvent("prompt", {"items": "x"}, 3, True),
    ]
    session.skip(3, result=[1], todos={"a": 1}, asks={"b": 2}, model=None, permission_mode=None)
    session.skip(1, result={"modelUsage": {"m": 3, "n": {"inputTokens": "x"}}, "total_cost_usd": "y"}, asks=[5, {}])
    session.text("Still here.")
    async with desk(session, sees="Still here.") as at:
        await at.press("pageup", then=lambda: at.session.fetched, sees="Still here.")
