"""Draws the replies of slash commands: as notices, hints, panels and pages. Does what only the screen can."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, cast

from pydantic import ValidationError
from textual import work
from textual.app import SuspendNotSupported
from textual.containers import Vertical

from ccb.tunnel.errors import CcbError, ConfigError, UsageError
from ccb.tunnel.plain_text import neutralise
from ccb.tunnel.wire.client_requests import RENAME_SESSION
from ccb.tunnel.wire.control_protocol import Request, RequestFailed

from ..slash_commands.about_session import ChangedFiles, HeldRule, RuleRows, change_rule, held_rules
from ..slash_commands.agent_commands import Models, Waiting
from ..slash_commands.command_table import COMMANDS, find_command, worker_rows
from ..slash_commands.other_sessions import Sessions
from ..slash_commands.registry import Copying, Leave, Live, OpenNext, Reply, ReplyRow, Rows, Switch, Text, View
from ..slash_commands.session_api import NextSession, SessionApi
from ..slash_commands.this_laptop import Hosts, RecentHost
from ..slash_commands.typed_line import TypedCommand
from ..terminal.editor import NoEditor
from ..terminal.stdio import in_thread
from ..transcript.blocks import Level
from .composer.completion_names import WorkerCommands
from .keys import KEYS, StopKeys, key_sections
from .panels.list_panel import HelpPanel, HostPanel
from .panels.model_panel import ModelPanel
from .panels.page_holder import PageHolder
from .panels.pages import DiffPage
from .panels.queue_panel import QueueEditing
from .panels.rule_panel import RulePanel
from .panels.transfer_panel import FileCarrying
from .rendering.themes import ThemeRefused
from .repl_shell import ReplShell
from .session_actions import SessionActions

if TYPE_CHECKING:
    from ..providers.known_models import OfferedModels
    from .panels.session_panel import SessionPicker

Section = tuple[str, list[tuple[str, str]]]
"""A heading of a panel, and its rows."""


class CommandReplies(Vertical):
    """Runs the slash commands of one session. Holds the list of sessions while the person chooses one."""

    DEFAULT_CSS = "CommandReplies { height: auto; }"

    def __init__(
        self,
        api: SessionApi,
        shell: ReplShell,
        actions: SessionActions,
        reading: PageHolder,
        queue: QueueEditing,
        files: FileCarrying,
        stop_keys: StopKeys,
        worker_commands: WorkerCommands,
    ) -> None:
        super().__init__()
        self._api = api
        self._shell = shell
        self._actions = actions
        self._reading = reading
        self._queue = queue
        self._files = files
        self._stop_keys = stop_keys
        self._worker_commands = worker_commands
        self._picker: SessionPicker | None = None

    def on_mount(self) -> None:
        if self._api.laptop.models is not None:
            self.run_worker(self._api.laptop.models.kept())  # their names are completed

    async def answer(self, typed: TypedCommand) -> None:
        """Run a command and show its answer below it. One that opens a panel leaves no trace."""
        command = find_command(typed.name)
        name = command.name if command is not None else typed.name
        notices = self._api.transcript.notices
        notices.echo = neutralise(f"/{name} {typed.argument}".rstrip())
        try:
            if command is None:
                self._show(Text(f"There is no command /{name}. /help lists them.", Level.WARNING))
            else:
                await self.run(name, typed.argument)
        finally:
            notices.echo = ""

    async def run(self, name: str, argument: str = "") -> None:
        """Run the command of this name, and draw its reply."""
        command = find_command(name)
        assert command is not None, name
        try:
            reply = await command.run(self._api, argument)
            if isinstance(reply, View):
                await self._views[name](self, argument)
            else:
                await self._draw(reply)
        except UsageError as error:
            self._show(Text(f"{error.what}. {error.do}".rstrip(), Level.WARNING))
        except (CcbError, RequestFailed) as error:
            self._actions.show_error(error)
        except ValidationError:
            self._show(Text("The worker's answer cannot be read.", Level.ERROR))

    async def _draw(self, reply: Reply) -> None:
        match reply:
            case Text(brief=True):
                self._actions.hint(" ".join(reply.lines))
            case Text():
                self._show(reply)
            case Rows():
                await self._draw_rows(reply)
            case Live():
                self._follow(self._reading.open_panel("", []), reply.updates)
            case Copying():
                self._files.follow(reply)
            case OpenNext():
                await self._files.open_offered()
            case Switch():
                self._shell.switching.go_to(reply.following)
            case Leave(stops=True):
                await self._actions.stop(self._api.info.host)
            case Leave():
                self._shell.leave()

    async def _draw_rows(self, reply: Rows) -> None:
        info = self._api.info
        match reply:
            case Models(choice=choice) if choice is not None:
                panel = ModelPanel(reply.offers, self._api.transcript.model, self._model_chosen)
                self._reading.open(panel)
                self._refresh_models(panel, choice)
            case RuleRows():
                mode = self._api.transcript.mode
                self._reading.open(RulePanel(info.place, mode, reply.held, self._change_rule, reply.sought))
            case ChangedFiles() if reply.files:
                self._reading.open(DiffPage(self._api.client, info.place, reply.since, reply.files))
            case Waiting():
                self.show_queue()
            case Sessions():
                await self._pick_session(reply)
            case Hosts():
                named = next((each for each in reply.hosts if f"{each.host}:{each.directory}" == reply.sought), None)
                if named is not None:
                    self._host_chosen(named)
                else:
                    self._reading.open(HostPanel(reply.hosts, self._host_chosen))
            case Rows(title="") | ChangedFiles():
                self._show(reply.text)
            case _:
                self._reading.open_panel(reply.title, _sections(reply.rows), reply.sought)

    def _show(self, text: Text) -> None:
        if text.text:
            self._api.transcript.notice(text.lines, text.level)

    # Panels that change.

    @work(exclusive=True, group="live list")
    async def _follow(self, panel: HelpPanel, updates: AsyncIterator[Rows]) -> None:
        async with aclosing(cast("AsyncGenerator[Rows, None]", updates)) as lists:
            async for rows in lists:
                panel.show(_sections(rows.rows), rows.title)
                if rows.after:
                    self._show(Text(rows.after, Level.WARNING))
                if self._reading.shown is not panel:
                    return

    @work(exclusive=True, group="lists of models")
    async def _refresh_models(self, panel: ModelPanel, choice: OfferedModels) -> None:
        offers, notes = await choice.current()
        if self._reading.shown is panel:
            panel.show(offers, notes)

    @work
    async def _model_chosen(self, name: str) -> None:
        self._reading.close()
        if name != self._api.transcript.model:
            await self.run("model", name)

    async def _change_rule(self, panel: RulePanel, held: HeldRule, adds: bool) -> None:
        try:
            said = await change_rule(self._api, held, adds=adds)
            panel.show(await held_rules(self._api), said)
        except CcbError as error:
            panel.fail(error.what)
        except RequestFailed as error:
            panel.fail(str(error))
        except ValidationError:
            panel.fail("The worker's answer cannot be read.")

    @work
    async def _host_chosen(self, host: RecentHost) -> None:
        """Show the sessions of this host, or the command that leads to another one."""
        self._reading.close()
        if host.host == self._api.info.host:
            await self.run("resume", "" if host.here else host.directory)
            return
        said = await self._shell.copied(host.command)
        self._show(Text([host.command, f"This command opens it; it was {said}."]))

    async def _pick_session(self, reply: Sessions) -> None:
        from .panels.session_panel import SessionPanel, SessionPicker

        sessions, host = self._api.laptop.sessions, self._api.info.host
        if sessions is None or self._picker is not None:
            return
        here, keymap = self._api.client.hello.session, self._shell.composer.keymap
        self._picker = SessionPicker(
            host, sessions, SessionPanel(host, reply.listed, here, reply.sought, keymap=keymap)
        )
        self._picker.here, self._picker.rename_here = here, self._rename
        await self.mount(self._picker)
        self._go_to_picked(self._picker)

    @work
    async def _go_to_picked(self, picker: SessionPicker) -> None:
        row = await picker.chosen()
        self._picker = None
        await picker.remove()
        self._shell.composer.focus()
        if row is not None:
            self._shell.switching.go_to(NextSession(row.session))

    async def _rename(self, title: str) -> None:
        await self._api.request(Request(RENAME_SESSION, title))

    def show_queue(self) -> None:
        """Show the prompts that wait for the agent."""
        self._stop_keys.if_driving(lambda: self.run_worker(self._queue.open()))

    # What only the screen can do.

    async def _help(self, sought: str) -> None:
        self.help(sought)

    def help(self, sought: str = "") -> None:
        """Show the keys and commands, or close them again. `sought`: only what has these words."""
        if self._reading.close():
            return
        keymap = self._shell.composer.keymap
        keys = [(keymap.filled(key), does) for key, does in KEYS]
        commands = [(each.usage, each.does + _also(each.aliases)) for each in COMMANDS]
        known = self._worker_commands.known
        others = worker_rows([(f"/{each.name} {each.hint}".rstrip(), each.does) for each in known])
        self._reading.open_panel("Help", [("Keys", keys), ("Commands", commands), *_sections(others)], sought)

    async def _keys(self, _: str) -> None:
        self._reading.open_panel("Keys", key_sections(self._shell.composer.keymap))

    async def _rewind(self, _: str) -> None:
        self._stop_keys.rewind()

    async def _paste(self, _: str) -> None:
        self._shell.composer.paste_image()

    async def _reconnect(self, _: str) -> None:
        self._shell.retry()

    async def _transcript(self, argument: str) -> None:
        page = self._reading.open_transcript()
        if argument == "pager":
            problem = await self._reading.pager(page)
            self._reading.close()
            if problem:
                self._show(Text(f"{problem}.", Level.WARNING))

    async def _vim(self, _: str) -> None:
        from ..config.settings_loading import keep_editor_mode

        vim = self._shell.composer.vim
        vim.use(on=not vim.on)
        self._actions.hint("vim's keys: Esc for normal mode" if vim.on else "the input has its usual keys again")
        try:
            await in_thread(lambda: keep_editor_mode(vim=vim.on, environ=self._shell.appearance.environ))
        except ConfigError as error:
            self._show(Text(f"This holds until you leave: {error.what}.", Level.WARNING))

    async def _theme(self, name: str) -> None:
        appearance = self._shell.appearance
        try:
            found = appearance.choose(name)
        except ThemeRefused as error:
            self._show(Text(str(error), Level.WARNING))
            return
        if not found:
            shown = self._shell.theme.removeprefix("ccb-").removeprefix("own-")
            self._show(Text(f"Theme: {shown}. /theme takes {', '.join(appearance.names)}; the choice is kept."))

    async def _copy(self, number: str) -> None:
        """Copy the answer that is `number` from the end, the last one without a number."""
        answers = self._api.transcript.answers
        place = int(number) if number.isdigit() and len(number) < 4 else 0 if number else 1
        if not answers:
            self._show(Text("There is no answer yet."))
        elif not 0 < place <= len(answers):
            text = f"/copy takes a number from 1, the last answer, to {len(answers)}."
            self._show(Text(text, Level.WARNING))
        else:
            which = "The last answer" if place == 1 else f"Answer {place} from the end"
            self._show(Text(f"{which} was {await self._shell.copied(answers[-place])}."))

    async def _edit_settings(self, _: str) -> None:
        from ..config.settings import settings_path
        from ..config.settings_loading import load_settings
        from ..terminal.editor import edit_file

        environ = self._api.environ
        try:
            with self.app.batch_update(), self.app.suspend():
                await edit_file(str(settings_path(environ)), environ)
        except (NoEditor, SuspendNotSupported, OSError) as error:
            self._show(Text(f"{error or 'this terminal cannot be lent to an editor'}.", Level.WARNING))
            return
        try:
            await in_thread(lambda: load_settings(environ))
        except CcbError as error:
            said = [each for each in (error.what, error.evidence, error.do) if each]
            self._show(Text(["The settings cannot be read as they are now.", *said], Level.ERROR))
        else:
            self._show(Text("The settings are read from the next run on.", Level.DIM))

    _views: dict[str, Callable[[CommandReplies, str], Awaitable[None]]] = {  # noqa: RUF012 - never changed
        "help": _help,
        "keys": _keys,
        "rewind": _rewind,
        "paste": _paste,
        "reconnect": _reconnect,
        "transcript": _transcript,
        "vim": _vim,
        "theme": _theme,
        "copy": _copy,
        "config": _edit_settings,
    }


def _also(aliases: Sequence[str]) -> str:
    return f" (also {', '.join(f'/{each}' for each in aliases)})" if aliases else ""


def _sections(rows: Sequence[ReplyRow]) -> list[Section]:
    sections: dict[str, list[tuple[str, str]]] = {}
    for row in rows:
        sections.setdefault(row.section, []).append((row.name, row.text))
    return list(sections.items())
