"""The agent of others that works in a session: its process, its life, and its turns."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Protocol

from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.journal_records import AgentSessionRecord, PromptItem, PromptRecord
from ccb.tunnel.wire.known_agents import (
    AgentDialect,
    KnownAgent,
    environment_of,
    flags_for,
    foreign_agent,
    options_without_effect,
    shown_command,
)

from ..agent.agent_histories import AgentLog
from ..agent.turn_state import AgentState, EndReason, Prompt, TurnEnding
from ..permissions.modes import BYPASS, WORKSPACE
from ..sandbox.cage_rules import CageRules
from ..slash_commands.command_registry import CommandCall, Expanded, SlashCommand
from .acp_client import AcpClient
from .acp_translation import agent_mode
from .agent_process import AgentProcess
from .answer_writer import AnswerWriter
from .foreign_session import AgentConnection, AgentFailed, LentToAgent
from .stream_json_cli import StreamJsonCli

log = logging.getLogger(__name__)

_KEPT_MESSAGES = 20  # in memory
_MAX_MODELS = 50  # that clients are told
_LOOK_S = 0.5  # between two looks for prompts that an agent takes while it works
_CANCEL_S = 3.0  # for an agent that was told to end its turn; the turn itself waits two seconds longer
_STARTS_AGAIN = "Send the next prompt to start it again."


class Relay(Protocol):
    """Carries model calls to the laptop. Its address is good in its context."""

    @property
    def url(self) -> str: ...

    async def __aenter__(self) -> Relay: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class ForeignAgent:
    """Starts the agent when it is needed, and again after its death. `known` is its own id of the conversation, from
    the journal."""

    def __init__(self, command: str, lent: LentToAgent, relay: Relay, known: str = "") -> None:
        self.agent: KnownAgent = foreign_agent(command)
        self._lent, self._relay, self._known = lent, relay, known
        self._has_turns = bool(known)
        self._relaying = AsyncExitStack()
        self._url = ""
        self._process: AgentProcess | None = None
        self._is_caged = self._works = False
        self._connection: AgentConnection | None = None
        self._starting: asyncio.Task[bool] | None = None
        self._begun = asyncio.Event()
        self._unread: list[Json] = []  # blocks that the agent gets with the next prompt
        self._told: set[str] = set()

    @property
    def name(self) -> str:
        return self.agent.name

    @property
    def model(self) -> str:
        return self._connection.facts.models.current if self._connection is not None else ""

    @property
    def is_all_memory(self) -> bool:
        """ACP agents often cannot load the sessions that they say they can."""
        return self._is_usable and self.agent.dialect is AgentDialect.ACP

    @property
    def offered_models(self) -> list[tuple[str, str]]:
        return list(self._connection.facts.models.values.items())[:_MAX_MODELS] if self._connection is not None else []

    @property
    def context_size(self) -> tuple[int, int]:
        """What fills the agent's window and how large it is, in tokens, as the agent says; 0 if it does not."""
        return (self._connection.facts.used, self._connection.facts.size) if self._connection is not None else (0, 0)

    def commands(self) -> list[SlashCommand]:
        async def run(_: CommandCall) -> Expanded:
            return Expanded(())  # the agent reads the prompt as it is

        offered = self._connection.facts.commands if self._connection is not None else ()
        return [SlashCommand(name, does, run, hint, source=self.name) for name, does, hint in offered]

    def begin(self) -> None:
        """Start the agent beside other work, if it does not run. In a turn, its end is for `run` to tell."""
        starts = self._starting is not None and not self._starting.done()
        if not (starts or self._works or self._is_usable):
            self._starting = asyncio.get_running_loop().create_task(self._start())
            self._starting.add_done_callback(lambda done: done.cancelled() or done.exception())  # `run` tells of it
            self._begun.set()

    @property
    def _is_usable(self) -> bool:
        alive = self._process is not None and self._process.code is None
        return self._connection is not None and alive and self._is_caged is self._wants_cage

    @property
    def _wants_cage(self) -> bool:
        return self._lent.options().sandbox == WORKSPACE and self._lent.permissions.mode != BYPASS

    async def settle(self) -> None:
        """Wait until the agent was begun, and has started or cannot be: `run` tells."""
        await self._begun.wait()
        if self._starting is not None:
            await asyncio.wait({self._starting})

    async def run(self, agent_log: AgentLog, state: AgentState, prompts: Sequence[Prompt]) -> TurnEnding:
        """Run a turn. Raise NotKept. When it is cancelled, the agent has ended its turn, or is ended itself."""
        blocks = [*self._unread, *(block for prompt in prompts for block in prompt.blocks)]
        self._unread = []
        try:
            await self.settle()
            connection, goes_on = self._opened()
        except AgentFailed as error:
            return TurnEnding(EndReason.SETUP_FAILED, errors=(str(error),))
        options = self._lent.options()
        writer = AnswerWriter(agent_log, connection.facts.models.current, shows_parts=options.partial_messages)
        self._tell_at_start(connection, writer, goes_on=goes_on)
        self._know(connection.facts.session, agent_log)
        await self._choose(connection, writer, state, agent_log)
        self._has_turns = self._works = True
        try:
            return await self._work(connection, writer, state, agent_log, blocks)
        finally:
            self._works = False

    async def _work(
        self,
        connection: AgentConnection,
        writer: AnswerWriter,
        state: AgentState,
        agent_log: AgentLog,
        blocks: Sequence[Json],
    ) -> TurnEnding:
        while True:
            late: list[Json] = []
            working = asyncio.get_running_loop().create_task(connection.prompt(blocks, writer))
            try:
                while not working.done():
                    await asyncio.wait({working}, timeout=_LOOK_S if connection.facts.can_steer else None)
                    if not working.done():
                        late += await self._steer(connection, agent_log)
            except asyncio.CancelledError:
                await self._stop_turn(connection, working, writer)
                raise
            finally:
                working.cancel()
                self._know(connection.facts.session, agent_log)
                del state.conversation.messages[:-_KEPT_MESSAGES]  # the agent has a history of its own
            ending = await self._ended(working, connection, state, writer)
            if not late or ending.is_error:
                self._unread += late
                return ending
            blocks = late

    async def _steer(self, connection: AgentConnection, agent_log: AgentLog) -> list[Json]:
        """Give the prompts that wait to the agent, which works. Return the blocks of those that came too late."""
        late: list[Json] = []
        for prompt in self._lent.take_queued():
            agent_log.conversation.know_input(prompt.input_id, list(prompt.blocks))
            agent_log.record(PromptRecord([], [PromptItem(prompt.input_id)]))
            await agent_log.commit()
            if not await connection.steer(prompt.blocks):
                late += prompt.blocks
        return late

    def unread(self, prompts: Sequence[Prompt]) -> None:
        """Keep prompts that the agent gets together with the next one."""
        self._unread += [block for prompt in prompts for block in prompt.blocks]

    async def forget(self) -> None:
        """Begin a new conversation; a failure shows at the next prompt."""
        self._known, self._has_turns, self._unread = "", False, []
        if self._connection is not None:
            try:
                await self._connection.begin_anew()
            except AgentFailed as error:
                log.warning("the agent is started again: %s", error)
                await self._end()

    async def close(self) -> None:
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait({self._starting})
        await self._end()
        await self._relaying.aclose()

    async def _start(self) -> bool:
        """Return whether the agent knows the conversation. Raise AgentFailed."""
        if not self._url and self.agent.environment:
            await self._relaying.enter_async_context(self._relay)
            self._url = self._relay.url
        if self._known:
            try:
                return await self._connect(self._known)
            except AgentFailed as error:
                log.warning("the agent cannot go on with its session: %s", error)
        return await self._connect("")

    async def _connect(self, known: str) -> bool:
        """Start the process, and open the conversation. Return whether it goes on. Raise AgentFailed."""
        goes_on = await self._opened_process(known, in_band=self.agent.in_band)
        if self.agent.in_band and isinstance(self._connection, AcpClient) and not self._connection.takes_gateway:
            log.info("the agent is told the address of its models by its environment")
            goes_on = await self._opened_process(known, in_band=False)
        return goes_on

    async def _opened_process(self, known: str, *, in_band: bool) -> bool:
        await self._end()
        context, agent = self._lent.context, self.agent
        acp = agent.dialect is AgentDialect.ACP
        own = environment_of(agent, "" if in_band else self._url, trusted=self._lent.trusted())
        env = {**context.login.variables, **own}
        resumed = () if acp or not known else ("--resume", known)
        argv = [*agent.argv, *flags_for(agent, self._lent.options()), *resumed]
        caged = self._wants_cage
        try:
            cage = self._cage() if caged else None
            secret = self._url.rpartition("/")[2]
            process = await AgentProcess.start(agent.name, argv, context.cwd, env, context.host, cage, secret)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise AgentFailed(f"{shown_command(agent)} cannot be started on this host: {why}") from None
        self._process, self._is_caged = process, caged
        self._connection = connection = (
            AcpClient(agent.name, process, self._lent, self._url)
            if acp
            else StreamJsonCli(agent.name, process, self._lent, known)
        )
        is_open = False
        try:
            goes_on = await connection.open(known)
            is_open = True
        except AgentFailed as error:
            text = str(error) or f"{shown_command(agent)} {await process.ended()}"
            raise AgentFailed(text) from None
        finally:
            if not is_open:
                await self._end()
        return goes_on

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

    def _opened(self) -> tuple[AgentConnection, bool]:
        assert self._starting is not None
        if self._starting.cancelled() or (self._connection is None and self._starting.exception() is None):
            raise AgentFailed(f"{self.name} was ended")
        goes_on = self._starting.result()  # raises why it did not start
        assert self._connection is not None
        return self._connection, goes_on

    def _tell_at_start(self, connection: AgentConnection, writer: AnswerWriter, *, goes_on: bool) -> None:
        """Tell once what the person may not expect of this process of the agent."""
        if self._has_turns and not goes_on and connection.facts.session != self._known:
            text = f"{self.name} was started again. It does not know this conversation: tell it what it must know."
            writer.tell(text, "warning")
        unused = ", ".join(options_without_effect(self.agent, self._lent.options()))
        if unused and unused not in self._told:
            self._told.add(unused)
            writer.tell(f"Without effect here, because {self.name} does not take it: {unused}", "warning")
        if not self.agent.environment and self.name not in self._told:
            self._told.add(self.name)
            writer.tell(f"{self.name} calls its models with its own login on this host, not through your laptop.")

    def _know(self, session: str, agent_log: AgentLog) -> None:
        if session not in ("", self._known):
            self._known = session
            agent_log.record(AgentSessionRecord(self.name, session))

    async def _choose(
        self, connection: AgentConnection, writer: AnswerWriter, state: AgentState, agent_log: AgentLog
    ) -> None:
        """Let the agent use the model and the mode of the session, if it has such."""
        wanted, current = "" if state.model == self.name else state.model, connection.facts.models.current
        value = connection.facts.models.find(wanted) if wanted and wanted != current else current
        if wanted and not value:
            offered = ", ".join(list(connection.facts.models.values)[:20]) or "none to choose from"
            writer.tell(f"{self.name} has no model {wanted!r}. It offers {offered}.", "warning")
        try:
            if value and value != current:
                await connection.use_model(value)
            mode = self._lent.permissions.mode
            own = agent_mode(mode, connection.facts.modes)
            if mode != connection.facts.follows and own and own != connection.facts.modes.current:
                await connection.use_mode(own)
            connection.facts.follows = mode
        except AgentFailed as error:
            writer.tell(str(error) or f"{self.name} has ended.", "warning")
        state.use_model(connection.facts.models.current or self.name, agent_log)

    async def _stop_turn(
        self, connection: AgentConnection, working: asyncio.Task[TurnEnding], writer: AnswerWriter
    ) -> None:
        await connection.cancel()
        await asyncio.wait({working}, timeout=_CANCEL_S)
        if not working.done() and self._process is not None:
            writer.tell(f"{self.name} did not stop, so it was ended. {_STARTS_AGAIN}", "warning")
            self._process.kill()
            await asyncio.wait({working})
        if not working.cancelled():
            working.exception()

    async def _ended(
        self, working: asyncio.Task[TurnEnding], connection: AgentConnection, state: AgentState, writer: AnswerWriter
    ) -> TurnEnding:
        try:
            ending = working.result()
        except AgentFailed as error:
            if str(error):
                return writer.failed(str(error))
            how = await self._process.ended() if self._process is not None else "ended"
            writer.end_message()
            text = f"{self.name} {how}. The turn ends with it. {_STARTS_AGAIN}"
            return TurnEnding(EndReason.MODEL_ERROR, errors=(text,))
        if connection.facts.usage:
            state.count(connection.facts.models.current or self.name, connection.facts.usage)
        state.ledger.total_cost_usd = max(state.ledger.total_cost_usd, connection.facts.cost_usd)
        return ending

    async def _end(self) -> None:
        """End the process."""
        connection, process = self._connection, self._process
        self._connection = self._process = None
        if connection is not None:
            await connection.close()
        if process is not None:
            await process.close()
