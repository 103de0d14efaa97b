"""One session on the screen."""

from __future__ import annotations

import time
from collections.abc import Sequence

from textual import work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Input

from ccb.tunnel.errors import CcbError
from ccb.tunnel.link.link import Greeting
from ccb.tunnel.plain_text import one_line
from ccb.tunnel.wire.journal_records import parse_page
from ccb.tunnel.wire.messages import CompactMessage, ControlCancel, ControlRequest, ControlResponse, ResultMessage

from ..session.session_client import (
    EventGap,
    LaptopNotice,
    LinkChange,
    LinkState,
    PortOffer,
    ReplayEnd,
    SessionClient,
    SessionEvent,
    parse_snapshot,
)
from ..slash_commands.command_table import COMMANDS, OWN_NAMES, ArgumentChoices
from ..slash_commands.session_api import NO_LAPTOP, LaptopSide, LeftSession, Place, ReplInfo, SessionApi, farewell
from ..transcript.blocks import BlockList, Level, NoticeBlock
from ..transcript.notices import tips
from ..transcript.prompt_tracker import WaitingPrompt
from ..transcript.questions import ASKED
from ..transcript.transcript_reducer import TranscriptReducer
from .approvals import Approvals
from .cards.question_card import QuestionCard
from .command_replies import CommandReplies
from .composer.completions import Candidate, CompletionList
from .panels.page_holder import PageHolder, PortOffers
from .panels.queue_panel import QueuePanel
from .panels.rewind_panel import TWICE_S, RewindPanel
from .panels.transfer_panel import FileCarrying
from .presenters import RefreshPulse, StatusPresenter
from .rendering.pictures import PictureShelf
from .repl_shell import ONLY_WATCHES, QUIT_WINDOW_S, ReplShell
from .session_actions import SessionActions
from .status_command import StatusCommand
from .widgets.connection_banner import Banner, ConnectionView
from .widgets.history_loader import HistoryLoader
from .widgets.painting import WorkSlices
from .widgets.transcript import Transcript


class LastScreen:
    """Shows the records of a hello at the end of the transcript, until the events themselves have come above them."""

    def __init__(self, transcript: Transcript, reducer: TranscriptReducer, hello: Greeting) -> None:
        self._transcript = transcript
        self._reducer = reducer
        early = BlockList()
        loaded = TranscriptReducer(early)
        for record in parse_page(hello.last):
            loaded.apply_event(record, replayed=True)
        loaded.session_ended()  # what the last worker left open will be closed
        if early.blocks:
            reducer.catching_up = True
            transcript.keep_last(early.blocks)

    def take_away(self) -> None:
        self._reducer.catching_up = False
        self._transcript.keep_last([])


