"""Screens of the REPL that stand for many: the text goldens keep them, and the tour in docs shows them."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

from PIL import Image, ImageDraw
from tests.support.repl.pilot import COLOURFUL, Desk, desk
from tests.support.repl.scripted_session import ScriptedSession, session_rule
from tests.support.repl.scripted_work import ANSWER, EDIT, PATCH, PATH, THOUGHT, TODOS
from tests.support.screens.dash_scene import dash_picture

from ccb.local import first_run
from ccb.local.connect.session_rows import SessionRow
from ccb.local.session.session_client import LinkState
from ccb.local.slash_commands.session_api import LaptopSide
from ccb.local.terminal import terminal_prompts
from ccb.local.transcript.questions import REVERSE_PORT, ReversedPort
from ccb.local.transcript.transcript_reducer import TranscriptReducer
from ccb.local.tui import presenters
from ccb.local.tui.widgets.transcript import Spinners
from ccb.tunnel.errors import ConnectionLost
from ccb.tunnel.plain_text import HostText
from ccb.tunnel.wire.control_protocol import Request
from ccb.tunnel.wire.prompt_content import image_block

Scene = Callable[[Desk], Awaitable[None]]

_FILE = "\n".join(f"{number}\tline {number}" for number in range(1, 41))
_PLAN = """\
# Count each item as often as it is in the cart

