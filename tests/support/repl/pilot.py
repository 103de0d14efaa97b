"""Driving the REPL in tests: conditions instead of sleeps, and the screen as text."""

from __future__ import annotations

import asyncio
import time
import unicodedata
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

from tests.support.model.model_script import Json
from tests.support.repl.attached_repl import repl_on
from tests.support.repl.scripted_session import MODEL, ScriptedSession
from textual import events
from textual._queue import Queue
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.keys import REPLACED_KEYS, _character_to_key, _get_unicode_name_from_key
from textual.message import Message
from textual.message_pump import MessagePump
from textual.pilot import Pilot

from ccb.local.config.settings_loading import DEFAULT_SCREEN, ScreenSettings
from ccb.local.session.session_client import LinkState
from ccb.local.slash_commands.session_api import NO_LAPTOP, LaptopSide, ReplInfo
from ccb.local.terminal.keymap import BURST_S
from ccb.local.tui.app import Repl
from ccb.local.tui.cards.question_card import QuestionCard
from ccb.local.tui.composer.composer import Composer
from ccb.local.tui.session_view import SessionView

DEADLINE_S = 60.0
RESUME = "ccb ssh devbox:/srv/shop --resume 5e55"
COLOURFUL = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
WHO = "alice@laptop pid 7 0123ab"
_SCROLL_BAR = " ▁▂▃▄▅▆▇█"


def parse_once() -> None:
    """Let each style sheet be parsed once with the same colours, not for each application again: parsing the same 19
    of them is a tenth of what a short test costs."""
    parse = Stylesheet._parse_rules
    known: dict[tuple[object, ...], list[RuleSet]] = {}

    def parsed(
        self: Stylesheet,
        css: str,
        read_from: tuple[str, str],
        is_default_rules: bool = False,
        tie_breaker: int = 0,
        scope: str = "",
    ) -> list[RuleSet]:
        key = (css, read_from, is_default_rules, tie_breaker, scope, *self._variables.items())
        if key not in known:
            known[key] = parse(self, css, read_from, is_default_rules, tie_breaker, scope)
        return known[key]

    Stylesheet._parse_rules = parsed  # type: ignore[method-assign]


parse_once()

_QUICK_ROUNDS = 100
_QUIET_ROUNDS = 5  # a key comes from the thread of the terminal, and takes some rounds to its widget


class QuickPilot(Pilot[int]):
    """A pilot that waits until every widget has handled its messages. Textual's own waits until the process uses next
    to no CPU, up to two seconds a key on a machine that is busy with something else. And it knows that a widget has no
    message left by sending one more: two thirds of all messages of a test were such."""

    async def press(self, *keys: str) -> None:
        """Press keys one after the other; each is handled before the next."""
        for key in keys:
            driver = self.app._driver
            assert driver is not None
            event = key_event(key)
            event.set_sender(self.app)
            driver.send_message(event)
            await self.settle()

    async def pause(self, delay: float | None = None) -> None:
        """Let everything that has begun come to its end, and `delay` seconds go by."""
        await self.settle()
        if delay:
            await asyncio.sleep(delay)
            self.app.screen._on_timer_update()

    async def settle(self) -> None:
        """Returns when every widget waits for its next message, and paints what has changed."""
        end = time.monotonic() + DEADLINE_S
        rounds = quiet = 0
        pumps = self._pumps()
        while quiet < _QUIET_ROUNDS and self.app._exception is None and time.monotonic() < end:
            rounds += 1
            await asyncio.sleep(0 if rounds < _QUICK_ROUNDS else 0.001)
            quiet = quiet + 1 if all(map(_waits, pumps)) else 0
            if quiet == _QUIET_ROUNDS and (now := self._pumps()) != pumps:  # to look for them takes longer than to ask
                pumps, quiet = now, 0
        self.app.screen._on_timer_update()

    def _pumps(self) -> list[MessagePump]:
        return [self.app, *self.app.screen.walk_children(with_self=True)]


def _waits(pump: MessagePump) -> bool:
    """Whether a widget has nothing to do until its next message: its task waits at the empty queue."""
    queue: Queue[Message] = pump._message_queue
    return pump._closed or (queue.empty() and bool(queue.ready_event._waiters) and not pump._next_callbacks)


