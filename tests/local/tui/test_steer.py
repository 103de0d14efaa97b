"""Ctrl+S: what is typed, or the next prompt that waits, goes to the agent while it works; Enter queues."""

from __future__ import annotations

from tests.local.tui.test_queue import listed, queued, waiting
from tests.support.repl.pilot import Desk

from ccb.local.session.session_client import LinkState


async def test_ctrl_s_steers_and_enter_queues(at: Desk) -> None:
    await queued(at, "second", "third")
    await at.press(*"look here first", "ctrl+s", then=lambda: at.session.steering == ["look here first"])
    await at.until(lambda: waiting(at) == ["look here first", "second", "third"])
    assert at.composer.text == ""
    await at.sees("❯ look here first  (steers)", "❯ third  (queued)", "1 steering, 2 queued")
    await listed(at)
    await at.sees("  steers  look here first")


async def test_ctrl_s_with_nothing_typed_lets_the_next_prompt_steer(at: Desk) -> None:
    two, three = await queued(at, "second", "third")
    await at.press("ctrl+s", then=lambda: at.session.controls != [])
    assert at.session.controls == [("move_async_message", {"message_uuid": two, "before": [three], "steer": True})]
    await at.sees("❯ second  (steers)", "❯ third  (queued)")
    at.session.fact("moved", id=two, before=three, steers=True)
    await at.press("ctrl+s", "ctrl+s", then=lambda: len(at.session.controls) == 2, sees="Ctrl+S sends what is typed")


async def test_s_in_the_list_lets_a_prompt_steer_but_no_command(at: Desk) -> None:
    _, three, _ = await queued(at, "second", "third", "! make")
    await listed(at)
    await at.press("s", sees="a command has a turn of its own")
    await at.press("up", "s", then=lambda: waiting(at) == ["third", "second", "! make"])
    assert [fields["message_uuid"] for _, fields in at.session.controls] == [three]
    await at.press("s", sees="with its next tool results already")


async def test_another_terminal_lets_a_prompt_steer(at: Desk) -> None:
    _, three = await queued(at, "second", "third")
    at.session.fact("moved", id=three, before="", steers=True)
    await at.until(lambda: waiting(at) == ["third", "second"], sees="❯ third  (steers)")


async def test_a_command_line_never_steers(at: Desk) -> None:
    await queued(at)
    await at.press(*"! make", "ctrl+s", then=lambda: at.session.command_lines == ["! make"])
    assert at.session.steering == []


async def test_what_steers_over_a_lost_connection_is_sent_once(at: Desk) -> None:
    await queued(at)
    at.session.link(LinkState.RECONNECTING, "gone")
    await at.type("look here")
    await at.press("ctrl+s", sees="❯ look here  (waiting to be sent)")
    at.session.link(LinkState.CONNECTED)
    at.session.deliver()
    await at.sees("❯ look here  (steers)")
    assert at.session.steering == ["look here"]
    at.session.take(at.session.identities[-1])
    await at.loses("(steers)")


async def test_a_terminal_that_comes_later_sees_what_steers(at: Desk) -> None:
    prompts = [
        {"input": "a", "text": "waits", "taken": False, "steers": False},
        {"input": "b", "text": "hurries", "taken": False, "steers": True},
    ]
    at.session.skip(10, prompts=prompts)
    await at.until(lambda: waiting(at) == ["hurries", "waits"], sees=("❯ hurries  (steers)", "❯ waits  (queued)"))
