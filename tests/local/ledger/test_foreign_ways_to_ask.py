"""However an agent of others asks, in each API: what was paid counts against the budget, and what cannot be
counted reaches no provider."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from tests.support.machine.waiting import until
from tests.support.network.http_server import serving
from tests.support.proxy.relayed_agent import relayed

from ccb.local.config.settings import ProviderSettings, Settings
from ccb.local.ledger.audit import SessionAudit
from ccb.local.ledger.budgets import Budgets, SessionAccounts
from ccb.local.ledger.call_ledger import open_ledger
from ccb.local.providers.session_provider import session_provider
from ccb.tunnel.proxy.auth_proxy import AuthProxy
from ccb.tunnel.proxy.foreign_requests import checked, foreign_call
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.model_facts import ModelTable

JSON, STREAM = {"content-type": "application/json"}, {"content-type": "text/event-stream"}
DONE = b"data: [DONE]\n\n"
ONCE, TWICE, ALL, REFUSED = 1, 2, 5, 0
"""How many of five calls reach the provider: one of $2 uses the budget up; the most that one may cost, of which the
answer tells nothing, is $1.28; what is free may be asked for again and again."""

Way = tuple[Json, bytes, dict[str, str], int]


def sse(*events: object) -> bytes:
    return b"".join(b"data: %b\n\n" % json.dumps(each).encode() for each in events)


def text(event: object) -> bytes:
    return json.dumps(event).encode()


CALL = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
USED: Json = {"prompt_tokens": 1_600_000, "completion_tokens": 1, "total_tokens": 1_600_001}  # $2 of gpt-5
FEW: Json = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}


def chat(usage: object, *, stream: bool = True, ended: bool = True) -> bytes:
    finish = "tool_calls" if ended else None
    if not stream:
        choice = {"index": 0, "message": {"role": "assistant", "tool_calls": [CALL]}, "finish_reason": finish}
        return text({"model": "gpt-5", "choices": [choice], **({} if usage == "none" else {"usage": usage})})
    choice = {"index": 0, "delta": {"tool_calls": [CALL]}, "finish_reason": None}
    chunks: list[Json] = [
        {"model": "gpt-5", "choices": [choice], "usage": None},
        {"model": "gpt-5", "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]},
        {"model": "gpt-5", "choices": [], **({} if usage == "none" else {"usage": usage})},
    ]
    return sse(*chunks) + DONE


SAID: Json = {"messages": [{"role": "user", "content": "hi"}]}
STREAMED: Json = {**SAID, "stream": True}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8="}}


def said(*parts: object, **more: object) -> Json:
    return {"messages": [{"role": "user", "content": list(parts), **more}]}


CHAT: dict[str, Way] = {
    "streamed": (STREAMED, chat(USED), STREAM, ONCE),
    "streamed, usage not wanted": ({**STREAMED, "stream_options": {"include_usage": False}}, chat(USED), STREAM, ONCE),
    "streamed under another name": (STREAMED, chat(USED), JSON, ONCE),
    "streamed with both line ends": (STREAMED, chat(USED).replace(b"\n", b"\r\n"), STREAM, ONCE),
    "streamed without usage": (STREAMED, chat("none"), STREAM, TWICE),
    "streamed with usage null": (STREAMED, chat(None), STREAM, TWICE),
    "streamed with usage 0": (STREAMED, chat(dict.fromkeys(USED, 0)), STREAM, TWICE),
    "streamed with usage that is none": (STREAMED, chat([1]), STREAM, TWICE),
    "streamed with a negative count": (STREAMED, chat({**FEW, "prompt_tokens": -5}), STREAM, TWICE),
    "streamed with details that are none": (STREAMED, chat({**FEW, "prompt_tokens_details": [1]}), STREAM, TWICE),
    "streamed with usage and no end": (STREAMED, chat(FEW, ended=False), STREAM, TWICE),
    "streamed in lines that stand alone": (STREAMED, chat(USED).replace(b"\n\n", b"\n"), STREAM, TWICE),
    "streamed, compressed": (STREAMED, gzip.compress(chat(USED)), {**STREAM, "content-encoding": "gzip"}, TWICE),
    "in one piece": (SAID, chat(USED, stream=False), JSON, ONCE),
    "in one piece without usage": (SAID, chat("none", stream=False), JSON, TWICE),
    "in one piece that is cut": (SAID, chat(USED, stream=False)[:-2], JSON, TWICE),
    "in one piece of 33 MiB": (SAID, chat(USED, stream=False) + b" " * (33 << 20), JSON, TWICE),
    "with a picture": (said(IMAGE), chat(USED), STREAM, ONCE),
    "with the default of what is not for sale": ({**SAID, "n": 1, "store": False}, chat(USED), STREAM, ONCE),
    "an error in a stream": (STREAMED, sse({"error": {"message": "overloaded"}}), STREAM, ALL),
    "two answers": ({**SAID, "n": 2}, b"", JSON, REFUSED),
    "the best of two": ({**SAID, "best_of": 2}, b"", JSON, REFUSED),
    "kept": ({**SAID, "store": True}, b"", JSON, REFUSED),
    "spoken": ({**SAID, "modalities": ["text", "audio"], "audio": {"voice": "x"}}, b"", JSON, REFUSED),
    "at a higher price": ({**SAID, "service_tier": "priority"}, b"", JSON, REFUSED),
    "with a search of the web": ({**SAID, "web_search_options": {}}, b"", JSON, REFUSED),
    "with plugins of a gateway": ({**SAID, "plugins": [{"id": "web"}]}, b"", JSON, REFUSED),
    "of other models": ({**SAID, "models": ["gpt-5-pro"]}, b"", JSON, REFUSED),
    "with a tool of the provider": ({**SAID, "tools": [{"type": "web_search"}]}, b"", JSON, REFUSED),
    "with a tool without a type": ({**SAID, "tools": [{"google_search": {}}]}, b"", JSON, REFUSED),
    "with tools that are no list": ({**SAID, "tools": {"0": {"type": "web_search"}}}, b"", JSON, REFUSED),
    "with a file of the account": (said({"type": "file", "file": {"file_id": "f"}}), b"", JSON, REFUSED),
    "with a picture from elsewhere": (
        said({"type": "image_url", "image_url": {"url": "https://x.example/a.png"}}),
        b"",
        JSON,
        REFUSED,
    ),
    "with a sound": (said({"type": "input_audio", "input_audio": {"data": "aGk="}}), b"", JSON, REFUSED),
    "with an earlier sound": (said("hi", audio={"id": "audio_1"}), b"", JSON, REFUSED),
    "with what nobody knows": ({**SAID, "from_next_year": True}, b"", JSON, REFUSED),
    "with a member twice in other letters": ({**SAID, "N": 2}, b"", JSON, REFUSED),
}

ITEM = {"type": "function_call", "call_id": "call_1", "name": "ls", "arguments": "{}"}
SEARCH = {"type": "web_search_call", "id": "ws_1", "action": {"type": "search"}}
FEW_ITEMS: Json = {"input_tokens": 3, "output_tokens": 1, "total_tokens": 4}
USED_ITEMS: Json = {"input_tokens": 1_600_000, "output_tokens": 1, "total_tokens": 1_600_001}


def responses(
    usage: object = USED_ITEMS, items: tuple[Json, ...] = (ITEM,), *, stream: bool = True, end: str = "completed"
) -> bytes:
    response: Json = {"object": "response", "model": "gpt-5", "status": end, "output": list(items), "error": None}
    if usage != "none":
        response["usage"] = usage
    if not stream:
        return text(response)
    began: Json = {"type": "response.created", "response": {"model": "gpt-5", "status": "in_progress", "usage": None}}
    done = [{"type": "response.output_item.done", "output_index": 0, "item": each} for each in items]
    return sse(began, *done, {"type": f"response.{end}", "response": response})


ASKED: Json = {"input": "hi"}
ASKED_STREAM: Json = {"input": "hi", "stream": True}
OTHERS = {"previous_response_id": "resp_1", "conversation": "conv_1", "prompt": {"id": "p"}, "background": True}
OTHERS |= {"store": True, "service_tier": "priority", "context_management": [{"type": "compaction"}]}
RUN_THERE = ("file_search", "code_interpreter", "mcp", "image_generation", "computer_use_preview", "shell")
PARTS = {
    "a file of the account": {"type": "input_file", "file_id": "f"},
    "a file from elsewhere": {"type": "input_file", "file_url": "https://x.example/a.pdf"},
    "a picture of the account": {"type": "input_image", "file_id": "f", "image_url": "data:image/png;base64,"},
    "a picture from elsewhere": {"type": "input_image", "image_url": "https://x.example/a.png"},
}
WITH_SEARCH: Json = {**ASKED_STREAM, "tools": [{"type": "web_search"}]}
RESPONSES: dict[str, Way] = {
    "streamed": (ASKED_STREAM, responses(), STREAM, ONCE),
    "streamed without usage": (ASKED_STREAM, responses("none"), STREAM, TWICE),
    "streamed with usage null": (ASKED_STREAM, responses(None), STREAM, TWICE),
    "streamed with usage in text": (ASKED_STREAM, responses({"input_tokens": "1600000"}), STREAM, TWICE),
    "streamed and incomplete": (ASKED_STREAM, responses(end="incomplete"), STREAM, ONCE),
    "streamed without an end": (ASKED_STREAM, responses().rpartition(b"data:")[0], STREAM, TWICE),
    "in one piece": (ASKED, responses(stream=False), JSON, ONCE),
    "in one piece without usage": (ASKED, responses("none", stream=False), JSON, TWICE),
    "with 200 searches of the web": (WITH_SEARCH, responses(FEW_ITEMS, (SEARCH,) * 200 + (ITEM,)), STREAM, ONCE),
    "failed": (ASKED_STREAM, sse({"type": "response.failed", "response": {"error": {"code": "x"}}}), STREAM, ALL),
    "as an item of one's own": ({"input": [{"role": "user", "content": "hi"}]}, responses(), STREAM, ONCE),
    **{f"with {name}": ({**ASKED, name: value}, b"", JSON, REFUSED) for name, value in OTHERS.items()},
    **{f"with the tool {kind}": ({**ASKED, "tools": [{"type": kind}]}, b"", JSON, REFUSED) for kind in RUN_THERE},
    **{
        f"with {what}": ({"input": [{"role": "user", "content": [part]}]}, b"", JSON, REFUSED)
        for what, part in PARTS.items()
    },
    "with a tool in a group": (
        {**ASKED, "tools": [{"type": "namespace", "name": "n", "tools": [{"type": "mcp", "server_url": "x"}]}]},
        b"",
        JSON,
        REFUSED,
    ),
    "with a tool that is an item": (
        {"input": [{"type": "additional_tools", "tools": [{"type": "mcp", "server_url": "x"}]}]},
        b"",
        JSON,
        REFUSED,
    ),
    "with an item of the account": ({"input": [{"type": "item_reference", "id": "m"}]}, b"", JSON, REFUSED),
    "with a file in a result": (
        {"input": [{"type": "function_call_output", "call_id": "c", "output": [PARTS["a file of the account"]]}]},
        b"",
        JSON,
        REFUSED,
    ),
}

COUNTED: Json = {
    "promptTokenCount": 800_000,
    "candidatesTokenCount": 1,
    "totalTokenCount": 800_001,
}  # $2, a long prompt
SOME: Json = {"promptTokenCount": 3, "candidatesTokenCount": 1, "totalTokenCount": 4}


def gemini(usage: object = COUNTED, *, stream: bool = True, ended: bool = True) -> bytes:
    call = {"functionCall": {"name": "ls", "args": {}}}
    candidate: Json = {"content": {"role": "model", "parts": [call]}} | ({"finishReason": "STOP"} if ended else {})
    last: Json = {"candidates": [candidate], "modelVersion": "gemini-2.5-pro"}
    last |= {} if usage == "none" else {"usageMetadata": usage}
    first = {"candidates": [{"content": {"role": "model", "parts": [{"text": "…"}]}}], "usageMetadata": SOME}
    return sse(first, last) if stream and usage != "none" else sse(last) if stream else text(last)


CONTENTS: Json = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
GEMINI_PARTS = {
    "a file of the account": {"fileData": {"fileUri": "files/1"}},
    "a file in another spelling": {"file_data": {"file_uri": "files/1"}},
    "a sound": {"inlineData": {"mimeType": "audio/wav", "data": "aGk="}},
    "a film": {"inlineData": {"mimeType": "video/mp4", "data": "aGk="}},
    "a file in a result": {"functionResponse": {"name": "x", "parts": [{"fileData": {"fileUri": "files/1"}}]}},
}
CONFIGS: Json = {"candidateCount": 2, "candidate_count": 2, "responseModalities": ["IMAGE"], "speechConfig": {}}
GEMINI_TOOLS = ("googleSearch", "google_search", "codeExecution", "urlContext", "fileSearch", "googleMaps")
GEMINI: dict[str, Way] = {
    "streamed": (CONTENTS, gemini(), STREAM, ONCE),
    "streamed, thought about": (CONTENTS, gemini({**SOME, "thoughtsTokenCount": 200_000}), STREAM, ONCE),
    "streamed, not all of it told": (CONTENTS, gemini({**SOME, "totalTokenCount": 200_004}), STREAM, ONCE),
    "streamed without usage": (CONTENTS, gemini("none"), STREAM, TWICE),
    "streamed with usage in text": (CONTENTS, gemini({**SOME, "promptTokenCount": "800000"}), STREAM, TWICE),
    "streamed with usage and no end": (CONTENTS, gemini(SOME, ended=False), STREAM, TWICE),
    "in one piece": (CONTENTS, gemini(stream=False), JSON, ONCE),
    "in one piece without usage": (CONTENTS, gemini("none", stream=False), JSON, TWICE),
    "in one piece as an array": (CONTENTS, b"[%b]" % gemini(stream=False), JSON, TWICE),
    "counted": (CONTENTS, b'{"totalTokens": 9}', JSON, ALL),
    "with a cached prompt": ({**CONTENTS, "cachedContent": "cachedContents/1"}, b"", JSON, REFUSED),
    "with a cached prompt in another spelling": ({**CONTENTS, "cached_content": "c"}, b"", JSON, REFUSED),
    "with a stream that is an array": (CONTENTS, b"", JSON, REFUSED),
    "in a batch": (CONTENTS, b"", JSON, REFUSED),
    "of a tuned model": (CONTENTS, b"", JSON, REFUSED),
    **{
        f"with {name}": ({**CONTENTS, "generationConfig": {name: each}}, b"", JSON, REFUSED)
        for name, each in CONFIGS.items()
    },
    **{f"with the tool {name}": ({**CONTENTS, "tools": [{name: {}}]}, b"", JSON, REFUSED) for name in GEMINI_TOOLS},
    **{f"with {what}": ({"contents": [{"parts": [part]}]}, b"", JSON, REFUSED) for what, part in GEMINI_PARTS.items()},
}
GEMINI_PATHS = {
    "in one piece": ":generateContent",
    "counted": ":countTokens",
    "with a stream that is an array": ":streamGenerateContent",
    "in a batch": ":batchGenerateContent",
}
OTHER = {**CONTENTS, "generationConfig": {"maxOutputTokens": 80_000}}  # $1.20 of Claude Sonnet 4.5


def messages(tokens: int | None = 400_000, *, ended: bool = True) -> bytes:
    """$2.40 of Claude Sonnet 4.5."""
    usage = {"usage": {"input_tokens": tokens, "output_tokens": 1}} if tokens is not None else {}
    block = {"type": "tool_use", "id": "toolu_1", "name": "ls", "input": {}}
    events: list[Json] = [
        {"type": "message_start", "message": {"model": "claude-sonnet-4-5", **usage}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_stop", "index": 0},
    ]
    ends: list[Json] = [{"type": "message_delta", "delta": {"stop_reason": "tool_use"}, **usage}]
    return sse(*events, *(ends if ended else ()))


INSTEAD: dict[str, Way] = {
    "streamed": (OTHER, messages(), STREAM, ONCE),
    "streamed without usage": (OTHER, messages(None), STREAM, TWICE),
    "in one piece without an end": (OTHER, messages(3, ended=False), STREAM, TWICE),
    "in one piece": (OTHER, messages(), STREAM, ONCE),
    "in one piece without usage": (OTHER, messages(None), STREAM, TWICE),
    "counted": (OTHER, b'{"input_tokens": 9}', JSON, ALL),
    "with a tool of Gemini": ({**OTHER, "tools": [{"googleSearch": {}}]}, b"", JSON, REFUSED),
}
APIS: dict[str, tuple[dict[str, Way], str]] = {
    "chat": (CHAT, "/v1/chat/completions"),
    "responses": (RESPONSES, "/v1/responses"),
    "gemini": (GEMINI, "/v1beta/models/gemini-2.5-pro"),
    "instead": (INSTEAD, "/instead/claude-sonnet-4-5/v1beta/models/gemini-2.5-pro"),
}


def path_of(api: str, way: str) -> str:
    base = APIS[api][1]
    if api not in ("gemini", "instead"):
        return base
    if way == "of a tuned model":
        return "/v1beta/tunedModels/mine:generateContent"
    ending = next((each for name, each in GEMINI_PATHS.items() if way.startswith(name)), "")
    return base + (ending or ":streamGenerateContent?alt=sse")


@asynccontextmanager
async def lending(url: str, home: Path) -> AsyncIterator[tuple[AuthProxy, str]]:
    """A proxy with a budget of $2 whose providers are all at `url`, and its address for an agent."""
    own = {"openai": ProviderSettings(baseUrl=f"{url}/v1"), "gemini": ProviderSettings(baseUrl=f"{url}/v1beta/openai")}
    environ = {f"{name}_API_KEY": "k" for name in ("OPENAI", "GEMINI", "ANTHROPIC")}
    environ |= {"HOME": str(home), "ANTHROPIC_BASE_URL": url}
    table = ModelTable()
    router = session_provider(environ, Settings(providers=own), None, table=table)
    async with (
        SessionAudit(home) as audit,
        SessionAccounts(home, Budgets(run_usd=2.0), table) as accounts,
        AuthProxy(router, accounts=accounts, auditor=audit, models=table) as proxy,
        relayed(proxy) as relay,
    ):
        yield proxy, relay


UNREADABLE = ("compressed", "cut", "array", "33 MiB", "alone")


@pytest.mark.parametrize(("api", "way"), [(api, way) for api, (ways, _) in APIS.items() for way in ways])
async def test_five_calls_of_two_dollars_do_not_pass_a_budget_of_two(tmp_path: Path, api: str, way: str) -> None:
    request, answer, headers, reach = APIS[api][0][way]
    model = {} if api in ("gemini", "instead") else {"model": "gpt-5"}
    asked: list[Json] = []

    async def upstream(got: web.Request) -> web.Response:
        asked.append(json.loads(await got.read()))
        return web.Response(body=answer, headers=headers)

    async with serving(upstream) as url, lending(url, tmp_path) as (proxy, relay), aiohttp.ClientSession() as client:
        for _ in range(5):
            async with client.post(relay + path_of(api, way), json={**model, **request}) as got:
                told = await got.read()
                assert reach or got.status == 404 or (got.status, b"the laptop" in told) == (400, True)
            await until(lambda: not proxy.under_way)
    assert len(asked) == reach
    with open_ledger(tmp_path) as ledger:
        rows = [each.kind for _, each in ledger.audited("") if each.kind == "wanted"]
        sums = next(iter(ledger.sums("model")), None)
    if reach in (ONCE, TWICE):
        assert sums is not None and sums.usd >= 2.0 and sums.estimated == (reach if reach == TWICE else 0)
        readable = not any(word in way for word in UNREADABLE)
        assert len(rows) == (reach if readable else 0), "the audit has the tool call of each answer"
    if api == "chat" and way.startswith("streamed"):
        assert all(each["stream_options"]["include_usage"] for each in asked)
    if api == "responses":
        assert all(each["store"] is False for each in asked)


def test_a_search_of_the_provider_reserves_more_than_its_tokens() -> None:
    call = foreign_call("POST", "/v1/responses", "")
    assert call is not None
    items = {**ASKED, "input": [{"type": "additional_tools", "tools": WITH_SEARCH["tools"]}]}
    asked = [checked(call, body).billed("openai/gpt-5", 99) for body in (ASKED, WITH_SEARCH, items)]
    assert [each.own_tools for each in asked] == [True, False, False]


MESSAGE: Json = {"model": "claude-opus-4-1", "content": [], "usage": {"input_tokens": 140_000, "output_tokens": 1}}
IN_ONE_PIECE: dict[str, tuple[Json, bytes]] = {
    "/v1/messages": ({"model": "claude-opus-4-1", "max_tokens": 9, **SAID}, text(MESSAGE)),
    "/v1/chat/completions": ({"model": "gpt-5", **SAID}, chat(USED, stream=False)),
    "/v1/responses": ({"model": "gpt-5", **ASKED}, responses(stream=False)),
    "/v1beta/models/gemini-2.5-pro:generateContent": (CONTENTS, gemini(stream=False)),
}


@pytest.mark.parametrize("path", IN_ONE_PIECE)
async def test_an_agent_that_leaves_does_not_make_an_answer_in_one_piece_cheaper(tmp_path: Path, path: str) -> None:
    """Providers finish such an answer, and want its price: it is read to its end."""
    request, answered = IN_ONE_PIECE[path]
    asked, left = asyncio.Event(), asyncio.Event()

    async def upstream(got: web.Request) -> web.Response:
        await got.read()
        asked.set()
        await left.wait()
        return web.Response(body=answered, headers=JSON)

    async with serving(upstream) as url, lending(url, tmp_path) as (proxy, relay):
        async with aiohttp.ClientSession() as client:
            call = asyncio.create_task(client.post(relay + path, json=request))
            await asked.wait()
            call.cancel()
        await until(lambda: proxy._calls._unread or not proxy.under_way)
        left.set()
        await until(lambda: not proxy.under_way)
    with open_ledger(tmp_path) as ledger:
        (sums,) = ledger.sums("model")
    assert sums.usd >= 2.0 and not sums.estimated
