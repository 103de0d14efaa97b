"""The application.

Nothing that only a session needs is imported here: the first frame would wait for it.
"""

from __future__ import annotations

import asyncio
import os
import termios
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual import events, work
from textual.app import ComposeResult, SuspendNotSupported
from textual.binding import Binding, BindingType
from textual.geometry import Offset, Size
from textual.widgets import Input, TextArea

from ccb.tunnel.plain_text import neutralise

from ..command_line.exit_codes import ExitCode
from ..config.settings_loading import DEFAULT_SCREEN, ScreenSettings
from ..slash_commands.typed_line import parse_command, refusal
from ..terminal.console import guarded_streams, say
from ..terminal.editor import NoEditor, edited
from ..terminal.keymap import DEFAULT_KEYS
from .composer.composer import Composer
from .keys import LoneChord
from .opening import Opening
from .rendering.themes import wants_no_colour
from .repl_shell import ONLY_WATCHES, LeaveState, Switching
from .terminal_app import TerminalApp
from .terminal_driver import TerminalDriver
from .widgets.painting import ReplScreen

if TYPE_CHECKING:
    from ..session.session_client import SessionClient
    from ..slash_commands.session_api import LaptopSide, ReplInfo
    from ..terminal.terminal_prompts import TerminalPrompts
    from .session_view import SessionView

_STDIN = 0
SESSION_ACTIONS: Mapping[str, Callable[[SessionView], object]] = {
    "take-back": lambda view: view.status.hint(view.connection.take_back()),
    "interrupt": lambda view: view.interrupt(),
    "background": lambda view: view.run_worker(view.actions.move_to_background()),
    "queue": lambda view: view.replies.show_queue(),
    "open": lambda view: view.run_worker(view.files.open_offered(), group="copies"),
    "mode": lambda view: view.run_worker(view.actions.next_mode()),
    "approval": lambda view: view.approvals.focus_card(),
    "details": lambda view: view.details(),
    "todos": lambda view: view.show_todos(),
    "page-up": lambda view: view.page(-1),
    "page-down": lambda view: view.page(1),
    "help": lambda view: view.replies.help(),
}
"""What the keys of these ids do once there is a session."""

_CHORDS = ("take-back", "queue", "open")  # those that count only if they are pressed alone
_APP_ACTIONS = {
    "retry": "retry",
    "ladder": "ladder",
    "quit": "quit",
    "suspend": "suspend_process",
    "leave": "leave",
    "approval-tab": "toggle_approval",
}


_TALL_LINES = 18
_MIN_SIZE = (10, 3)


