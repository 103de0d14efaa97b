"""Every adapter in front of its scripted server, and a reader of Anthropic events that takes only what is exact."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.model.model_script import Json

from ccb.local.config.settings import ProviderSettings, Settings
from ccb.local.providers.session_provider import session_provider
from ccb.tunnel.proxy.auth_proxy import AuthProxy

from ..proxy.proxy_client import Answer, answer_to
from .dialect_server import KEY, DialectServer, Reply

MODELS = {
    "responses": "openai/gpt-5",
    "openai": "chat/gpt-5",
    "azure": "azure/gpt-5",
    "gemini": "gemini/gemini-2.5-pro",
    "grok": "grok/grok-4",
    "deepseek": "deepseek/deepseek-chat",
    "openrouter": "openrouter/vendor/model",
    "ollama": "ollama/qwen3:8b",
    "vllm": "vllm/qwen3-coder:30b",
    "llamacpp": "llamacpp/model:1",
}
"""A model for each flavour of `DialectServer`, as the worker asks for it."""

CHAT = tuple(each for each in MODELS if each != "responses")


class Told(Answer):
    """What the worker got. `events` are the Anthropic events of a stream."""

    @property
    def events(self) -> list[Json]:
        made = []
        for block in self.body.decode().split("\n\n")[:-1]:
            name, data = block.split("\n")
            assert name.startswith("event: ") and data.startswith("data: ")
            made.append(json.loads(data[6:]))
            assert made[-1]["type"] == name[7:]
        return [each for each in made if each["type"] != "ping"]

    @property
    def error(self) -> Json:
        """The error of an answer that failed at once, or of a stream that failed in the middle."""
        found = json.loads(self.body) if self.status != 200 else self.events[-1]
        assert found["type"] == "error", found
        return dict(found["error"])

    @property
    def message(self) -> Json:
        return read_message(self.events)


async def told_by(proxy: AuthProxy, asked: Json, **head: object) -> Told:
    return Told(**vars(await answer_to(proxy, asked, **head)))


def read_message(events: list[Json]) -> Json:
    """Put the events together. Each must be where the Messages API has it."""
    first, *middle, last_delta, last = events
    assert first["type"] == "message_start" and last == {"type": "message_stop"}, events
    message = dict(first["message"])
    assert message["content"] == [] and message["usage"]["output_tokens"] == 0 and message["stop_reason"] is None
    blocks: list[Json] = []
    inputs: list[str] = []
    is_open = False
    for event in middle:
        kind = event["type"]
        if kind == "content_block_start":
            assert not is_open and event["index"] == len(blocks)
            blocks.append(dict(event["content_block"]))
            is_open, inputs = True, []
        elif kind == "content_block_delta":
            assert is_open and event["index"] == len(blocks) - 1
            delta, block = event["delta"], blocks[-1]
            field = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}.get(
                delta["type"]
            )
            if field is None:
                assert delta["type"] == "input_json_delta" and block["type"] == "tool_use"
                inputs.append(delta["partial_json"])
            else:
                assert field in block, (delta, block)
                block[field] += delta[field]
        else:
            assert kind == "content_block_stop" and is_open and event["index"] == len(blocks) - 1, event
            is_open = False
            if blocks[-1]["type"] == "tool_use":
                blocks[-1]["input"] = _input("".join(inputs))
            assert blocks[-1] != {"type": "text", "text": ""}
    assert not is_open and last_delta["type"] == "message_delta"
    return {**message, **last_delta["delta"], "content": blocks, "usage": last_delta["usage"]}


def _input(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def settings_for(server: DialectServer) -> Settings:
    """Settings that name the server, under the name in front of its model."""
    flavour = server.flavour
    name = MODELS[flavour].partition("/")[0]
    kind = "openai" if flavour in ("openai", "responses") else flavour
    dialect = "responses" if flavour == "responses" else "chat"
    own = ProviderSettings(kind=kind, dialect=dialect, baseUrl=server.url, keyVariable="OTHER_KEY")  # type: ignore[arg-type]
    return Settings(providers={name: own})


class Adapter:
    """A proxy with one other provider. `ask` is what a worker does."""

    def __init__(self, server: DialectServer, proxy: AuthProxy) -> None:
        self.server = server
        self.proxy = proxy
        self.model = MODELS[server.flavour]

    async def ask(self, messages: list[Json], *, path: str = "/v1/messages", **more: object) -> Told:
        """Make one call. It streams unless `stream` says otherwise."""
        asked: Json = {"model": self.model, "max_tokens": 1000, "stream": True, "messages": messages, **more}
        told = await told_by(self.proxy, asked, path=path)
        assert KEY.encode() not in told.body
        return told


@asynccontextmanager
async def adapter(flavour: str, *replies: Reply) -> AsyncIterator[Adapter]:
    server = DialectServer(flavour, *replies)
    async with server.running():
        environ = {"OTHER_KEY": KEY, "ANTHROPIC_API_KEY": "unused"}
        async with AuthProxy(session_provider(environ, settings_for(server), MODELS[flavour])) as proxy:
            yield Adapter(server, proxy)


def user(*content: object) -> Json:
    """A message of the user: texts and blocks."""
    blocks = [{"type": "text", "text": each} if isinstance(each, str) else each for each in content]
    return {"role": "user", "content": blocks}


def answered(told: Told) -> Json:
    return {"role": "assistant", "content": told.message["content"]}


def result(call_id: str, content: object, *, error: bool = False) -> Json:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **({"is_error": True} if error else {})}


def tool(name: str, schema: Json | None = None) -> Json:
    return {"name": name, "description": f"does {name}", "input_schema": schema or {"type": "object", "properties": {}}}


IMAGE: Json = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}}
PDF: Json = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}}