def key_event(key: str) -> events.Key:
    """The event of a key by Textual's name for it, or of a single character."""
    name = key if len(key) > 1 or key.isalnum() else _character_to_key(key)
    original = REPLACED_KEYS.get(name, name)
    try:
        character: str | None = unicodedata.lookup(_get_unicode_name_from_key(original))
    except KeyError:
        character = name if len(name) == 1 else None
    return events.Key(name, character)


def screen_text(app: Repl) -> str:
    """What is on the screen, a line each, without trailing blanks."""
    lines = ("".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips())
    return "\n".join(line.rstrip() for line in lines)


async def wait_until(pilot: Pilot[int], condition: Callable[[], object]) -> None:
    """Let the application run until `condition` holds, and then through what it has begun: a screen shows some things a
    frame after others. Fails with the screen when it never holds."""
    end = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > end:
            app = pilot.app
            raise AssertionError(
                "it did not happen; the screen was:\n" + (screen_text(app) if isinstance(app, Repl) else "")
            )
        await asyncio.sleep(0.01)
        pilot.app.screen._on_timer_update()
    await pilot.pause()


class After(TypedDict, total=False):
    """What a key has led to: the composer `has` a text at once, a condition holds `then`, the screen `sees` some texts,
    `loses` one, and `lacks` one as soon as all this is so."""

    sees: str | tuple[str, ...]
    loses: str
    lacks: str
    then: Callable[[], object]
    has: str