class Repl(TerminalApp[int]):
    """The interface. The app returns exit code 0 when the person leaves, or the code of the error by which the session
    was lost.

    `session` is called after the first frame. It connects, calls `attach`, and keeps the session until they leave.
    `session_task` is its task: await it after the app has ended. `host` is the name that the person gave. `watching`:
    this terminal is going to be a viewer. `screen` are the settings of keys, mouse and input.
    """

    TITLE = "ccb"
    CSS = """
    Screen { layout: vertical; background: $background; overflow: hidden; }
    Screen:ansi > .screen--selection { text-style: reverse; }
    .-short QuestionCard, .-short QuestionCard:focus, .-short QuestionCard:focus-within {
        border: none; border-top: heavy $warning;
    }
    .-short QuestionCard .reason { max-height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
    .-short TodoPanel { display: none; }
    .-short Banner { padding: 0 1; }
    .-short Composer, .-short Composer:focus { border: none; min-height: 1; max-height: 3; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        # Not before the widget that has the focus: Esc also leaves that.
        Binding(",".join(DEFAULT_KEYS[each]), action, show=False, priority=each != "interrupt", id=each)
        for each, action in {**_APP_ACTIONS, **{each: f"on_session('{each}')" for each in SESSION_ACTIONS}}.items()
    ]

    VERTICAL_BREAKPOINTS = [(0, "-short"), (_TALL_LINES, "-tall")]  # noqa: RUF012 - no ClassVar in Textual either

    def __init__(
        self,
        host: str,
        session: Callable[[Repl], Awaitable[None]],
        *,
        first_prompt: str = "",
        watching: bool = False,
        environ: Mapping[str, str] = os.environ,
        screen: ScreenSettings = DEFAULT_SCREEN,
    ) -> None:
        super().__init__(environ, screen)
        chosen = screen.keymap.keys.items()
        self.set_keymap({each: ",".join(keys) for each, keys in chosen if keys != DEFAULT_KEYS[each]})
        self._session = session
        self.session_task: asyncio.Task[None] | None = None
        self.switching = Switching()
        self.composer = Composer(screen.keymap)
        self.composer.vim.use(on=screen.vim)
        self.composer.set_locked(ONLY_WATCHES if watching else "")
        around = self.composer.around
        around.host, around.says, around.shortcut, around.refused = host, self._hint, self.retry, self._refused
        self.opening = Opening(host, screen.keymap, first_prompt)
        self.attached: SessionView | None = None
        self.leaving = LeaveState()
        self.chord = LoneChord(self)
        self.login_handover = LoginHandover(self)

    @property
    def view(self) -> SessionView:
        assert self.attached is not None
        return self.attached

    @property
    def cursor_position(self) -> Offset:
        """Where Textual puts the terminal's own cursor: it is hidden, but input methods look for it."""
        caret = self.screen.caret if isinstance(self.screen, ReplScreen) else None
        return self._cursor if caret is None else caret

    @cursor_position.setter
    def cursor_position(self, position: Offset) -> None:
        self._cursor = position

    def compose(self) -> ComposeResult:
        yield self.opening
        yield self.composer
        yield self.opening.line

    def on_mount(self) -> None:
        self.composer.focus()
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        self.session_task = asyncio.create_task(self._attend(), name="session")

    async def _attend(self) -> None:
        try:
            await self._session(self)
        finally:
            if self.return_value is None and not self.switching.left:
                self.exit(ExitCode.INTERNAL)  # a placeholder: whoever awaits the task gets its error
            self.login_handover.come_back()

    async def attach(
        self, client: SessionClient, info: ReplInfo, warnings: Sequence[str] = (), laptop: LaptopSide | None = None
    ) -> None:
        """Show a session with what the person should know about it, and send it what was typed before it was there."""
        from ..slash_commands.session_api import NO_LAPTOP
        from .rendering.pictures import PictureShelf, can_decode
        from .session_view import SessionView

        self.login_handover.come_back()
        draws = self.settings.images and not wants_no_colour(self.appearance.environ)
        shelf = PictureShelf(self.run_worker) if draws and can_decode() else None
        view = SessionView(client, info, self, laptop or NO_LAPTOP, shelf)
        self.attention.session_is(info.place, self._driver, headless=self.is_headless)
        with self.batch_update():
            await self.mount(view, before=self.composer)
            await self.mount(view.completion, before=self.composer)
            await self.mount(view.status.line, after=self.composer)
            opening = self.opening
            await opening.line.remove()
            await opening.remove()
        self.attached = view
        self.composer.around.take_back = view.take_prompt_back
        self.composer.around.answers = view.approvals.takes_key
        self.composer.around.works = lambda: view.reducer.running
        self.composer.around.question_mark = lambda: self.chord.pressed(view.help_if_asked)
        view.say(opening.said, warnings)
        view.replies.submit_all(opening.queued)

    def ring(self, kind: str = "") -> None:
        self.attention.ring(kind, silent=self.login_handover.active)

    def on_app_focus(self) -> None:
        self.call_later(self._focus_something)

    def _focus_something(self) -> None:
        if self.focused is None and self.app_focus:
            self.composer.focus()

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key | events.Paste):
            self.chord.key_came(event.time)
        elif isinstance(event, events.Resize):  # Rich cannot draw in a window of some columns
            event.size = event.virtual_size = event.container_size = Size(*map(max, event.size, _MIN_SIZE))
        if self.attached is not None and isinstance(event, events.InputEvent | events.Paste):
            self.attached.wake()
        await super().on_event(event)

    # Logins.

    def login_says(self, text: str) -> None:
        says = self.opening.say if self.attached is None else self.attached.login_says
        self.call_later(says, neutralise(text))  # the caller does not run in the context of this app

    def login_asks(self) -> None:
        """Say that a login has a question. The person is typing: the question must not get what is typed."""
        self.bell()
        if self.attached is None:
            self.opening.asks(True)
        else:
            self.attached.login_asks()

    # Actions of the person.

    def on_composer_submitted(self, event: Composer.Submitted) -> None:
        if self.attached is not None:
            self.attached.replies.submit(event.text, event.before, steers=event.steers)
            return
        command, why_not = parse_command(event.text.strip()), refusal(event.text)
        if why_not:
            self.opening.say("\n".join(why_not))
            self.composer.give_back(event.text)
        elif command is not None and command.name in ("quit", "exit"):
            self.leave()
        else:
            self.opening.queue(event.text)

    @work(exclusive=True, group="editor")
    async def on_composer_editor_wanted(self) -> None:
        try:
            with self.batch_update(), self.suspend():
                text = await edited(self.composer.whole_text, self.appearance.environ)
        except (NoEditor, SuspendNotSupported) as error:
            self._hint(str(error) or "this terminal cannot be lent to an editor")
        else:
            self.composer.rewritten(text)

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        if self.attached is not None and event.text_area is self.composer:
            self.attached.completion.refresh_list()
            self.attached.reading.mark(None)

    def _refused(self) -> None:
        if self.attached is not None:
            self._hint(self.attached.connection.only_watches_hint())

    def on_text_selected(self) -> None:
        """Copy the text selected with the mouse at once: the terminal's own selection does not work here."""
        text = self.screen.get_selected_text()
        if text:
            self.copy_to_clipboard(text)

    def copy_to_clipboard(self, text: str) -> None:

        async def copy() -> None:
            self._hint(await self.copied(text))

        self.run_worker(copy())

    async def copied(self, text: str) -> str:
        from ..terminal.clipboard import copy

        self._clipboard = text
        driver = self._driver
        return await copy(text, self.appearance.environ, driver.write) if driver is not None else "not copied"

    def _hint(self, text: str) -> None:
        if self.attached is None:
            self.opening.line.update(text)
        else:
            self.attached.status.hint(text)

    def action_on_session(self, key_id: str) -> None:
        if self.attached is None:
            return
        act = partial(SESSION_ACTIONS[key_id], self.attached)
        if key_id in _CHORDS:
            self.chord.pressed(act)
        else:
            act()

    def action_retry(self) -> None:
        self.chord.pressed(self.retry)

    def retry(self) -> None:
        waited = self.login_handover.agree()
        if self.attached is None:
            self.opening.asks(False)
        elif not waited:
            self._hint(self.attached.connection.retry())

    def lend(self) -> AbstractAsyncContextManager[None]:
        return self.login_handover.lent()

    def action_ladder(self) -> None:
        """Ctrl+C: clear the input, else interrupt, else quit if pressed twice. Leave if there is no session yet."""
        if self.attached is None:
            self.exit(ExitCode.INTERRUPTED)
        else:
            self.attached.ladder()

    async def action_quit(self) -> None:
        if self.attached is None:
            self.leave()
        else:
            self.attached.quit_if_pressed_twice("quit")

    def action_suspend_process(self) -> None:
        """Ctrl+Z: stop ccb and give the terminal back to the shell, whose `fg` continues it."""
        if isinstance(self._driver, TerminalDriver) and not self._driver.suspend_process():
            self._hint("no shell started ccb here, so nothing could continue it")

    def action_leave(self) -> None:
        if isinstance(self.focused, Input):
            self.focused.action_delete_right()
        elif self.composer.text:
            self.composer.action_delete_right()
        else:
            self.leave()

    def leave(self) -> None:
        self.exit(self.leaving.exit_code)

    def action_toggle_approval(self) -> None:
        """Tab: complete what is typed, else move the focus to the approval card, or back, else mark an offer."""
        if self.focused is self.composer and self.composer.around.completes("tab"):
            return
        if self.attached is not None:
            self.attached.approvals.toggle_focus()