1. Read `cart.py` and the failing test
2. Multiply the price with the quantity
3. Run **all** tests of `tests/`
"""
_PROMPTS = [
    {"id": "u2", "text": "The total of the cart is wrong. Repair it.", "time": 2.0, "files": 1},
    {"id": "u1", "text": "Add a discount to the cart", "time": 1.0, "files": 3},
]


def row(session: str, cwd: str, state: str, idle_s: float, prompt: str) -> SessionRow:
    return SessionRow(session=session, cwd=HostText(cwd), state=state, idle_s=idle_s, prompt=HostText(prompt))


_ROWS = [
    row("5e55", "/srv/shop", "idle", 1, "repair the total"),
    row("aaaa1111", "/srv/api", "running", 60, "fix the flaky test"),
    row("bbbb2222", "/srv/shop", "requires_action", 7200, "write the docs"),
    row("cccc3333", "/srv/train", "ended", 90_000, "plot the loss of last night"),
]


async def first(at: Desk) -> None:
    await at.sees("@  a file of devbox")


async def _begun(at: Desk) -> None:
    await at.prompt("The total of the cart is wrong. Repair it.")
    session = at.session
    session.begin()
    session.assistant({"type": "thinking", "thinking": THOUGHT})
    session.text("I look at `cart.py` and at the test first.")
    session.done(session.call("Read", file_path=PATH), _FILE)
    session.done(session.call("Grep", pattern="total"), "cart.py:11:def total\ntests/test_cart.py:8:    total")


async def working(at: Desk) -> None:
    """A running turn: what is done, and a command with its last lines."""
    await _begun(at)
    session = at.session
    session.done(session.call("Edit", **EDIT), "ok", structured={"structuredPatch": PATCH})
    output = "".join(f"tests/test_cart.py::test_{number} PASSED\n" for number in range(1, 12))
    session.run(session.call("Bash", command="python -m pytest -q tests/"), output, 3)
    await at.sees("test_11 PASSED", "3 s")


async def image(at: Desk) -> None:
    """An image that the agent has looked at, in a terminal that shows characters only."""
    await at.prompt("Plot the orders of each month, and tell me what you see.")
    session = at.session
    session.begin()
    session.done(session.call("Bash", command="python plot.py --by month"), "wrote orders.png")
    block = image_block(_chart(), "image/png")
    session.done(session.call("Read", file_path="/srv/shop/orders.png"), [block])
    session.text("The orders doubled in **May** and have stayed there.")
    session.finish()
    await at.sees("PNG 300x140", "▀" * 30, "have stayed there")


def _chart() -> bytes:
    picture, made = Image.new("RGB", (300, 140), "white"), io.BytesIO()
    for number, height in enumerate((30, 40, 40, 50, 100, 110, 100, 120)):
        left = 20 + 35 * number
        colour = "#1f77b4" if number < 4 else "#ff7f0e"
        ImageDraw.Draw(picture).rectangle((left, 130 - height, left + 24, 129), fill=colour)
    picture.save(made, "PNG")
    return made.getvalue()


async def streaming(at: Desk) -> None:
    await _begun(at)
    at.session.open_block("text", message_id="msg_2")
    for start in range(0, len(ANSWER) // 2, 24):
        at.session.delta(ANSWER[start : start + 24])
    await at.sees("total multiplies the price", "test for an empty cart")


async def rewind(at: Desk) -> None:
    await answered(at)
    at.session.control_answers["rewind_points"] = {"points": _PROMPTS, "files_kept": True, "summaries": True}
    changed = {"path": PATH, "insertions": 1, "deletions": 1, "does": "change"}
    at.session.control_answers["rewind_files"] = {"files": [changed]}
    await at.enter("/rewind", sees="before which prompt?")
    await at.press("enter", sees=("~ cart.py", "summarise up to here"))


async def answered(at: Desk) -> None:
    """The end of a turn: Markdown with a list, code, a table and a quotation."""
    await _begun(at)
    at.session.done(at.session.call("Edit", **EDIT), "ok", structured={"structuredPatch": PATCH})
    at.session.text(ANSWER, "msg_2")
    at.session.finish()
    await at.sees("Nothing else was changed.", "$0.01")


async def approval(at: Desk) -> None:
    await _begun(at)
    change = {"created": False, "lines": 40, "added": 1, "removed": 1, "patch": PATCH, "complete": True}
    at.session.ask(
        "1",
        "Edit",
        EDIT,
        decision_reason="no rule allows Edit here",
        file_change={**change, "decoded": True},
        permission_suggestions=[{"type": "setMode", "mode": "acceptEdits", "destination": "session"}],
    )
    await at.card_focused()


async def approvals(at: Desk) -> None:
    await _begun(at)
    for number, command in enumerate(("python -m pytest -q", "python -m pytest -x", "rm -rf build /tmp/cache"), 1):
        rule = session_rule("Bash", "python -m pytest:*")
        rules = [rule] if "pytest" in command else []
        asked = {"command": command, "description": "Run it"}
        reason = "no rule allows this command"
        at.session.ask(str(number), "Bash", asked, decision_reason=reason, permission_suggestions=rules)
    await at.card_focused()


async def next_approval(at: Desk) -> None:
    await approvals(at)
    await at.press("enter")
    await at.sees("python -m pytest -x", "1 more waiting", "Enter answers")


async def plan(at: Desk) -> None:
    await at.prompt("Plan how to repair the total.")
    at.session.begin(mode="plan")
    modes = [{"type": "setMode", "mode": mode, "destination": "session"} for mode in ("acceptEdits", "default")]
    at.session.ask("1", "ExitPlanMode", {"plan": _PLAN}, permission_suggestions=modes)
    await at.card_focused()
    await at.sees("keep planning")


async def reverse_port(at: Desk) -> None:
    await _begun(at)
    at.session.ask_here(Request(REVERSE_PORT, ReversedPort("devbox", 3000)))
    await at.card_focused()
    await at.sees("Let devbox reach port 3000 of this laptop?", "Programs of all users", "Yes, in this session")


async def todos(at: Desk) -> None:
    await _begun(at)
    at.session.done(at.session.call("TodoWrite", todos=TODOS), "Todos were written.")
    await at.sees("1 of 3 done")
    await at.press("ctrl+t")
    await at.sees("Repair the total", "Run the tests")


async def agents(at: Desk) -> None:
    """Two sub-agents, one of them at work."""
    await at.prompt("Where is the total used?")
    session = at.session
    session.begin()
    for number, (what, kind) in enumerate((("Find the callers", "Explore"), ("Read the tests", "general-purpose"))):
        agent = session.call("Task", description=what, prompt=what, subagent_type=kind)
        session.run(agent, "", 3, name="Task")
        for step, name in enumerate(("Grep", "Read")):
            call_id = f"c{number}{step}"
            tool_input = {"pattern": "total("} if name == "Grep" else {"file_path": PATH}
            use = {"type": "tool_use", "id": call_id, "name": name, "input": tool_input}
            session.assistant(use, message_id=f"of {agent}", parent_tool_use_id=agent)
            session.fact("tool_start", tool_use_id=call_id, name=name, agent_id=agent)
            if step == 0 or number == 0:
                block = {"type": "tool_result", "tool_use_id": call_id, "content": "found"}
                message = {"role": "user", "content": [block]}
                session.say({"type": "user", "message": message, "parent_tool_use_id": agent})
        if number == 0:
            used = {"totalTokens": 13_400, "totalToolUseCount": 2, "totalDurationMs": 41_000, "totalCostUsd": 0.0123}
            session.done(agent, "In shop/api.py and two tests.", structured={"status": "completed", **used})
    await at.sees("Explore: Find the callers", "13.4k tokens", "◐ Read cart.py")


async def reconnecting(at: Desk) -> None:
    """The connection is lost while a command runs on the host."""
    await working(at)
    at.session.link(LinkState.RECONNECTING, "the network of this machine has changed", 2)
    await at.sees("the network of this machine has changed")


async def failed(at: Desk) -> None:
    """The card of an error that ends the session here."""
    await answered(at)
    error = ConnectionLost(
        "devbox cannot be reached",
        evidence="ssh: connect to host devbox port 22: No route to host",
        do="Check the network, then come back with ccb ssh devbox:/srv/shop --resume 5e55",
    )
    at.session.fail(error)
    await at.sees("devbox cannot be reached", "Ctrl+D leaves")


async def help_panel(at: Desk) -> None:
    await at.press("f1")
    await at.sees("Shift+Tab")


async def sessions(at: Desk) -> None:
    await answered(at)

    async def listed() -> list[SessionRow]:
        return _ROWS

    async def last_said(session: str) -> list[HostText]:
        said = ["prompt: fix the flaky test", "call Bash pytest -q tests/test_api.py", "agent: It waits for a port."]
        return [*map(HostText, said)]

    at.view.api.laptop = LaptopSide(sessions=cast(Any, SimpleNamespace(listed=listed, last_said=last_said)))
    await at.enter("/resume")
    await at.sees("fix the flaky")


async def dash(at: Desk) -> None:
    """The screen of `ccb dash`, which is another application."""


@contextmanager
def _still() -> Iterator[None]:
    """Let the clock of the status line stand still, and the spinners and seconds of running calls."""
    still, calls = SimpleNamespace(monotonic=lambda: 1000.0), mock.patch.object(TranscriptReducer, "tick")
    with mock.patch.object(presenters, "time", still), mock.patch.object(Spinners, "_turn"), calls:
        yield


def set_up() -> str:
    """Return what the set-up of the first run shows to a person who presses Enter at each step, with its colours."""
    shown: list[str] = []

    def enter(question: str) -> str:
        shown.append(f"{question}\n")
        return ""

    def say(*lines: str) -> None:
        shown.extend(f"{line}\n" for line in lines)

    with mock.patch.object(terminal_prompts, "ask", enter), mock.patch.object(first_run, "say", say):
        first_run._steps(COLOURFUL, samples=True)
    return "".join(shown)


@asynccontextmanager
async def scene(play: Scene, size: tuple[int, int], theme: str = "dark") -> AsyncIterator[Desk]:
    """The REPL with a scene on its screen, in the theme "dark" or "light"."""
    environ = {**COLOURFUL, "COLORFGBG": "0;15" if theme == "light" else "15;0"}
    with _still():
        if play is dash:
            async with dash_picture(size, environ) as at:
                yield at
            return
        async with desk(ScriptedSession(), size=size, environ=environ) as at:
            await play(at)
            await at.pilot.pause(0.15)  # the scroll bar and the cursor come a frame later
            yield at
