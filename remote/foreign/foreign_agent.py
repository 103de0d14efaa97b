"""The agent of others that works in a session: its process, its life, and its turns."""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import Callable
from urllib.parse import quote

from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.journal_records import AgentSessionRecord
from ccb.tunnel.wire.known_agents import KnownAgent, environment_of, flags_for, foreign_agent, options_without_effect
from ccb.tunnel.wire.ndjson import MAX_FRAME

from ..agent.agent_histories import AgentLog
from ..agent.turn_state import AgentState, EndReason, ProgramChoice, ProgramFacts, Prompt, TurnEnding
from ..permissions.modes import BYPASS, WORKSPACE
from ..sandbox.cage_rules import CageRules
from ..slash_commands.command_registry import CommandCall, Expanded, SlashCommand
from ..system.stdio_process import StdioProcess, TalkRules
from .acp_client import AcpClient
from .acp_translation import agent_mode
from .answer_writer import AnswerWriter
from .foreign_session import AgentConnection, AgentEnded, AgentFailed, LentToAgent, NoGateway
from .stream_json_cli import StreamJsonCli

log = logging.getLogger(__name__)

_CANCEL_S = 3.0  # for an agent that was told to end its turn; the turn itself waits two seconds longer
_STARTS_AGAIN = "Send the next prompt to start it again."


