"""What a session and an agent of others have of each other."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Callable

from ccb.tunnel.wire.control_protocol import Broker
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import FrameError, Json
from ccb.tunnel.wire.json_rpc import INTERNAL_ERROR, PEER_ENDED, Handler, JsonRpcPeer, RpcError
from ccb.tunnel.wire.messages import as_dict, as_text
from ccb.tunnel.wire.session_options import SessionOptions

from ..agent.turn_state import ProgramFacts, TurnEnding
from ..hooks.hook_runner import HookRunner
from ..permissions.engine import PermissionEngine
from ..session_store.journal import NotKept
from ..system.deadline import within
from ..system.stdio_process import StdioProcess
from ..tools.output import clean
from ..tools.tool_contract import ToolContext
from .answer_writer import AnswerWriter

log = logging.getLogger(__name__)

START_S, CHANGE_S = 60.0, 20.0  # for an agent that starts, and for one that is to use another model or mode
ENDED = "The agent has ended while this ran."
STILL_RUNS = "The agent has ended its turn without a result of this call."
_AUTH_REQUIRED = -32000
_MAX_ERROR = 1_000  # characters


class AgentFailed(Exception):
    """The agent cannot be used; the text says why, for the person."""


class AgentEnded(AgentFailed):
    """The process of the agent has ended."""


class NoGateway(AgentFailed):
    """The agent cannot be told in the protocol where its models are."""


@dataclass(frozen=True)
class LentToAgent:
    """What the session lends to the agent of others that works in it."""

    context: ToolContext
    permissions: PermissionEngine
    broker: Broker
    hooks: HookRunner
    options: Callable[[], SessionOptions]
    trusted: Callable[[], bool]  # the project is


class AgentConnection(ABC):
    """One process of an agent, and the requests between it and the session. Each dialect says what those are."""

    def __init__(
        self,
        name: str,
        process: StdioProcess,
        lent: LentToAgent,
        handlers: Mapping[str, Handler],
        asking: Collection[str],
        incoming: Callable[[Json], Json] = lambda message: message,
        outgoing: Callable[[Json], Json | None] = lambda message: message,
    ) -> None:
        self.facts = ProgramFacts()
        self._name, self._lent, self.process = name, lent, process
        guarded = {method: self._guarded(handler) for method, handler in handlers.items()}
        self._peer = JsonRpcPeer(guarded, process.read, self._write, long=asking, incoming=incoming, outgoing=outgoing)
        self._serving = asyncio.get_running_loop().create_task(self._serve())
        self._not_kept: NotKept | None = None

    @abstractmethod
    async def open(self, known: str) -> None:
        """Agree on the protocol, and go on with the conversation that the agent has under the id `known`, else begin
        one. Raise AgentFailed."""

    @abstractmethod
    async def prompt(self, blocks: Sequence[Json], writer: AnswerWriter) -> TurnEnding:
        """Run a turn. Raise AgentFailed when the agent ends or fails, and NotKept."""

    @abstractmethod
    async def cancel(self) -> None:
        """Ask the agent to end its turn, which `prompt` then returns."""

    @abstractmethod
    async def choose(self, category: str, value: str) -> None:
        """Let the agent use a "model" or "mode" that it offers. Raise AgentFailed."""

    async def close(self) -> None:
        self._serving.cancel()
        await asyncio.wait({self._serving})
        await self.process.close()

    async def _request(self, method: str, params: Json, seconds: float | None) -> Json:
        """Return the answer; that of a prompt, which has no limit of time, comes when its turn has ended. Raise
        AgentFailed, NotKept."""
        answer = self._peer.request(method, params)
        try:
            return as_dict(await (answer if seconds is None else within(seconds, answer)))
        except RpcError as error:
            raise self._not_kept or await self._failure(error, method) from None
        except asyncio.TimeoutError:
            raise AgentFailed(f"{self._name} did not answer {method} within {seconds:g} s") from None

    def _guarded(self, handler: Handler) -> Handler:
        """End an agent of which the journal cannot keep what it does."""

        async def run(params: Json) -> Any:
            try:
                return await handler(params)
            except NotKept as error:
                self._not_kept = error
                self.process.kill(str(error))
                raise RpcError(INTERNAL_ERROR, str(error)) from None

        return run

    async def _notify(self, method: str, params: Json) -> None:
        try:
            await self._peer.notify(method, params)
        except RpcError as error:
            log.info("the agent is not told %s: %s", method, error)

    async def _failure(self, error: RpcError, method: str) -> AgentFailed:
        if error.code == PEER_ENDED:
            return AgentEnded(f"{self._name} {clean((await self.process.ended()).encode())}")
        data = error.data if isinstance(error.data, str) else as_text(as_dict(error.data).get("details"))
        why = ": ".join(filter(None, (error.message, data)))[:_MAX_ERROR]
        if error.code == _AUTH_REQUIRED:
            text = f"{self._name} wants a login of its own: {why}. Log it in on the host, in a shell (/shell)."
            return AgentFailed(text)
        return AgentFailed(f"{self._name} refused {method}: {why}")

    async def _write(self, data: bytes) -> None:
        try:
            self.process.send(data)
        except OSError as error:
            self.process.kill(str(error))
            raise

    async def _serve(self) -> None:
        try:
            await self._peer.serve()
        except FrameError as error:
            self.process.kill(str(error))
