"""Run the slash commands that the person types, and show their answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from ccb.tunnel.errors import ConfigError
from ccb.tunnel.plain_text import HostText, neutralise

from ..session.session_client import SessionClient
from ..terminal.stdio import in_thread
from ..transcript.agent_runs import agent_label
from ..transcript.blocks import Level
from ..transcript.session_facts import tokens
from ..transcript.transcript_reducer import TranscriptReducer
from .composer.attachments import size_text
from .keys import StopKeys
from .panels.page_holder import PageHolder
from .rendering.themes import ThemeRefused
from .repl_shell import ReplShell
from .session_actions import SessionActions
from .slash_commands import TypedCommand, key_sections
from .submissions import Steering
from .widgets.connection_banner import ConnectionView
from .widgets.session_info import ReplInfo

if TYPE_CHECKING:
    from ..connect.project_trust import ProjectDesk


_MAX_AGENTS = 20
_JOURNAL = {
    "volatile": "journal in a directory that may not outlive a restart of the host",
    "memory": "journal in memory only",
}


class CommandTarget(Protocol):
    """The parts of a session's view that commands use."""

    reducer: TranscriptReducer
    steering: Steering
    projects: ProjectDesk | None
    reading: PageHolder
    stop_keys: StopKeys

    @property
    def connection(self) -> ConnectionView: ...

    def help(self, sought: str = "") -> None: ...

    def show_queue(self) -> object: ...


