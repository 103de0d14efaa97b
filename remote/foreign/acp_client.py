"""The client's end of the Agent Client Protocol, for an agent that is a process on this host. It offers the agent
neither files nor terminals: the agent works on this host itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace

from ccb import __version__
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.json_rpc import Reply
from ccb.tunnel.wire.messages import as_blocks, as_dict, as_number, as_text

from ..agent.turn_state import EndReason, ProgramChoice, TurnEnding
from ..mcp.mcp_client import answer_form
from ..system.deadline import within
from ..system.stdio_process import StdioProcess
from . import acp_translation as translation
from .acp_turn import AcpTurn
from .answer_writer import AnswerWriter
from .foreign_session import (
    CHANGE_S,
    ENDED,
    START_S,
    STILL_RUNS,
    AgentConnection,
    AgentEnded,
    AgentFailed,
    LentToAgent,
    NoGateway,
)

PROTOCOL = 1
_LOAD_S = 120.0
_STOP_S = 0.5  # within which an interrupt that withdraws a question tells the agent to stop
_GATEWAY = "gateway"
_BASES = {"anthropic": "", "openai": "/v1"}  # of the APIs, below the address of the models
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


class AcpClient(AgentConnection):
    """`url` is the address of the models, "" if the agent is not told one. `in_band`: only the protocol can tell it.
    `loses_results`: of a call in which it was stopped, so that its models refuse what it sends from then on."""

    def __init__(
        self, name: str, process: StdioProcess, lent: LentToAgent, url: str, *, in_band: bool, loses_results: bool
    ) -> None:
        handlers = {
            "session/update": self._update,
            "session/request_permission": self._permission,
            "elicitation/create": self._elicit,
        }
        super().__init__(name, process, lent, handlers, ("session/request_permission", "elicitation/create"))
        self._url, self._in_band, self._loses_results = url, in_band, loses_results
        self._can: Json = {}  # what the agent can do
        self._turn: AcpTurn | None = None

    async def open(self, known: str) -> None:
        hello = {
            "protocolVersion": PROTOCOL,
            "clientCapabilities": _CAPABILITIES,
            "clientInfo": {"name": "ccb", "title": "ccb", "version": __version__},
        }
        answer = await self._request("initialize", hello, START_S)
        if answer.get("protocolVersion") != PROTOCOL:
            version = str(answer.get("protocolVersion"))[:20]
            raise AgentFailed(f"{self._name} speaks version {version} of the Agent Client Protocol, not {PROTOCOL}")
        self._can = as_dict(answer.get("agentCapabilities"))
        gateway = [each for each in as_blocks(answer.get("authMethods")) if each.get("id") == _GATEWAY]
        if self._url and gateway:
            about = as_dict(as_dict(gateway[0].get("_meta")).get(_GATEWAY))
            url = self._url + _BASES.get(as_text(about.get("protocol")), "")
            where = {_GATEWAY: {"baseUrl": url, "headers": {}}}
            await self._request("authenticate", {"methodId": _GATEWAY, "_meta": where}, START_S)
        elif not (self._url and await self._set_providers()) and self._in_band:
            raise NoGateway(f"{self._name} is not told where its models are")
        place: Json = {"cwd": self._lent.context.cwd, "mcpServers": []}
        if known and self._can.get("loadSession") is True:
            begun = await self._request("session/load", {"sessionId": known, **place}, _LOAD_S)
            self.facts.session = known
        else:
            begun = await self._request("session/new", place, _LOAD_S)
            self.facts.session = as_text(begun.get("sessionId"))
        if not self.facts.session:
            raise AgentFailed(f"{self._name} began a session without an id")
        self._offered(begun)

    async def _set_providers(self) -> bool:
        """Lead its providers to the models. Return whether there is one that speaks an API of theirs."""
        able = self._can.get("providers") is not None
        listed = as_blocks((await self._request("providers/list", {}, START_S)).get("providers")) if able else []
        led = False
        for each in listed:
            supported = each.get("supported")
            for api in [api for api in _BASES if isinstance(supported, list) and api in supported][:1]:
                where = {"apiType": api, "baseUrl": self._url + _BASES[api], "headers": {}}
                await self._request("providers/set", {"providerId": each.get("providerId"), **where}, START_S)
                led = True
        return led

    async def prompt(self, blocks: Sequence[Json], writer: AnswerWriter) -> TurnEnding:
        sent, left = translation.prompt_blocks(blocks, as_dict(self._can.get("promptCapabilities")))
        if left:
            writer.tell(f"{self._name} takes no {' and no '.join(left)}: it was not given any.", "warning")
        turn = self._turn = AcpTurn(self._name, self._lent, writer)
        try:
            answer = await self._request("session/prompt", {"sessionId": self.facts.session, "prompt": sent}, None)
        except AgentFailed as error:
            turn.close(ENDED if isinstance(error, AgentEnded) else "The agent has failed while this ran.")
            raise
        finally:
            self._turn = None
        reason, self.facts.usage = as_text(answer.get("stopReason")), translation.usage_in(answer)
        turn.close(STILL_RUNS)
        if reason == "cancelled" and turn.stopped_in_call and self._loses_results:
            self.process.kill("it has lost the result of a call")
            await self.process.ended()  # the next turn starts it again
        return replace(self._ending(reason, turn, writer), denials=tuple(turn.denials))

    def _ending(self, reason: str, turn: AcpTurn, writer: AnswerWriter) -> TurnEnding:
        if reason == "cancelled":
            by_person = turn.stopped or turn.interrupted
            why = "Request interrupted by user" if by_person else f"{self._name} has ended its turn before it was done"
            end = EndReason.ABORTED_TOOLS if turn.interrupted else EndReason.ABORTED_STREAMING
            return TurnEnding(end, errors=(why,))
        if reason == "max_turn_requests":
            why = f"{self._name} has made all the model calls that it allows"
            return TurnEnding(EndReason.MAX_TURNS, errors=(why,))
        if reason in _ENDS:
            return writer.failed(_ENDS[reason])
        return TurnEnding(EndReason.COMPLETED, text=writer.last_text)

    async def cancel(self) -> None:
        if self._turn is not None:
            self._turn.stop()
        await self._notify("session/cancel", {"sessionId": self.facts.session})

    async def choose(self, category: str, value: str) -> None:
        params: Json = {"sessionId": self.facts.session}
        option = (self.facts.models if category == "model" else self.facts.modes).option
        if option:
            params.update(configId=option, value=value)
            self._offered(await self._request("session/set_config_option", params, CHANGE_S))
        else:
            await self._request(f"session/set_{category}", {**params, f"{category}Id": value}, CHANGE_S)

    async def _update(self, params: Json) -> None:
        update = as_dict(params.get("update"))
        kind = update.get("sessionUpdate")
        if self.facts.session and params.get("sessionId") != self.facts.session:
            return
        if kind == "available_commands_update":
            self.facts.commands = translation.commands(update.get("availableCommands"))
        elif kind == "current_mode_update":
            self._use_modes(replace(self.facts.modes, current=as_text(update.get("currentModeId"))))
        elif kind == "config_option_update":
            self._offered(update)
        elif kind == "usage_update":
            self._usage(update)
        elif self._turn is not None:
            self._turn.take(update)

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
        except asyncio.CancelledError:
            if self._peer.has_ended:
                raise
            with contextlib.suppress(asyncio.TimeoutError):  # after an interrupt, else it would ask its model again
                await within(_STOP_S, turn.told_to_stop.wait())
            return translation.NOBODY_ANSWERS  # the broker has withdrawn the question, or the agent has
        return Reply(answer, self.cancel) if turn.interrupted else answer

    async def _elicit(self, params: Json) -> Json:
        return await answer_form(self._lent.broker, self._lent.hooks, self._name, params)

    def _offered(self, answer: Json) -> None:
        models, modes = translation.offered(answer, "model"), translation.offered(answer, "mode")
        self.facts.models = models if models.values else self.facts.models
        if modes.values:
            self._use_modes(modes)

    def _use_modes(self, modes: ProgramChoice) -> None:
        """Take what the agent says of its modes. One that it has chosen itself is told: it may ask for less in it."""
        if self._turn is not None and modes.current != self.facts.modes.current:
            self._turn.tell_mode(modes.values.get(modes.current) or modes.current)
        self.facts.modes = modes
