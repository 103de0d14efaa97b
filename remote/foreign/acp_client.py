"""The client's end of the Agent Client Protocol, for an agent that is a process on this host. It offers the agent
neither files nor terminals: the agent works on this host itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ccb import __version__
from ccb.tunnel.wire.frames import FrameError, Json
from ccb.tunnel.wire.json_rpc import INTERNAL_ERROR, PEER_ENDED, JsonRpcPeer, Reply, RpcError
from ccb.tunnel.wire.messages import as_blocks, as_dict, as_number, as_text
from ccb.tunnel.wire.ndjson import dump

from ..agent.turn_state import EndReason, TurnEnding
from ..mcp.mcp_client import answer_form
from ..session_store.journal import NotKept
from ..system.deadline import within
from ..system.stdio_process import StdioProcess
from . import acp_translation as translation
from .acp_turn import AcpTurn
from .answer_writer import AnswerWriter
from .foreign_session import AgentFacts, AgentFailed, LentToAgent

log = logging.getLogger(__name__)

PROTOCOL = 1
_START_S, _LOAD_S, _CHANGE_S = 60.0, 120.0, 20.0
_AUTH_REQUIRED = -32000
_GATEWAY = "gateway"
_MAX_ERROR = 1_000  # characters
_CAPABILITIES: Json = {
    "fs": {"readTextFile": False, "writeTextFile": False},
    "terminal": False,
    "session": {"configOptions": {"boolean": {}}, "notices": {}, "compaction": {}},
    "auth": {"_meta": {_GATEWAY: True}},
    "elicitation": {"form": {}},
    "_meta": {"terminal_output": True},
}
_ENDS = {
    "max_tokens": "the answer was cut off at the model's limit of output tokens.",
    "refusal": "the agent refused to go on. Ask in another way.",
}


class AcpClient:
    """See `AgentConnection`. `url` is the address of the models, "" if the agent is not told one in the protocol."""

    def __init__(self, name: str, process: StdioProcess, lent: LentToAgent, url: str) -> None:
        self.facts = AgentFacts()
        self.takes_gateway = False
        self._name, self._process, self._lent, self._url = name, process, lent, url
        self._can: Json = {}  # what the agent can do
        self._turn: AcpTurn | None = None
        self._not_kept: NotKept | None = None
        handlers = {
            "session/update": self._update,
            "session/request_permission": self._permission,
            "elicitation/create": self._elicit,
        }
        asking = ("session/request_permission", "elicitation/create")
        self._peer = JsonRpcPeer(handlers, process.read, self._write, long=asking)
        self._serving = asyncio.get_running_loop().create_task(self._serve())
        self._asked: asyncio.Task[Any] | None = None  # the prompt

    async def open(self, known: str) -> bool:
        hello = {
            "protocolVersion": PROTOCOL,
            "clientCapabilities": _CAPABILITIES,
            "clientInfo": {"name": "ccb", "title": "ccb", "version": __version__},
        }
        answer = as_dict(await self._request("initialize", hello, _START_S))
        if answer.get("protocolVersion") != PROTOCOL:
            version = dump({"": answer.get("protocolVersion")})[4:-1][:20]
            raise AgentFailed(f"{self._name} speaks version {version} of the Agent Client Protocol, not {PROTOCOL}")
        self._can = as_dict(answer.get("agentCapabilities"))
        self.facts.can_steer = as_dict(as_dict(answer.get("_meta")).get("steering")).get("supported") is True
        gateway = [each for each in as_blocks(answer.get("authMethods")) if each.get("id") == _GATEWAY]
        self.takes_gateway = bool(gateway)
        if self._url and gateway:
            about = as_dict(as_dict(gateway[0].get("_meta")).get(_GATEWAY))
            url = f"{self._url}/v1" if about.get("protocol") == "openai" else self._url
            where = {_GATEWAY: {"baseUrl": url, "headers": {}}}
            await self._request("authenticate", {"methodId": _GATEWAY, "_meta": where}, _START_S)
        if known and self._can.get("loadSession") is True:
            try:
                begun = await self._request("session/load", {"sessionId": known, **self._place()}, _LOAD_S)
                self.facts.session = known
                self._offered(as_dict(begun))
                return True
            except AgentFailed as error:
                log.warning("the agent cannot load its session: %s", error)
        await self.begin_anew()
        return False

    async def begin_anew(self) -> None:
        begun = as_dict(await self._request("session/new", self._place(), _LOAD_S))
        self.facts.session = as_text(begun.get("sessionId"))
        if not self.facts.session:
            raise AgentFailed(f"{self._name} began a session without an id")
        self._offered(begun)

    async def prompt(self, blocks: Sequence[Json], writer: AnswerWriter) -> TurnEnding:
        sent, left = self._sendable(blocks)
        if left:
            writer.tell(f"{self._name} takes no {' and no '.join(left)}: it was not given any.", "warning")
        self._not_kept, self._turn = None, AcpTurn(self._name, self._lent, writer)
        turn = self._turn
        params = {"sessionId": self.facts.session, "prompt": sent}
        self._asked = asyncio.get_running_loop().create_task(self._peer.request("session/prompt", params))
        try:
            await asyncio.wait({self._asked})
            if self._not_kept is not None:
                await self.cancel()
                raise self._not_kept
            answer = as_dict(self._asked.result())
        except RpcError as error:
            gone = error.code == PEER_ENDED
            turn.close("The agent has ended while this ran." if gone else "The agent has failed while this ran.")
            raise AgentFailed("" if gone else self._failure(error)) from None
        finally:
            self._turn = None
            self._asked.cancel()
        reason, self.facts.usage = as_text(answer.get("stopReason")), translation.usage_in(answer)
        turn.close()
        return replace(self._ending(reason, turn, writer), denials=tuple(turn.denials))

    def _sendable(self, blocks: Sequence[Json]) -> tuple[list[Json], list[str]]:
        """Return the blocks of a prompt for the agent, and what it cannot be given, in words."""
        sent, left = translation.prompt_blocks(blocks, as_dict(self._can.get("promptCapabilities")))
        return [*sent, *translation.links(blocks, self._lent.context.cwd)], left

    async def steer(self, blocks: Sequence[Json]) -> bool:
        meta = {"steering": {"idleBehavior": "promptRequired"}}
        params = {"sessionId": self.facts.session, "prompt": self._sendable(blocks)[0], "_meta": meta}
        try:
            answer = as_dict(await self._request("_session/steering", params, _CHANGE_S))
        except AgentFailed as error:
            log.warning("the agent cannot be steered: %s", error)
            return False
        return answer.get("outcome") == "injected"

    def _ending(self, reason: str, turn: AcpTurn, writer: AnswerWriter) -> TurnEnding:
        if reason == "cancelled":
            by_person = turn.stopped or turn.interrupted
            why = "Request interrupted by user" if by_person else f"{self._name} has ended its turn before it was done"
            return TurnEnding(
                EndReason.ABORTED_TOOLS if turn.interrupted else EndReason.ABORTED_STREAMING, errors=(why,)
            )
        if reason == "max_turn_requests":
            return TurnEnding(
                EndReason.MAX_TURNS, errors=(f"{self._name} has made all the model calls that it allows",)
            )
        if reason in _ENDS:
            return writer.failed(_ENDS[reason])
        return TurnEnding(EndReason.COMPLETED, text=writer.last_text)

    async def cancel(self) -> None:
        if self._turn is not None:
            self._turn.stopped = True
        try:
            await self._peer.notify("session/cancel", {"sessionId": self.facts.session})
        except RpcError as error:
            log.info("the agent is not told to stop: %s", error)

    async def use_model(self, value: str) -> None:
        await self._choose(self.facts.models, "session/set_model", "modelId", value)
        self.facts.models = replace(self.facts.models, current=value)

    async def use_mode(self, value: str) -> None:
        await self._choose(self.facts.modes, "session/set_mode", "modeId", value)
        self.facts.modes = replace(self.facts.modes, current=value)

    async def _choose(self, choice: translation.AgentChoice, method: str, key: str, value: str) -> None:
        params: Json = {"sessionId": self.facts.session}
        if not choice.option:
            await self._request(method, {**params, key: value}, _CHANGE_S)
            return
        params.update(configId=choice.option, value=value)
        self._offered(as_dict(await self._request("session/set_config_option", params, _CHANGE_S)))

    async def close(self) -> None:
        self._serving.cancel()
        await asyncio.wait({self._serving})

    def _place(self) -> Json:
        context = self._lent.context
        place: Json = {"cwd": context.cwd, "mcpServers": []}
        more = as_dict(self._can.get("sessionCapabilities")).get("additionalDirectories")
        if more is not None and context.add_dirs:
            place["additionalDirectories"] = list(context.add_dirs)
        return place

    async def _request(self, method: str, params: Json, seconds: float) -> Any:
        """Raise AgentFailed, with an empty text if the agent has ended."""
        try:
            return await within(seconds, self._peer.request(method, params))
        except RpcError as error:
            raise AgentFailed("" if error.code == PEER_ENDED else self._failure(error, method)) from None
        except asyncio.TimeoutError:
            raise AgentFailed(f"{self._name} did not answer {method} within {seconds:g} s") from None

    def _failure(self, error: RpcError, method: str = "session/prompt") -> str:
        data = error.data if isinstance(error.data, str) else as_text(as_dict(error.data).get("details"))
        why = ": ".join(filter(None, (error.message, data)))[:_MAX_ERROR]
        if error.code == _AUTH_REQUIRED:
            return f"{self._name} wants a login of its own: {why}. Log it in on the host, in a shell (/shell)."
        return f"{self._name} refused {method}: {why}"

    async def _write(self, data: bytes) -> None:
        self._process.send(data)

    async def _serve(self) -> None:
        try:
            await self._peer.serve()
        except FrameError as error:
            self._process.kill(str(error))
        except RpcError as error:
            self._process.kill(error.message)

    async def _update(self, params: Json) -> None:
        update = as_dict(params.get("update"))
        kind = update.get("sessionUpdate")
        if self.facts.session and params.get("sessionId") != self.facts.session:
            return
        if kind == "available_commands_update":
            self.facts.commands = translation.commands(update.get("availableCommands"))
        elif translation.told_mode(update):
            self._use_modes(replace(self.facts.modes, current=translation.told_mode(update)))
        elif kind == "config_option_update":
            self._offered(update)
        elif kind == "usage_update":
            self._usage(update)
        elif self._turn is not None:
            try:
                self._turn.take(update)
            except NotKept as error:
                self._break(error)

    def _break(self, error: NotKept) -> None:
        self._not_kept = error
        if self._asked is not None:
            self._asked.cancel()

    def _usage(self, update: Json) -> None:
        self.facts.used, self.facts.size = int(as_number(update.get("used"))), int(as_number(update.get("size")))
        cost = as_dict(update.get("cost"))
        if cost.get("currency", "USD") == "USD":
            self.facts.cost_usd = max(self.facts.cost_usd, as_number(cost.get("amount")))

    async def _permission(self, params: Json) -> Json | Reply:
        turn = self._turn
        if turn is None:
            return translation.NOBODY_ANSWERS
        try:
            answer = await turn.ask(params)
        except NotKept as error:
            self._break(error)
            raise RpcError(INTERNAL_ERROR, str(error)) from None
        except asyncio.CancelledError:
            if self._peer.has_ended:
                raise
            return translation.NOBODY_ANSWERS  # the broker has withdrawn the question
        return Reply(answer, self.cancel) if turn.interrupted else answer

    async def _elicit(self, params: Json) -> Json:
        return await answer_form(self._lent.broker, self._lent.hooks, self._name, params)

    def _offered(self, answer: Json) -> None:
        models, modes = translation.offered(answer, "model"), translation.offered(answer, "mode")
        self.facts.models = models if models.values else self.facts.models
        if modes.values:
            self._use_modes(modes)

    def _use_modes(self, modes: translation.AgentChoice) -> None:
        """Take what the agent says of its modes. One that it has chosen itself is told: it may ask for less in it."""
        if self._turn is not None and modes.current != self.facts.modes.current:
            self._turn.tell_mode(modes.values.get(modes.current) or modes.current)
        self.facts.modes = modes