@dataclass
class Desk:
    """A running REPL, the session it is attached to, and the person's hands."""

    app: Repl
    session: ScriptedSession
    pilot: Pilot[int]

    @property
    def view(self) -> SessionView:
        return self.app.view

    @property
    def composer(self) -> Composer:
        return self.app.composer

    @property
    def card(self) -> QuestionCard:
        """The card on the screen, of which there must be one."""
        assert self.view.card is not None
        return self.view.card

    @property
    def screen(self) -> str:
        return screen_text(self.app)

    @property
    def lines(self) -> list[str]:
        """What is on the screen without the scroll bar, which is painted a frame after what it belongs to."""
        return [line.rstrip(_SCROLL_BAR) for line in self.screen.splitlines()]

    @property
    def status(self) -> str:
        return self.screen.splitlines()[-1]

    async def until(self, condition: Callable[[], object], **after: Unpack[After]) -> None:
        await wait_until(self.pilot, condition)
        await self._after(**after)

    async def sees(self, *texts: str, **after: Unpack[After]) -> None:
        """Wait until all of `texts` are on the screen."""

        def there() -> bool:
            shown = self.screen  # drawn once for all of them
            return all(text in shown for text in texts)

        await self.until(there, **after)

    async def loses(self, text: str) -> None:
        await self.until(lambda: text not in self.screen)

    async def _after(self, **after: Unpack[After]) -> None:
        if "has" in after:
            assert self.composer.text == after["has"]
        if "then" in after:
            await self.until(after["then"])
        if "sees" in after:
            await self.sees(*([after["sees"]] if isinstance(after["sees"], str) else after["sees"]))
        if "loses" in after:
            await self.loses(after["loses"])
        if "lacks" in after:
            assert after["lacks"] not in self.screen

    async def type(self, text: str, **after: Unpack[After]) -> None:
        await self.press(*("space" if char == " " else char for char in text), **after)

    async def prompt(self, text: str, **after: Unpack[After]) -> None:
        """Send a prompt and wait until the session has it."""
        count = len(self.session.prompts)
        await self.give(text)
        await self.until(lambda: len(self.session.prompts) > count)
        await self._after(**after)

    async def press(self, *keys: str, **after: Unpack[After]) -> None:
        await self.pilot.press(*keys)
        await self._after(**after)

    async def enter(self, text: str, **after: Unpack[After]) -> None:
        """Type a line and press Enter."""
        await self.type(text)
        await self.press("enter", **after)

    async def give(self, line: str, **after: Unpack[After]) -> None:
        """Press Enter on a line in the composer, which is not typed: no list of completions comes between."""
        await self.until(lambda: self.app.attached is None or not self.view.approvals.holds_keys)  # after a card
        self.composer.focus()
        self.composer.text = line
        await self.press("enter", **after)

    async def asked(
        self, tool: str = "Bash", tool_input: Json | None = None, *, sees: str | tuple[str, ...] = (), **fields: Any
    ) -> None:
        """Let the agent ask for a call under the id "ask" after a prompt, and go to the card."""
        await self.prompt("go")
        self.session.ask("ask", tool, tool_input or {"command": "make"}, **fields)
        await self.card_focused(sees=sees)

    async def turn(self, text: str = "go", **after: Unpack[After]) -> None:
        """Send a prompt, with which a turn begins."""
        await self.prompt(text)
        self.session.begin()
        await self._after(**after)

    async def link(
        self, state: LinkState, why: str = "", attempt: int = 0, again_at: float | None = None, **after: Unpack[After]
    ) -> None:
        """Let the connection change."""
        self.session.link(state, why, attempt, again_at)
        await self._after(**after)

    async def says(self, text: str, message_id: str = "msg_1", **after: Unpack[After]) -> None:
        """Let the agent say a text."""
        self.session.text(text, message_id)
        await self._after(**after)

    async def quits(self) -> None:
        """Quit with Ctrl+C, which asks first."""
        await self.press("ctrl+c")
        await self.sees("press Ctrl+C again to quit")
        await self.press("ctrl+c")
        await self.until(lambda: self.app.return_value == 0)

    async def card_focused(self, **after: Unpack[After]) -> None:
        """Wait for the approval card, go to it as a person does, and wait until it listens."""
        await self.until(
            lambda: (
                self.view.card is not None
                and self.card.can_focus
                and self.card.subject.unseen < len(self.card.subject.rows)
            )  # some of it has been on the screen
        )
        await self.pilot.press("alt+a")
        await self.card_listens()
        await self.pause_of_a_person()
        await self._after(**after)

    async def card_listens(self) -> None:
        """Wait until the person is at the answers of the card, so that a key may be one."""
        await self.until(
            lambda: self.view.card is not None and self.card.has_focus and not self.card.has_class("typing")
        )

    async def answer(self, *keys: str, **after: Unpack[After]) -> None:
        """Press keys on the approval card, each with a pause before it, and Enter after one that marks an answer."""
        await self.alone(*keys, *["enter"] * (keys[-1] in "12345yn"), **after)

    async def alone(self, *keys: str, **after: Unpack[After]) -> None:
        """Press keys, each with a pause before it: a chord such as Alt+T counts only if it was pressed alone."""
        for key in keys:
            await self.pause_of_a_person()
            await self.pilot.press(key)
        await self._after(**after)

    async def click(self, text: str, **after: Unpack[After]) -> None:
        """Click on a text on the screen."""
        await self.sees(text)
        place = next((row.index(text), number) for number, row in enumerate(self.screen.splitlines()) if text in row)
        await self.pilot.click(offset=place)
        await self._after(**after)

    async def pause_of_a_person(self) -> None:
        """Wait for as long as a person does between two keys that are not typed as text."""
        since = time.monotonic()
        await self.until(lambda: time.monotonic() - since > BURST_S)


@asynccontextmanager
async def desk(
    session: ScriptedSession | None = None,
    *,
    size: tuple[int, int] = (100, 30),
    prompt: str = "",
    environ: Mapping[str, str] = COLOURFUL,
    before: Callable[[Repl], None] | None = None,
    screen: ScreenSettings = DEFAULT_SCREEN,
    laptop: LaptopSide = NO_LAPTOP,
    turn: str = "",
    **after: Unpack[After],
) -> AsyncIterator[Desk]:
    """The REPL over a scripted session, on a screen of `size`, in the middle of a `turn`, and with what it has led to.
    `before` gets the application before it runs."""
    session = session or ScriptedSession()
    app = repl_on(
        session,
        ReplInfo("devbox", "/srv/shop", MODEL, "default", "0.1.0", RESUME, WHO, prompt, effort="high"),
        environ,
        screen=screen,
        laptop=laptop,
    )
    if before is not None:
        before(app)
    async with app.run_test(size=size):
        pilot = QuickPilot(app)
        await wait_until(pilot, lambda: app.attached)
        at = Desk(app, session, pilot)
        if turn:
            await at.turn(turn)
        await at._after(**after)
        yield at
    app.switching.leave()
    assert app.session_task is not None
    await app.session_task
    await session.close()
