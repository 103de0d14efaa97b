"""Sends what the person submits, and draws the replies of slash commands: as notices, hints, panels and pages. Does
what only the screen can."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from pydantic import ValidationError
from textual import work
from textual.app import SuspendNotSupported
from textual.containers import Vertical

from ccb.tunnel.errors import CcbError, ConfigError, UsageError
from ccb.tunnel.plain_text import neutralise
from ccb.tunnel.wire.client_requests import RENAME_SESSION
from ccb.tunnel.wire.control_protocol import Request, RequestFailed

from ..session.session_client import PromptDelivery
from ..slash_commands.about_session import ChangedFiles, HeldRule, RuleRows, change_rule, held_rules
from ..slash_commands.agent_commands import Models, TaskRows, WaitingPrompts
from ..slash_commands.command_table import COMMANDS, find_command, worker_rows
from ..slash_commands.other_sessions import Sessions
from ..slash_commands.registry import (
    Copying,
    Leave,
    Live,
    OnScreen,
    OpenNext,
    Page,
    Picker,
    Reply,
    ReplyRow,
    Rows,
    Switch,
    Text,
)
from ..slash_commands.session_api import NextSession, SessionApi
from ..slash_commands.this_laptop import Hosts, RecentHost
from ..slash_commands.typed_line import TypedCommand, for_terminal, parse_command, refusal
from ..terminal.editor import NoEditor
from ..terminal.stdio import in_thread
from ..transcript.blocks import Level
from .composer.completions import CommandCache
from .keys import KEYS, key_sections
from .panels.list_panel import ChoicePanel, HelpPanel, HelpSection, HostPanel, ModelPanel, RulePanel
from .panels.page_holder import PageHolder
from .panels.pages import DiffPage, TextPage
from .panels.queue_panel import QueuePanel
from .panels.rewind_panel import RewindPanel
from .panels.task_panel import TaskPanel, task_rows
from .panels.transfer_panel import FileCarrying
from .rendering.themes import ThemeRefused
from .repl_shell import ReplShell
from .session_actions import SessionActions

if TYPE_CHECKING:
    from ..providers.known_models import OfferedModels

_QUEUED = PromptDelivery(waits=True)
_UNREADABLE = "The worker's answer cannot be read."


class CommandReplies(Vertical):
    """Handles the inputs of one session. Holds the list of sessions while the person chooses one."""

    DEFAULT_CSS = "CommandReplies { height: auto; }"

    def __init__(
        self,
        api: SessionApi,
        shell: ReplShell,
        actions: SessionActions,
        reading: PageHolder,
        *,
        queue: QueuePanel,
        rewinding: RewindPanel,
        files: FileCarrying,
        worker: CommandCache,
    ) -> None:
        super().__init__()
        self._api, self._shell, self._actions, self._reading = api, shell, actions, reading
        self._queue, self._rewinding, self._files, self._worker_commands = queue, rewinding, files, worker
        self._backlog: deque[str] = deque()  # sent one after the other, before anything that is submitted later

    def on_mount(self) -> None:
        if self._api.laptop.models is not None:
            self.run_worker(self._api.laptop.models.kept())  # their names are completed

    # Inputs.

    @work
    async def submit(self, text: str, before: tuple[str, ...] = (), *, steers: bool = False) -> None:
        """Send a prompt in front of the waiting prompts `before`, or run a command, after what `submit_all` sends."""
        how = PromptDelivery(before=before, waits=not (steers and self._api.transcript.prompts.can_steer()))
        if self._backlog:
            self._backlog.append(text)
        elif not await self._submitted(text, how):
            self._shell.composer.give_back(text)

    @work
    async def submit_all(self, texts: Sequence[str]) -> None:
        """Send the first prompt of the command line, then what was typed before the session was there. What cannot be
        sent goes back to the composer with all that follows."""
        first_prompt = self._api.info.first_prompt
        self._backlog.extend([first_prompt, *texts] if first_prompt else texts)
        is_prompt = bool(first_prompt)
        while self._backlog:
            text = self._backlog[0]
            if not await (self._send(text) if is_prompt else self._submitted(text)):
                self._shell.composer.give_back("\n".join(self._backlog))
                self._backlog.clear()
                return
            self._backlog.popleft()
            is_prompt = False

    async def _submitted(self, text: str, how: PromptDelivery = _QUEUED) -> bool:
        """Handle one input. Return False if it must go back to the composer."""
        typed, why_not = parse_command(text.strip()), refusal(text)
        if why_not:
            self._api.transcript.notice(why_not, Level.WARNING)
            return False
        if text.startswith(("#", "!")) and self._shell.composer.attachments.named_in(text):
            self._show(Text(f"Nothing was sent: what begins with {text[0]} takes no files.", Level.WARNING))
            return False
        if text.startswith("#"):
            return await self._actions.remember(text[1:].strip())
        if text.startswith("!"):
            if on_terminal := for_terminal(text):
                await self._open_shell(command=on_terminal)
                return True
            self._reading.transcript.anchor()
            return await self._actions.send_prompt(text.strip(), how=replace(how, command_line=True, waits=True))
        if typed is None:
            return await self._send(text.strip(), how)
        if find_command(typed.name) is None and await self._worker_commands.knows(typed.name):
            return await self._send(text.strip(), replace(how, waits=True))  # it has a turn of its own
        await self.answer(typed)
        return True

    async def _send(self, text: str, how: PromptDelivery = _QUEUED) -> bool:
        self._reading.transcript.anchor()
        attachments = self._shell.composer.attachments
        content = attachments.blocks(text) if attachments.named_in(text) else None
        return await self._actions.send_prompt(text, content, how=how)

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
        command = find_command(name)
        assert command is not None, name
        try:
            reply = await command.run(self._api, argument)
            if isinstance(reply, OnScreen):
                await self._view(name, argument)
            else:
                await self._draw(reply)
        except UsageError as error:
            self._show(Text(f"{error.what}. {error.do}".rstrip(), Level.WARNING))
        except (CcbError, RequestFailed) as error:
            self._actions.show_error(error)
        except ValidationError:
            self._show(Text(_UNREADABLE, Level.ERROR))

    # Replies.

    async def _draw(self, reply: Reply) -> None:
        match reply:
            case Page():
                self._reading.open(TextPage(reply.title, reply.lines))
            case Text(brief=True):
                self._actions.hint(" ".join(reply.lines))
            case Text():
                self._show(reply)
            case Rows():
                self._draw_rows(reply)
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
                self._shell.leaving.moves_to = reply.moves_to
                self._shell.leave()

    def _draw_rows(self, reply: Rows) -> None:
        info = self._api.info
        match reply:
            case Models(choice=choice) if choice is not None:
                transcript = self._api.transcript
                panel = ModelPanel(reply.offers, transcript.facts.model, transcript.facts.effort, self._model_chosen)
                self._reading.open(panel)
                self._refresh_models(panel, choice)
            case Picker(rows=[_, *_]):
                self._reading.open(ChoicePanel(reply, self._row_chosen))
            case RuleRows():
                mode = self._api.transcript.facts.mode
                self._reading.open(RulePanel(info.place, mode, reply.held, self._change_rule, reply.sought))
            case ChangedFiles() if reply.files:
                self._reading.open(DiffPage(self._api.client, info.place, reply.since, reply.files))
            case TaskRows() if task_rows(self._api.transcript):
                api, reading = self._api, self._reading
                reading.open(TaskPanel(api.client, api.transcript, self._actions, reading, info.place))
            case WaitingPrompts():
                self.show_queue()
            case Sessions():
                self._pick_session(reply)
            case Hosts():
                named = next((each for each in reply.hosts if f"{each.host}:{each.directory}" == reply.sought), None)
                if named is not None:
                    self._host_chosen(named)
                else:
                    self._reading.open(HostPanel(reply.hosts, self._host_chosen))
            case Rows(title="") | ChangedFiles() | Picker():
                self._show(reply.text)
            case _:
                self._reading.open_panel(reply.title, _sections(reply.rows), reply.sought)

    def _show(self, text: Text) -> None:
        if text.text:
            self._api.transcript.notice(text.lines, text.level)

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
        offers, notes = await choice.refreshed(self._api.transcript.facts.model)
        if self._reading.shown is panel:
            panel.show(offers, notes)

    @work
    async def _model_chosen(self, name: str, level: str) -> None:
        """Take a model and a level of effort, "" for the one in force."""
        self._reading.close()
        if level or name != self._api.transcript.facts.model:
            await self.run("model", f"{name} {level}".rstrip())

    @work
    async def _row_chosen(self, line: str) -> None:
        self._reading.close()
        typed = parse_command(line)
        if typed is not None:
            await self.run(typed.name, typed.argument)

    async def _change_rule(self, panel: RulePanel, held: HeldRule, adds: bool) -> None:
        try:
            said = await change_rule(self._api, held, adds=adds)
            panel.show(await held_rules(self._api), said)
        except CcbError as error:
            panel.fail(error.what)
        except RequestFailed as error:
            panel.fail(str(error))
        except ValidationError:
            panel.fail(_UNREADABLE)

    @work
    async def _host_chosen(self, host: RecentHost) -> None:
        self._reading.close()
        if host.host == self._api.info.host:
            await self.run("resume", "" if host.here else host.directory)
            return
        said = await self._shell.copied(host.command)
        self._show(Text([host.command, f"This command opens it; it was {said}."]))

    @work
    async def _pick_session(self, reply: Sessions) -> None:
        from .panels.session_panel import SessionPanel

        sessions, here = self._api.laptop.sessions, self._api.client.hello.session
        if sessions is None or self.query(SessionPanel):
            return
        picker = SessionPanel(
            self._api.info.host,
            sessions,
            reply.listed,
            self._shell.composer.keymap,
            current=here,
            sought=reply.sought,
            rename_here=lambda title: self._api.request(Request(RENAME_SESSION, title)),
        )
        await self.mount(picker)
        row = await picker.chosen()
        await picker.remove()
        self._shell.composer.focus()
        if row is not None:
            self._shell.switching.go_to(NextSession(row.session))

    def show_queue(self) -> None:
        self._actions.if_driving(self._queue.open)

    # What only the screen can do.

    async def _view(self, name: str, argument: str) -> None:
        composer = self._shell.composer
        views: dict[str, Callable[[], object]] = {
            "help": lambda: self.help(argument),
            "keys": lambda: self._reading.open_panel("Keys", key_sections(composer.keymap)),
            "rewind": lambda: self._actions.if_driving(self._rewinding.open),
            "paste": composer.paste_image,
            "reconnect": self._shell.retry,
            "transcript": lambda: self._transcript(argument),
            "vim": self._vim,
            "statusline": lambda: self._status_line(argument),
            "theme": lambda: self._theme(argument),
            "copy": lambda: self._copy(argument),
            "config": self._edit_settings,
            "shell": lambda: self._shell_command(argument),
        }
        opened = views[name]()
        if isinstance(opened, Awaitable):
            await opened

    def help(self, sought: str = "") -> None:
        """Show the keys and commands, or close them again. `sought`: only what has these words."""
        if self._reading.close():
            return
        keymap = self._shell.composer.keymap
        keys = [(keymap.filled(key), does) for key, does in KEYS]
        commands = []
        for each in COMMANDS:
            also = f" (also {', '.join(f'/{alias}' for alias in each.aliases)})" if each.aliases else ""
            commands.append((each.usage, each.does + also))
        known = self._worker_commands.known
        others = worker_rows([(f"/{each.name} {each.hint}".rstrip(), each.does) for each in known])
        self._reading.open_panel("Help", [("Keys", keys), ("Commands", commands), *_sections(others)], sought)

    async def _transcript(self, argument: str) -> None:
        page = self._reading.open_transcript()
        if argument == "pager":
            problem = await self._reading.pager(page)
            self._reading.close()
            if problem:
                self._show(Text(f"{problem}.", Level.WARNING))

    async def _vim(self) -> None:
        from ..config.settings_loading import keep_setting

        vim = self._shell.composer.vim
        vim.use(on=not vim.on)
        mode, environ = "vim" if vim.on else "normal", self._shell.appearance.environ
        self._actions.hint("vim's keys: Esc for normal mode" if vim.on else "the input has its usual keys again")
        try:
            await in_thread(lambda: keep_setting(environ, ["editorMode"], mode))
        except ConfigError as error:
            self._show(Text(f"This holds until you leave: {error.what}.", Level.WARNING))

    async def _status_line(self, argument: str) -> None:
        from ..config.settings_loading import keep_setting

        looks = self._shell.appearance
        if argument:
            command = "" if argument == "off" else argument
            line = {"type": "command", "command": command}
            await in_thread(lambda: keep_setting(looks.environ, ["statusLine"], line))
            looks.status_command = command
        shown = f"the first line of: {looks.status_command}" if looks.status_command else "no command of yours"
        takes = [] if argument else ["It gets the session's facts as JSON. /statusline COMMAND sets one."]
        self._show(Text([f"The status line shows {shown}.", *takes]))

    def _theme(self, name: str) -> None:
        appearance = self._shell.appearance
        if not name:
            shown = self._shell.theme.removeprefix("ccb-").removeprefix("own-")
            rows = [ReplyRow(each, choose=f"/theme {each}") for each in appearance.names]
            self._reading.open(ChoicePanel(Picker(rows, title="Theme", current=shown), self._row_chosen))
            return
        try:
            found = appearance.choose(name)
        except ThemeRefused as error:
            self._show(Text(str(error), Level.WARNING))
            return
        if not found:
            self._show(Text(f"/theme takes {', '.join(appearance.names)}; the choice is kept."))

    async def _copy(self, number: str) -> None:
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

    async def _shell_command(self, argument: str) -> None:
        if argument == "send":
            self._quote_shell()
        elif not argument or (argument.isdigit() and len(argument) == 1):
            await self._open_shell(int(argument or 0))
        else:
            self._show(Text("/shell takes the number of a shell, or send.", Level.WARNING))

    async def _open_shell(self, number: int = 0, command: str = "") -> None:
        """Lend the terminal to a shell of the host until that ends or the person leaves it."""
        shells = self._api.laptop.shells
        if shells is None:
            self._show(Text("This session opens no shells.", Level.WARNING))
            return
        try:
            with self.app.batch_update(), self.app.suspend():
                left = await shells.show(number, command)
        except SuspendNotSupported:
            self._show(Text("This terminal cannot be lent to a shell.", Level.WARNING))
            return
        if left.error:
            self._show(Text(f"The shell: {left.error}.", Level.WARNING))
        elif left.code is None:
            self._actions.hint("the shell stays on the host: /shell returns to it, /shell send quotes it")
        elif command:
            self._show(Text(f"! {neutralise(command)}: ended with code {left.code}; the agent does not see it"))

    def _quote_shell(self) -> None:
        """Put what was on the last screen of a shell into the composer, where the person can change it."""
        shown = self._api.laptop.shells.last_command() if self._api.laptop.shells is not None else ""
        if not shown:
            self._show(Text("No shell has shown anything here: /shell opens one.", Level.WARNING))
            return
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", shown)), default=0))
        self._shell.composer.give_back(f"From my shell on the host:\n{fence}\n{neutralise(shown)}\n{fence}\n")

    async def _edit_settings(self) -> None:
        from ..config.settings import settings_path
        from ..config.settings_loading import load_settings
        from ..terminal.editor import edit_file

        environ = self._api.environ
        try:
            with self.app.batch_update(), self.app.suspend():
                await edit_file(str(settings_path(environ)), environ)
            await in_thread(lambda: load_settings(environ))
        except (NoEditor, SuspendNotSupported, OSError) as error:
            self._show(Text(f"{error or 'this terminal cannot be lent to an editor'}.", Level.WARNING))
        except CcbError as error:
            said = [each for each in (error.what, error.evidence, error.do) if each]
            self._show(Text(["The settings cannot be read as they are now.", *said], Level.ERROR))
        else:
            self._show(Text("The settings are read from the next run on.", Level.DIM))


def _sections(rows: Sequence[ReplyRow]) -> list[HelpSection]:
    sections: dict[str, list[tuple[str, str]]] = {}
    for row in rows:
        sections.setdefault(row.section, []).append((row.name, row.text))
    return list(sections.items())