class LoginHandover:
    """Gives the terminal to a login that asks a question, and takes it back. `active`: a login has it now.

    What the person types into the composer must not become a password: a question that comes after a key that was
    pressed there waits until the person agrees. Nor must a password go to the composer: the interface stays away until
    the first login is over, which `come_back` says."""

    def __init__(self, app: Repl) -> None:
        self._app = app
        self._agreed_at = time.monotonic()
        self._agreed = asyncio.Event()
        self._waits = False
        self._first_login = True
        self._suspended = ExitStack()
        self.active = False

    def agree(self) -> bool:
        """The person wants to answer what a login asks. Return whether a question has waited for that."""
        self._agreed_at = time.monotonic()
        waited, self._waits = self._waits, False
        self._agreed.set()
        return waited

    @contextmanager
    def serving(self, prompts: TerminalPrompts) -> Iterator[None]:
        """Ask the questions of `prompts` on the plain terminal, as long as the interface is there."""
        prompts.pause, prompts.heard = self.suspend, self._heard
        try:
            yield
        finally:
            prompts.pause = prompts.heard = None

    def _heard(self, text: str) -> bool:
        """Show text of a login. Return False if the plain terminal does not show it."""
        if not self.active:
            self._app.login_says(text)
        return self.active

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[None]:
        """Lend the terminal to the questions of what the person has just asked for."""
        self.agree()
        self._suspend("ccb: what you type here stays on this machine")
        try:
            yield
        finally:
            self._resume()

    @asynccontextmanager
    async def suspend(self) -> AsyncIterator[None]:
        """Suspend the interface. It draws nothing until it resumes, which it does unless the person has left."""
        while self._app.composer.last_key > self._agreed_at and not self.active:
            self._agreed.clear()
            self._waits = True
            self._app.login_asks()
            await self._agreed.wait()
        is_lent = self.active
        if not is_lent:
            host, again = self._app.opening.host, self._app.attached is not None
            self._suspend(f"ccb: logging in to {host} again" if again else f"ccb: connecting to {host}")
        try:
            yield
        finally:
            if not is_lent and not self._first_login:
                self._resume()

    def come_back(self) -> None:
        """The first login is over: resume. From now on the interface resumes after each question."""
        self._first_login = False
        self._resume()

    def _suspend(self, headline: str) -> None:
        self._suspended.enter_context(_suspended(self._app, headline))
        self.active = True

    def _resume(self) -> None:
        try:
            self._suspended.close()
        finally:
            self.active = False


class _AppHasEnded(Exception):
    """The app ended while it was suspended, so it must not come back."""


@contextmanager
def _suspended(app: Repl, why: str) -> Iterator[None]:
    with suppress(_AppHasEnded), app.batch_update(), app.suspend(), guarded_streams():
        say(why)
        yield
        if app.return_value is not None:
            raise _AppHasEnded
        with suppress(OSError, termios.error):  # what is typed without a question is for nobody
            termios.tcflush(_STDIN, termios.TCIFLUSH)