class ForeignAgent:
    """Starts the agent when it is needed, and again after its death. `open_relay` gives the address of its models.
    `known` is its own id of the conversation, from the journal."""

    def __init__(
        self, command: str, lent: LentToAgent, open_relay: Callable[[], Awaitable[str]], known: str = ""
    ) -> None:
        self.agent: KnownAgent = foreign_agent(command)
        self.name = self.agent.name
        self._lent, self._open_relay, self._known = lent, open_relay, known
        self._url = ""
        self._is_caged = self._works = False
        self._counted_usd = 0.0  # of the costs that its process has told
        self._connection: AgentConnection | None = None
        self._starting: asyncio.Task[None] | None = None
        self._begun = asyncio.Event()
        self._unread: list[Json] = []  # blocks that the agent gets with the next prompt
        self._told: set[str] = set()

    @property
    def facts(self) -> ProgramFacts:
        return self._connection.facts if self._connection is not None else ProgramFacts()

    @property
    def is_all_memory(self) -> bool:
        """ACP agents often cannot load the sessions that they say they can."""
        return self._is_usable and not self.agent.streams_json

    def commands(self) -> list[SlashCommand]:
        async def run(_: CommandCall) -> Expanded:
            return Expanded(())  # the agent reads the prompt as it is

        return [SlashCommand(name, does, run, hint, source=self.name) for name, does, hint in self.facts.commands]

    def begin(self) -> None:
        """Start the agent beside other work, if it does not run. In a turn, its end is for `run` to tell."""
        starts = self._starting is not None and not self._starting.done()
        if not (starts or self._works or self._is_usable):
            self._starting = asyncio.get_running_loop().create_task(self._start())
            self._starting.add_done_callback(lambda done: done.cancelled() or done.exception())  # `run` tells of it
            self._begun.set()

    @property
    def _is_usable(self) -> bool:
        alive = self._connection is not None and self._connection.process.code is None
        return alive and self._is_caged is self._wants_cage

    @property
    def _wants_cage(self) -> bool:
        return self._lent.options().sandbox == WORKSPACE and self._lent.permissions.mode != BYPASS

    async def settle(self) -> None:
        """Wait until the agent was begun, and has started or cannot be: `run` tells."""
        await self._begun.wait()
        if self._starting is not None:
            await asyncio.wait({self._starting})

    async def prepare(self, agent_log: AgentLog, state: AgentState) -> None:
        """Settle, and let the agent use model and mode of the session, if it has such. `run` tells of errors."""
        await self.settle()
        try:
            connection = self._opened()
        except AgentFailed:
            return
        facts, mode = connection.facts, self._lent.permissions.mode
        wanted, current = "" if state.model == self.name else state.model, facts.models.current
        value = facts.models.find(wanted) if wanted and wanted != current else current
        if wanted and not value:
            offered = ", ".join(list(facts.models.values)[:20]) or "none to choose from"
            facts.unmet.append(f"{self.name} has no model {wanted!r}. It offers {offered}.")
        try:
            if value and value != current:
                await connection.choose("model", value)
                facts.models = replace(facts.models, current=value)
            own = agent_mode(mode, facts.modes)
            if mode != facts.follows and own and own != facts.modes.current:
                await connection.choose("mode", own)
                facts.modes = replace(facts.modes, current=own)
            facts.follows = mode
        except AgentFailed as error:
            facts.unmet.append(str(error))
        state.use_model(facts.models.current or self.name, agent_log)

    async def run(self, agent_log: AgentLog, state: AgentState, prompts: Sequence[Prompt]) -> TurnEnding:
        """Run a turn. Raise NotKept. When it is cancelled, the agent has ended its turn, or is ended itself."""
        blocks = [*self._unread, *(block for prompt in prompts for block in prompt.blocks)]
        self._unread = []
        try:
            connection = self._opened()
        except AgentFailed as error:
            return TurnEnding(EndReason.SETUP_FAILED, errors=(str(error),))
        facts = connection.facts
        writer = AnswerWriter(agent_log, facts, shows_parts=self._lent.options().partial_messages)
        self._tell_at_start(connection, writer)
        self._know(facts.session, agent_log)
        self._works = True
        working = asyncio.get_running_loop().create_task(connection.prompt(blocks, writer))
        try:
            await asyncio.wait({working})
            ending = working.result()
        except asyncio.CancelledError:
            await self._stop_turn(connection, working, writer)
            raise
        except AgentEnded as error:
            writer.end_message()
            return TurnEnding(EndReason.MODEL_ERROR, errors=(f"{error}. The turn ends with it. {_STARTS_AGAIN}",))
        except AgentFailed as error:
            return writer.failed(str(error))
        finally:
            self._works = False
            working.cancel()
            self._know(facts.session, agent_log)
            self._count(facts, state)
        return ending

    def _count(self, facts: ProgramFacts, state: AgentState) -> None:
        """Count what a turn took: by its tokens, or what the agent says, which begins at 0 with each process of it."""
        ledger, before = state.ledger, state.ledger.total_cost_usd
        if facts.usage:
            state.count(facts.models.current or self.name, facts.usage)
        ledger.total_cost_usd = max(ledger.total_cost_usd, before + facts.cost_usd - self._counted_usd)
        self._counted_usd, facts.usage = facts.cost_usd, {}

    def unread(self, prompts: Sequence[Prompt]) -> None:
        """Keep prompts that the agent gets together with the next one."""
        self._unread += [block for prompt in prompts for block in prompt.blocks]

    async def forget(self, agent_log: AgentLog) -> None:
        """Begin a new conversation, in another process; a failure shows at the next prompt."""
        self._known, self._unread = "", []
        agent_log.record(AgentSessionRecord(self.name, ""))
        await self._end()
        self.begin()

    async def close(self) -> None:
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait({self._starting})
        await self._end()

    async def _start(self) -> None:
        """Raise AgentFailed."""
        if not self._url and self.agent.environment:
            self._url = await self._open_relay()
        known, in_band = self._known if self.agent.loads else "", self.agent.in_band
        while True:
            try:
                await self._connect(known, in_band=in_band)
                return
            except NoGateway:
                log.info("the agent is told the address of its models by its environment")
                in_band = False
            except AgentFailed as error:
                if not known:
                    raise
                log.warning("the agent cannot go on with its session: %s", error)
                known = ""

    async def _connect(self, known: str, *, in_band: bool) -> None:
        """Start the process, and open the conversation. Raise AgentFailed."""
        await self._end()
        context, agent = self._lent.context, self.agent
        options = self._lent.options()
        instead = agent.model_instead(options)
        url = f"{self._url}/instead/{quote(instead, safe='')}" if instead else self._url
        own = environment_of(agent, "" if in_band else url, trusted=self._lent.trusted())
        resumed = ("--resume", known) if known and agent.streams_json else ()
        argv = [*agent.argv, *flags_for(agent, options), *resumed]
        self._is_caged = self._wants_cage
        try:
            cage = self._cage() if self._is_caged else None
            rules = TalkRules(f"the agent {agent.name}", MAX_FRAME, self._url.rpartition("/")[2])
            env = {**context.login.variables, **own}
            process = await StdioProcess.start(rules, argv, context.cwd, env, context.host, cage)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise AgentFailed(f"{shlex.join(agent.argv[:4])} cannot be started on this host: {why}") from None
        connection: AgentConnection = (
            StreamJsonCli(agent.name, process, self._lent, known)
            if agent.streams_json
            else AcpClient(agent.name, process, self._lent, url, in_band=in_band, loses_results=not agent.loads)
        )
        try:
            await connection.open(known)
        except BaseException:
            await connection.close()
            raise
        if instead:
            connection.facts.models = ProgramChoice(instead, {instead: options.model or ""})
        self._connection, self._counted_usd = connection, connection.facts.cost_usd

    def _cage(self) -> CageRules:
        """Return the cage of --sandbox workspace. Raise AgentFailed if the agent cannot work in it."""
        permissions = self._lent.permissions
        if not self._lent.options().allow_net:
            text = f"{self.name} reaches its models over the network of this host, which --sandbox workspace closes"
            raise AgentFailed(f"{text}. Add --allow-net, or choose another --sandbox.")
        cage = self._lent.context.cages.workspace(permissions.directories, network=True)
        if cage is None:
            raise AgentFailed(f"there is no workspace cage for {self.name} on this host")
        return cage

    def _opened(self) -> AgentConnection:
        """Raise AgentFailed if the agent has not started."""
        assert self._starting is not None
        if self._starting.cancelled() or (self._connection is None and self._starting.exception() is None):
            raise AgentFailed(f"{self.name} was ended")
        self._starting.result()
        assert self._connection is not None
        return self._connection

    def _tell_at_start(self, connection: AgentConnection, writer: AnswerWriter) -> None:
        """Tell once what the person may not expect of this process of the agent."""
        if self._known and connection.facts.session != self._known:
            text = f"{self.name} was started again. It does not know this conversation: tell it what it must know."
            writer.tell(text, "warning")
        unused = ", ".join(options_without_effect(self.agent, self._lent.options()))
        if unused and unused not in self._told:
            self._told.add(unused)
            writer.tell(f"Without effect here, because {self.name} does not take it: {unused}", "warning")
        if not self.agent.environment and self.name not in self._told:
            self._told.add(self.name)
            writer.tell(f"{self.name} calls its models with its own login on this host, not through your laptop.")
        for text in connection.facts.unmet:
            writer.tell(text, "warning")
        connection.facts.unmet.clear()

    def _know(self, session: str, agent_log: AgentLog) -> None:
        if session not in ("", self._known):
            self._known = session
            agent_log.record(AgentSessionRecord(self.name, session))

    async def _stop_turn(
        self, connection: AgentConnection, working: asyncio.Task[TurnEnding], writer: AnswerWriter
    ) -> None:
        await connection.cancel()
        await asyncio.wait({working}, timeout=_CANCEL_S)
        if not working.done():
            writer.tell(f"{self.name} did not stop, so it was ended. {_STARTS_AGAIN}", "warning")
            connection.process.kill("it did not end its turn")
            await asyncio.wait({working})
        if not working.cancelled():
            working.exception()

    async def _end(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