class CommandReplies:
    """Answers the slash commands of one session."""

    def __init__(
        self, view: CommandTarget, shell: ReplShell, actions: SessionActions, client: SessionClient, info: ReplInfo
    ) -> None:
        self._view = view
        self._shell = shell
        self._reducer = view.reducer
        self._actions = actions
        self._client = client
        self._info = info

    async def answer(self, typed: TypedCommand) -> None:
        """Run a command and show its answer below it. One that opens a panel leaves no trace."""
        self._reducer.notices.echo = neutralise(f"/{typed.name} {typed.argument}".rstrip())
        try:
            await self._run(typed)
        finally:
            self._reducer.notices.echo = ""

    async def _run(self, typed: TypedCommand) -> None:
        takes_argument, takes_none = self._with_argument(), self._without_argument()
        if typed.command is not None and typed.name in takes_argument:
            await takes_argument[typed.name](typed.argument)
        elif typed.command is not None and typed.name in takes_none:
            await takes_none[typed.name]()
        else:
            self._show(f"There is no command /{typed.name}. /help lists them.", Level.WARNING)

    def _with_argument(self) -> dict[str, Callable[[str], Awaitable[None]]]:
        steering = self._view.steering
        return {
            "model": steering.models.command,
            "mode": self._mode,
            "effort": steering.thinking.effort,
            "thinking": steering.thinking.thinking,
            "tasks": steering.tasks.command,
            "mcp": steering.mcp.command,
            "rename": steering.facts.rename,
            "copy": self._copy,
            "transcript": self._transcript,
            "export": steering.exporting.command,
            "resume": steering.choosing.resume,
            "get": steering.files.get,
            "put": steering.files.put,
            "open": steering.files.open,
            "trust": self._trust,
            "config": steering.insight.config,
            "theme": self._theme,
            "help": self._help,
            "permissions": steering.facts.permissions,
            "tools": steering.insight.tools,
            "hosts": steering.insight.hosts,
        }

    def _without_argument(self) -> dict[str, Callable[[], Awaitable[None]]]:
        return {
            "keys": self._keys,
            "quit": self._quit,
            "stop": self._stop,
            "new": self._view.steering.choosing.new,
            "rewind": self._rewind,
            "revoke": self._revoke,
            "queue": self._queue,
            "paste": self._paste,
            "vim": self._vim,
            "diff": self._view.steering.facts.diff,
            "reconnect": self._reconnect,
            "doctor": self._view.steering.insight.doctor,
            "bug": self._view.steering.insight.bug,
            "cost": self._show_cost,
            "status": self._show_status,
        }

    async def _help(self, sought: str) -> None:
        self._view.help(sought)

    async def _keys(self) -> None:
        self._view.reading.open_panel("Keys", key_sections(self._shell.composer.keymap))

    async def _quit(self) -> None:
        self._shell.leave()

    async def _stop(self) -> None:
        await self._actions.stop(self._info.host)

    async def _revoke(self) -> None:
        self._info.revoke()

    async def _rewind(self) -> None:
        self._view.stop_keys.rewind()

    async def _queue(self) -> None:
        self._view.show_queue()

    async def _paste(self) -> None:
        self._shell.composer.paste_image()

    async def _transcript(self, argument: str) -> None:
        page = self._view.reading.open_transcript()
        if argument == "pager":
            problem = await self._view.reading.pager(page)
            self._view.reading.close()
            if problem:
                self._show(f"{problem}.", Level.WARNING)

    async def _vim(self) -> None:
        from ..config.settings_loading import keep_editor_mode

        vim = self._shell.composer.vim
        vim.use(on=not vim.on)
        self._actions.hint("vim's keys: Esc for normal mode" if vim.on else "the input has its usual keys again")
        try:
            await in_thread(lambda: keep_editor_mode(vim=vim.on, environ=self._shell.appearance.environ))
        except ConfigError as error:
            self._show(f"This holds until you leave: {error.what}.", Level.WARNING)

    async def _mode(self, mode: str) -> None:
        if mode:
            await self._actions.set_mode(mode)
        else:
            self._show(f"Permission mode: {self._reducer.mode}")

    async def _trust(self, argument: str) -> None:
        projects = self._view.projects
        self._show(
            ["This terminal keeps nothing of projects."] if projects is None else await projects.command(argument)
        )

    async def _show_cost(self) -> None:
        self._show([self._cost(), *self._agents()])

    async def _show_status(self) -> None:
        self._show(self._status())

    def _show(self, text: str | list[str], level: Level = Level.INFO) -> None:
        self._reducer.notice(text, level)

    async def _theme(self, name: str) -> None:
        appearance = self._shell.appearance
        try:
            found = appearance.choose(name)
        except ThemeRefused as error:
            self._show(str(error), Level.WARNING)
            return
        if not found:
            shown = self._shell.theme.removeprefix("ccb-").removeprefix("own-")
            self._show(f"Theme: {shown}. /theme takes {', '.join(appearance.names)}; the choice is kept.")

    async def _copy(self, number: str) -> None:
        """Copy the answer that is `number` from the end, the last one without a number."""
        answers = self._reducer.answers
        place = int(number) if number.isdigit() and len(number) < 4 else 0 if number else 1
        if not answers:
            self._show("There is no answer yet.")
        elif not 0 < place <= len(answers):
            self._show(f"/copy takes a number from 1, the last answer, to {len(answers)}.", Level.WARNING)
        else:
            which = "The last answer" if place == 1 else f"Answer {place} from the end"
            self._show(f"{which} was {await self._shell.copied(answers[-place])}.")

    async def _reconnect(self) -> None:
        self._shell.retry()

    def _cost(self) -> str:
        totals = self._reducer.totals
        return f"{tokens(totals.input_tokens)} tokens in, {tokens(totals.output_tokens)} out, ${totals.cost_usd:.4f}"

    def _agents(self) -> list[str]:
        """Return a line for each of the newest sub-agents: they are part of the sums."""
        lines = []
        for block in self._reducer.agent_calls[-_MAX_AGENTS:]:
            run = block.agent
            if run is not None and run.tokens:
                cost = "" if run.cost_usd is None else f", ${run.cost_usd:.4f}"
                lines.append(f"  {agent_label(block.tool_input)[:80]}: {tokens(run.tokens)} tokens{cost}")
        return ["Of that, by sub-agents:", *lines] if lines else []

    def _uploads(self) -> list[str]:
        """Return a line about what requests to the model cost on the way up from the host, if there were any."""
        size, sent = self._client.request_bytes
        if not size:
            return []
        return [f"Requests    {size_text(size)} to the model, of which the host sent {size_text(sent)}"]

    def _status(self) -> list[str]:
        hello, connection, reducer = self._client.hello, self._view.connection, self._reducer
        reason = f": {connection.reason}" if connection.reason else ""
        if connection.unanswered_s:
            reason = f", but no answer for {connection.unanswered_s:.0f} s"
        journal = _JOURNAL.get(hello.storage, "journal on disk")
        mode = f"permission mode {HostText(reducer.mode).cell}"
        return [
            f"Session     {hello.session}",
            f"Host        {self._info.place}",
            f"Worker      pid {hello.pid}, Python {hello.python.cell} on {hello.platform.cell}",
            f"Connection  {connection.state.value}{reason}; {journal}",
            *self._uploads(),
            f"Model       {HostText(reducer.model).cell or 'not known before the first turn'}, {mode}",
            f"Sandbox     {HostText(reducer.sandbox).cell or 'no cage: the worker is of an older version'}",
            f"Used        {self._cost()}",
        ]
