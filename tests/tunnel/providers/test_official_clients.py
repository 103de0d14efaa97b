"""The official clients: `anthropic` parses what the proxy says for every dialect, `openai` what the scripted servers
say, so that these are right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.providers.adapters import CHAT, MODELS, adapter
from tests.support.providers.dialect_server import KEY, DialectServer
from tests.support.providers.turns import Said
from tests.support.proxy.http_door import http_door
from tests.support.proxy.proxy_client import NONCE

pytestmark = pytest.mark.slow  # the two packages take seconds to load
SAID = Said("Grüße", thinking="let me see", calls=(("Read", {"path": 'a "b"'}), ("Bash", {})))
TOOLS: list[Any] = [
    {"name": name, "description": "d", "input_schema": {"type": "object", "properties": {}}}
    for name in ("Read", "Bash")
]


async def test_the_anthropic_client_parses_what_every_adapter_says(tmp_path: Path) -> None:
    import anthropic
    import httpx2

    for flavour, model in MODELS.items():
        async with (
            adapter(flavour, SAID, Said("after"), SAID) as it,
            http_door(it.proxy, tmp_path / flavour) as path,
            anthropic.AsyncAnthropic(
                api_key="dummy",
                base_url="http://model",
                default_headers={"x-auth-nonce": NONCE},
                http_client=anthropic.DefaultAsyncHttpxClient(transport=httpx2.AsyncHTTPTransport(uds=str(path))),
                max_retries=0,
            ) as client,
        ):
            messages: list[Any] = [{"role": "user", "content": "go"}]
            async with client.messages.stream(model=model, max_tokens=99, messages=messages, tools=TOOLS) as stream:
                message = await stream.get_final_message()
            assert message.stop_reason == "tool_use" and message.usage.output_tokens == 20
            uses = [block for block in message.content if block.type == "tool_use"]
            assert [(use.name, use.input) for use in uses] == list(SAID.calls)
            results: list[Any] = [{"type": "tool_result", "tool_use_id": use.id, "content": "r"} for use in uses]
            said: Any = {"role": "assistant", "content": message.content}
            history = [*messages, said, {"role": "user", "content": results}]
            async with client.messages.stream(model=model, max_tokens=99, messages=history, tools=TOOLS) as stream:
                assert (await stream.get_final_message()).content[-1].type == "text"
            whole = await client.messages.create(model=model, max_tokens=99, messages=messages, tools=TOOLS)
            assert [block.type for block in whole.content] == [block.type for block in message.content]
            counted = await client.messages.count_tokens(model=model, messages=messages)
            assert counted.input_tokens > 0 and it.server.refused == []
            with pytest.raises(anthropic.BadRequestError):  # the script is over
                await client.messages.create(model=model, max_tokens=99, messages=messages)


async def test_the_openai_client_parses_what_the_scripted_servers_say() -> None:
    import openai

    for flavour in (*CHAT, "responses"):
        server = DialectServer(flavour, SAID)
        async with server.running(), openai.AsyncOpenAI(api_key=KEY, base_url=server.url, max_retries=0) as client:
            if flavour == "responses":
                async with client.responses.stream(
                    model="gpt-5", input=[{"type": "message", "role": "user", "content": [_PART]}], store=False
                ) as stream:
                    final = await stream.get_final_response()
                assert final.output_text == SAID.text and final.usage is not None and final.usage.output_tokens == 20
                assert [item.name for item in final.output if item.type == "function_call"] == ["Read", "Bash"]
                continue
            async with client.chat.completions.stream(
                model="m", messages=[{"role": "user", "content": "go"}], stream_options={"include_usage": True}
            ) as chunks:
                completion = await chunks.get_final_completion()
            choice = completion.choices[0]
            assert choice.message.content == SAID.text and completion.usage is not None
            calls: Any = choice.message.tool_calls
            assert [each.function.name for each in calls] == ["Read", "Bash"]


_PART: Any = {"type": "input_text", "text": "go"}
