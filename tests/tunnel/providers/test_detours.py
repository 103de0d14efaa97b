"""A session that changes its model: the reasoning of one provider never goes to another, and comes back to its own
unchanged. The servers refuse what the real ones refuse."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count, permutations

import pytest
from tests.support.providers.adapters import MODELS, settings_for, tool
from tests.support.providers.dialect_server import KEY, DialectServer
from tests.support.providers.strict_anthropic import AnthropicServer
from tests.support.providers.turns import Said
from tests.support.proxy.proxy_client import answer_to

from ccb.local.config.settings import ProviderSettings, Settings
from ccb.local.providers.session_provider import session_provider
from ccb.remote.agent import agent_messages
from ccb.remote.agent.conversation import Conversation, tool_result_message
from ccb.remote.model import model_request
from ccb.remote.model.answer_stream import BlockDone, MessageAssembler, SseParser, decode_event
from ccb.tunnel.proxy.auth_proxy import AuthProxy
from ccb.tunnel.wire.journal_records import (
    Content,
    MessageRecord,
    ModelEndRecord,
    ModelRecord,
    PromptItem,
    PromptRecord,
    Record,
    parse_line,
    record_of,
    to_line,
)

TRANSLATED = ("responses", "openai", "gemini", "deepseek", "openrouter", "vllm")
PLACES = {"anthropic": "claude-sonnet-4-5", "gateway": "lab/coder", **{name: MODELS[name] for name in TRANSLATED}}
PREFIX = model_request.RequestPrefix([{"type": "text", "text": "be brief"}], [tool("Bash")])
Server = AnthropicServer | DialectServer


class DetourSession:
    """A conversation as a worker keeps it, over an auth proxy with several providers."""

    def __init__(self, proxy: AuthProxy, servers: dict[str, Server]) -> None:
        self.conversation = Conversation()
        self.records: list[Record] = []
        self._proxy = proxy
        self._servers = servers
        self._place = self._model = ""
        self._numbers = count(1)

    def use(self, place: str, model: str = "") -> None:
        """What /model does; the first model of a session is in no record."""
        model = model or PLACES[place]
        if self._place:
            self._apply(ModelRecord(model))
        else:
            self.conversation.use(model)
        self._place, self._model = place, model

    async def turn(self) -> None:
        """A prompt, two calls after thinking, one more call, and a text."""
        self._apply(PromptRecord([], [PromptItem(content=[{"type": "text", "text": f"go, {self._place}"}])]))
        for calls in (2, 1, 0):
            number = next(self._numbers)
            ids = tuple(f"call_{number}_{place}" for place in range(calls))
            said = Said(f"text {number}", f"{self._place} thinks {number}", (("Bash", {"n": number}),) * calls, ids=ids)
            self._servers[self._place].replies.append(said)
            await self._ask()
            for each in ids:
                self._apply(MessageRecord(tool_result_message(each, "done", is_error=False)))

    async def _ask(self) -> None:
        self.conversation.seal()
        model = self._model
        sent = model_request.body(PREFIX, self.conversation.messages, model=model, max_tokens=1000, session_id="s")
        answer, assembler = await answer_to(self._proxy, b"".join(sent)), MessageAssembler()
        assert answer.status == 200, answer.body
        for event in SseParser().feed(answer.body):
            step = assembler.feed(decode_event(event.data))
            if isinstance(step, BlockDone):
                assert assembler.head is not None
                self._apply(MessageRecord(agent_messages.assistant(assembler.head, step.block, "", 0, model)))
        assert assembler.head is not None
        self._apply(ModelEndRecord(assembler.head.id, assembler.stop_reason, assembler.usage))

    def _apply(self, content: Content) -> None:
        record = parse_line(to_line(record_of(content, len(self.records) + 1)))
        assert record is not None
        self.records.append(record)
        self.conversation.apply(record)


@asynccontextmanager
async def session(*places: str) -> AsyncIterator[tuple[DetourSession, dict[str, Server]]]:
    servers: dict[str, Server] = {"anthropic": AnthropicServer("native", "claude-sonnet-4-5-20250929")}
    servers |= {place: DialectServer(place) for place in places if place in TRANSLATED}
    if "gateway" in places:
        servers["gateway"] = AnthropicServer("lab", "coder")
    providers: dict[str, ProviderSettings] = {}
    async with AsyncExitStack() as stack:
        for place, server in servers.items():
            await stack.enter_async_context(server.running())
            if isinstance(server, DialectServer):
                providers |= settings_for(server).providers
            elif place == "gateway":
                providers["lab"] = ProviderSettings(kind="anthropic-compatible", baseUrl=server.url)
        environ = {"OTHER_KEY": KEY, "ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": servers["anthropic"].url}
        router = session_provider(environ, Settings(providers=providers), PLACES[places[0]])
        async with AuthProxy(router) as proxy:
            yield DetourSession(proxy, servers), servers


@pytest.mark.quick_rows(28)
@pytest.mark.parametrize(("place", "detour"), [*permutations(PLACES, 2)])
async def test_reasoning_comes_back_after_a_detour_and_goes_nowhere_else(place: str, detour: str) -> None:
    async with session(place, detour) as (it, servers):
        for each in (place, detour, place, detour, place):
            it.use(each)
            await it.turn()
        again = Conversation.from_records(it.records)
        again.use(PLACES[place])
        again.seal()
        assert [each.encoded() for each in again.messages] == [each.encoded() for each in it.conversation.messages]
    for name, other in ((place, detour), (detour, place)):
        assert servers[name].refused == []
        sent = json.dumps(servers[name].requests)
        assert f"{other} thinks" not in sent and "ccb1." not in sent
        assert f"go, {other}" in sent


async def test_another_model_of_one_provider_sees_only_what_it_can_read() -> None:
    """A signature is of one model, also at Anthropic. Plain text, as DeepSeek wants it back, is of the provider."""
    async with session("anthropic", "deepseek") as (it, servers):
        it.use("anthropic")
        await it.turn()
        signatures = _count(it, "redacted_thinking")
        it.use("anthropic", "claude-opus-4-5")
        assert (signatures, _count(it, "thinking")) == (3, 0)
        it.use("anthropic", "claude-sonnet-4-5[1m]")
        assert _count(it, "redacted_thinking") == signatures
        for model in ("deepseek/deepseek-chat", "deepseek/deepseek-reasoner"):
            it.use("deepseek", model)
            await it.turn()
    assert servers["deepseek"].refused == []
    sent = servers["deepseek"].requests[-1]["messages"]
    thoughts = [each["reasoning_content"] for each in sent if each.get("tool_calls")]
    assert thoughts == ["", "", *(f"deepseek thinks {number}" for number in (4, 5, 7, 8))]


def _count(it: DetourSession, word: str) -> int:
    return sum(message.encoded().decode().count(f'"type":"{word}"') for message in it.conversation.messages)