class SessionView(Vertical):
    """Everything that shows one session, above the composer; `status.line` is below it."""

    DEFAULT_CSS = "SessionView { height: 1fr; background: $background; overflow: hidden; }"

    def __init__(
        self,
        client: SessionClient,
        info: ReplInfo,
        shell: ReplShell,
        laptop: LaptopSide = NO_LAPTOP,
        shelf: PictureShelf | None = None,
    ) -> None:
        super().__init__()
        self._shell = shell
        composer, keymap, cwd = shell.composer, shell.composer.keymap, info.path.rstrip("/")
        self.transcript = Transcript(cwd, keymap, shell.keys_first, shelf)
        self.connection = connection = ConnectionView(client, keymap)
        self.reducer = info.transcript(self.transcript)
        self.approvals = Approvals(connection, self.transcript, composer, info.place)
        self._banner = Banner()
        self._was_connected = True
        self._newest = 0  # the number of the last event that came
        self._interrupted: WaitingPrompt | None = None  # with Esc, and without an answer then
        self._history = HistoryLoader(client, self.transcript, self.reducer)
        looks, here = shell.appearance, client.hello.session
        own = StatusCommand(lambda: looks.status_command, looks.environ, self.run_worker, here, info, self.reducer)
        self.status = StatusPresenter(
            info, self.reducer, connection, self.approvals, self.transcript, composer, shell.attention.state_is, own
        )
        self.actions = SessionActions(client, self.reducer, connection, self.approvals, self.status, shell.leaving)
        self.rewinding = RewindPanel(self.reducer, composer, self.actions)
        self.reading = PageHolder(client, info, self.transcript, composer, shell.copied, self._use_port)
        self._offers = PortOffers(laptop.ports, self.transcript)
        self.queue = QueuePanel(client, self.reducer.prompts, composer, self.actions)
        self.files = FileCarrying(laptop, self.reducer, self.actions, keymap)
        self.api = SessionApi(
            client,
            info,
            self.reducer,
            laptop,
            place=Place.SCREEN,
            waits=self.actions.waits_for_connection,
            terminal=lambda: f"{self.api.environ.get('TERM', '?')}, {self.app.size.width} columns, theme {shell.theme}",
            problems=self._problems,
            lent=shell.lend,
        )
        self._choices = ArgumentChoices(self.api)
        host, asks = one_line(info.host), self._choices.ask
        self.completion = CompletionList(composer, client, host, self._own_commands, asks, OWN_NAMES)
        composer.around.completes = self._takes_key
        self.replies = CommandReplies(
            self.api,
            shell,
            self.actions,
            self.reading,
            queue=self.queue,
            rewinding=self.rewinding,
            files=self.files,
            worker=self.completion.worker_commands,
        )
        self.approvals.laptop_servers = lambda: self.api.laptop_servers
        self._pulse: RefreshPulse | None = None
        for kind in ASKED:
            client.register(kind)

    def _takes_key(self, key: str) -> bool:
        """Complete what is typed, or mark something in the conversation. Tab goes to a card before that."""
        return self.completion.take_key(key) or (not (key == "tab" and self.card) and self.reading.take_key(key))

    @property
    def card(self) -> QuestionCard | None:
        return self.approvals.card

    def compose(self) -> ComposeResult:
        yield from (self.transcript, self.reading, self.approvals, self.rewinding)
        yield from (self.replies, self.queue, self._banner, self.status.todos, self.files)

    def on_mount(self) -> None:
        info, hello, keymap = self.api.info, self.api.client.hello, self._shell.composer.keymap
        shows_keys = f"The agent works on {info.host}. {keymap.name('help')} or /help shows the keys."
        effort = f", effort {info.effort}" if info.effort else ""
        what = f"ccb {info.version}  {info.place}  {one_line(info.model)}{effort}".rstrip()
        self.reducer.notice([what, shows_keys], Level.DIM)
        self.transcript.add(tips(info.host, keymap))
        level = Level.DIM if hello.storage == "disk" else Level.WARNING  # show at once that the session may not last
        if hello.notes:
            self.reducer.notice([f"On the host: {note}" for note in hello.notes], level)
        self._pulse = RefreshPulse(self, self._tick)
        self._listen(LastScreen(self.transcript, self.reducer, hello))

    def on_resize(self) -> None:
        if self.card is not None:
            self.card.call_after_refresh(self.card.fit)

    def wake(self) -> None:
        if self._pulse is not None:
            self._pulse.wake()

    def say(self, texts: Sequence[str], warnings: Sequence[str]) -> None:
        """Show in the transcript what a login has said, and what the person should know about the session."""
        for text in texts:
            self.reducer.notice(text.split("\n"), Level.DIM)
        for warning in warnings:
            self.reducer.notice(warning, Level.WARNING)

    def login_says(self, text: str) -> None:
        """Show text of a login that is not a question. A ProxyCommand may print some even after the login."""
        if self.connection.state is not LinkState.CONNECTED:
            self.reducer.notice(text.split("\n"))

    def login_asks(self) -> None:
        key = self._shell.composer.keymap.name("retry")
        self.reducer.notice(f"The login asks you something: {key} answers it.", Level.WARNING)

    # Events of the session.

    @work(exit_on_error=True)
    async def _listen(self, last_screen: LastScreen) -> None:
        slices = WorkSlices(self._shell.keys_first)
        lost: CcbError | None = None
        try:
            async for event in self.api.client.events():
                self.wake()
                if isinstance(event, LinkChange):
                    self._link_changed(event)
                elif isinstance(event, PortOffer):
                    self._offers.waiting.append(event.port)
                elif isinstance(event, LaptopNotice):
                    self.reducer.notice(event.text, Level.WARNING)
                elif isinstance(event, ReplayEnd):
                    self.approvals.replaying = False
                    last_screen.take_away()
                else:
                    if isinstance(event, EventGap):
                        self._skipped(event)
                    else:
                        self._received(event)
                    self.reading.received(event)
                    self._newest = max(self._newest, event.seq)
                await slices.next()
        except CcbError as error:
            lost = error
        self._link_changed(LinkChange(LinkState.LOST, lost.what) if lost is not None else LinkChange(LinkState.CLOSED))
        last_screen.take_away()
        self._session_ended(lost)

    def _skipped(self, item: EventGap) -> None:
        state = parse_snapshot(item.body)
        self._history.skipped(self._newest, item.seq + 1)
        self.approvals.replaying = True
        self.reducer.skipped(state, running=self.api.client.hello.state != "idle")
        if self.approvals.questions.replace_all(state.questions):
            self.reducer.notice("The question that was open here has been settled meanwhile.", Level.DIM)

    def _received(self, item: SessionEvent) -> None:
        """Apply an event, and call the person for what they may be waiting for, but never during a replay."""
        self.approvals.replaying |= item.replayed
        public = self.reducer.take(item)
        if isinstance(public, ControlResponse):
            self._answered(public)
        elif isinstance(public, ControlRequest):
            if self.approvals.questions.opened(public) and not item.replayed:
                self._shell.ring("permission_prompt")
        elif isinstance(public, ControlCancel):
            self.approvals.questions.closed(public.request_id)
        elif isinstance(public, CompactMessage) and not item.replayed:
            self.rewinding.summed_up(done=True)
        elif isinstance(public, ResultMessage) and not item.replayed:
            self.rewinding.summed_up(done=False)
            self._shell.ring("idle_prompt")
            if public.body.get("terminal_reason") == "aborted_streaming":
                self.run_worker(self._give_back())

    async def _give_back(self) -> None:
        """Give the prompt back to the input whose turn was interrupted before the agent had said or done anything."""
        prompts, composer = self.reducer.prompts, self._shell.composer
        prompt, self._interrupted = self._interrupted, None
        if prompt is None or prompt is not prompts.unanswered or prompts.queued or composer.text:
            return
        has_files = prompt.facts.files <= len(composer.attachments.named_in(prompt.text))
        if has_files and await self.actions.take_back(prompt):
            composer.give_back(prompt.editable_text)

    def _answered(self, answer: ControlResponse) -> None:
        """The journal has the answer to a question, which counts for every client."""
        ours = self.approvals.given.pop(answer.request_id, None)
        if self.approvals.questions.closed(answer.request_id):
            self.reducer.notice("The question was answered by another client.", Level.DIM)
        elif ours is not None and ours != answer.payload:
            verdict = "allowed" if (answer.payload or {}).get("behavior") == "allow" else "denied"
            self.reducer.notice(f"Another client answered first: {verdict}. Your answer was dropped.", Level.WARNING)

    def _link_changed(self, change: LinkChange) -> None:
        before, now = self.connection.state, time.monotonic()
        self.connection.changed(change, now)
        self._show_connection(now)
        if change.state is before:
            return
        self.status.hint("")  # the attempt that a hint announced has succeeded or failed
        if change.state in (LinkState.NEEDS_PERSON, LinkState.FENCED):
            self._shell.ring()

    def _show_connection(self, now: float) -> None:
        if not (self._banner.is_attached and self.approvals.is_attached):  # the person is leaving
            return
        view, reducer, composer = self.connection, self.reducer, self._shell.composer
        view.settle(now)
        connected = view.shown is LinkState.CONNECTED
        lost, self._was_connected = self._was_connected and not connected, connected
        if lost:
            reducer.link_lost()
        elif view.up and reducer.prompts.unsent and not (self.api.client.unsent or self.approvals.replaying):
            reducer.all_sent()
        self.approvals.tick()
        composer.shortcuts.active = view.keys()
        composer.set_locked(ONLY_WATCHES if view.watching else "")
        self._banner.show(view, now, self.transcript.palette(), typing=bool(composer.text))

    def _session_ended(self, error: CcbError | None) -> None:
        self.reducer.session_ended()
        self.approvals.questions.clear()
        leaving = self._shell.leaving
        leaving.error, leaving.stopped = error, leaving.stops and error is None
        if leaving.stopped:
            self._shell.leave()
            return
        if error is None:
            self.reducer.notice("The session has ended on the host.", Level.WARNING)
        else:
            self.actions.show_error(error)
            command = self.api.info.resume
            if command and command not in error.do:
                self.reducer.notice(["Come back with:", command], Level.WARNING)
        composer = self._shell.composer
        composer.placeholder = f"Nothing can be sent any more: {composer.keymap.name('leave')} leaves"

    def _tick(self) -> bool:
        now = time.monotonic()
        self._show_connection(now)
        self.status.tick(now)
        self.queue.refresh_panel()
        self.reading.tick()
        self._offers.refresh(may_show=not (self.approvals.replaying or self.approvals.unsettled or self.card))
        copying = self.files.refresh_panel()
        away = self.connection.shown is not LinkState.CONNECTED or not self.connection.up
        return copying or away or self.approvals.unsettled

    def _own_commands(self) -> list[Candidate]:
        colours = dict.fromkeys(self._shell.appearance.names, "")
        return [
            Candidate(
                each.name,
                each.hint,
                each.does,
                choices=colours if each.name == "theme" else self._choices.now(each),
                takes_text=each.takes_text,
            )
            for each in COMMANDS
        ]

    def _problems(self) -> list[str]:
        notices = (each for each in self.transcript.blocks if isinstance(each, NoticeBlock))
        return [each.text for each in notices if each.level in (Level.ERROR, Level.WARNING)]

    # What the person does.

    async def on_question_card_answered(self, event: QuestionCard.Answered) -> None:
        await self.actions.answer(event.answer)
        await self.actions.keep(event.answer, self.api.laptop.projects)

    def on_question_card_left(self) -> None:
        self._shell.composer.focus()

    def on_transcript_agent_chosen(self, event: Transcript.AgentChosen) -> None:
        self.reading.open_agent(event.call)

    def _use_port(self, verb: str, port: int) -> None:
        self.run_worker(self.replies.run("ports", f"{verb} {port}"))

    def on_transcript_wheel_up(self) -> None:
        self._history.load_in_sight(turn_page=False)

    def take_prompt_back(self) -> bool:
        """Let the person edit the newest prompt that waits. Return whether one may still be changed."""
        may = not self.connection.watching and self.reducer.prompts.queued
        if may:
            self.run_worker(self.queue.edit_newest())
        return may

    def page(self, direction: int) -> None:
        """Scroll the card with the focus if it is longer than shown, else what is open, else the transcript."""
        if self.approvals.turn_page(direction) or self.reading.turn(direction):
            return
        if direction > 0 or not self._history.load_in_sight(turn_page=True):
            self.transcript.turn(direction)

    def help_if_asked(self) -> None:
        """Show the keys and commands if a question mark is all that is typed."""
        if self._shell.composer.text == "?":
            self._shell.composer.text = ""
            self.replies.help()

    def interrupt(self) -> None:
        """End the running turn. Pressed twice while nothing runs: clear the input, or go back to an earlier prompt."""
        composer = self._shell.composer
        if self.reading.close():
            return
        if self.reducer.running or self.connection.watching:
            self._interrupted = None if self.connection.watching else self.reducer.prompts.unanswered
            self.run_worker(self.actions.interrupt())
        elif composer.text and self.rewinding.pressed_twice(time.monotonic()):
            composer.clear_to_cut()
            self.status.hint("cleared: Ctrl+Y brings it back")
        elif composer.text:
            self.status.hint(f"press {composer.keymap.name('interrupt')} again to clear the input", TWICE_S)
        elif done := self.files.cancel_newest():
            self.status.hint(done)
        elif self.rewinding.pressed_twice(time.monotonic()):
            self.rewinding.open()
        else:
            key = composer.keymap.name("interrupt")
            self.status.hint(f"press {key} again to go back to an earlier prompt", TWICE_S)

    def ladder(self) -> None:
        """Clear the input, else close what is read, else interrupt, but only once; else quit if pressed twice."""
        drives, composer, focused = not self.connection.watching, self._shell.composer, self.screen.focused
        if isinstance(focused, Input) and focused.value:
            focused.clear()
        elif self.reading.close():
            return
        elif drives and composer.text and focused is composer:
            composer.clear()
        elif drives and self.actions.can_interrupt:
            self.interrupt()
        else:
            self.quit_if_pressed_twice("ladder")

    def quit_if_pressed_twice(self, key_id: str) -> None:
        if self._shell.leaving.quit_pressed(time.monotonic()):
            self._shell.leave()
        else:
            key = self._shell.composer.keymap.name(key_id)
            self.status.hint(f"press {key} again to quit", QUIT_WINDOW_S)

    def show_todos(self) -> None:
        if not self.status.todos.toggle():
            self.status.hint("nothing is on the todo list")

    def details(self) -> None:
        """Show all of tool output and thinking, or the summary; on a question take the whole screen for it."""
        if not self.approvals.show_whole():
            self.reading.details_pressed(time.monotonic())

    def farewell(self) -> list[str]:
        return farewell(self.api.info, self.left_behind)

    @property
    def left_behind(self) -> LeftSession:
        leaving, asking = self._shell.leaving, len(self.approvals.questions) > 0
        answer = self.reducer.answers[-1] if self.reducer.answers else ""
        return self.api.left(stopped=leaving.stopped, error=leaving.error, asking=asking, answer=answer)
