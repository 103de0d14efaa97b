"""What servers say of tokens, in every shape: the laptop's meter and the worker read one number, and what a server does
not tell is estimated."""

from __future__ import annotations

import json

import pytest
from aiohttp import web
from tests.support.machine.waiting import until
from tests.support.network.http_server import serving
from tests.support.providers.adapters import settings_for
from tests.support.providers.dialect_server import KEY, DialectServer, Raw, sse
from tests.support.providers.turns import chunk
from tests.support.proxy.proxy_client import answer_to
from tests.tunnel.proxy.test_metering import KeptAccounts

from ccb.local.config.settings import Settings
from ccb.local.providers.session_provider import session_provider
from ccb.remote.model import model_request
from ccb.remote.model.answer_stream import MessageAssembler, SseParser, decode_event
from ccb.remote.model.model_request import ContextSize
from ccb.tunnel.proxy.auth_proxy import AuthProxy
from ccb.tunnel.proxy.metering import CallReport
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.model_facts import AT_MOST, ESTIMATED, TOKENS, count

TEXT = "word " * 80  # 100 tokens
PROMPT = "p" * 4_000  # 1,000 tokens


class _Message(model_request.HistoryMessage):
    def encoded(self) -> bytes:
        return json.dumps({"role": "user", "content": [{"type": "text", "text": PROMPT}]}).encode()

    encoded_with_cache_mark = encoded


async def asked(environ: dict[str, str], settings: Settings, model: str) -> tuple[list[bytes], bytes, CallReport]:
    """Make one call. Return the request, the answer, and what the laptop reports."""
    prefix = model_request.RequestPrefix([], [])
    body = model_request.body(prefix, [_Message("user")], model=model, max_tokens=5_000, session_id="s")
    accounts = KeptAccounts()
    async with AuthProxy(session_provider(environ, settings, model), accounts=accounts) as proxy:
        answer = await answer_to(proxy, b"".join(body))
        assert answer.status == 200
        await until(lambda: accounts.reports)
    return body, answer.body, accounts.reports[0]


async def used(environ: dict[str, str], settings: Settings, model: str) -> tuple[Json, CallReport]:
    """Make one call as a worker does. Return the usage that it counts, and what the laptop reports."""
    body, answer, report = await asked(environ, settings, model)
    assembler = MessageAssembler()
    for event in SseParser().feed(answer):
        assembler.feed(decode_event(event.data))
    assert assembler.stop_reason == "end_turn"
    return model_request.usage_of(body, assembler.final_usage()), report


def counts(usage: Json, report: CallReport) -> tuple[int, int, int, bool]:
    """Fresh, cached and made tokens, and whether they are an estimate: both ends must say the same."""
    here = (report.tokens.input, report.tokens.cache_write, report.tokens.cache_read, report.tokens.output)
    assert here == tuple(count(usage, name) for name in TOKENS) and report.estimated is bool(usage.get(ESTIMATED))
    return report.tokens.input, report.tokens.cache_read, report.tokens.output, report.estimated


TOLD: Json = {"prompt_tokens": 1_200, "completion_tokens": 90, "total_tokens": 1_290}
CACHED: Json = {"prompt_tokens_details": {"cached_tokens": 2_000}}
WRITTEN: Json = {"prompt_tokens_details": {"cached_tokens": 600, "cache_write_tokens": 300}}
CHAT: dict[str, tuple[object, object, tuple[int, int, int, bool]]] = {  # usage with the text, usage at the end
    "told": ("none", TOLD, (1_200, 0, 90, False)),
    "none": ("none", "none", (1_004, 0, 100, True)),
    "null": (None, None, (1_004, 0, 100, True)),
    "empty": ({}, {}, (1_004, 0, 100, True)),
    "zero": ("none", dict.fromkeys(TOLD, 0), (1_004, 0, 100, True)),
    "text": ("none", {"prompt_tokens": "many", "completion_tokens": [], "total_tokens": -5}, (1_004, 0, 100, True)),
    "totals only": ("none", {"total_tokens": 1_290}, (1_190, 0, 100, True)),
    "no completion": ("none", {"prompt_tokens": 1_200}, (1_200, 0, 100, True)),
    "no prompt": ("none", {"completion_tokens": 90, "prompt_tokens": 0}, (1_004, 0, 90, True)),
    "no prompt, but a total": ("none", {"completion_tokens": 90, "total_tokens": 1_290}, (1_200, 0, 90, False)),
    "floats": ("none", {name: float(value) for name, value in TOLD.items()}, (1_200, 0, 90, False)),
    "cached more than prompt": ("none", TOLD | CACHED, (0, 1_200, 90, False)),
    "cached beside the prompt": ("none", TOLD | CACHED | {"total_tokens": 3_290}, (1_200, 2_000, 90, False)),
    "written to the cache": ("none", TOLD | WRITTEN, (300, 600, 90, False)),
    "zeroed at the end": (TOLD, dict.fromkeys(TOLD, 0), (1_200, 0, 90, False)),
    "null at the end": (TOLD, None, (1_200, 0, 90, False)),
    "growing": ({**TOLD, "completion_tokens": 1, "total_tokens": 1_201}, TOLD, (1_200, 0, 90, False)),
}


@pytest.mark.parametrize(("first", "last", "expected"), CHAT.values(), ids=CHAT)
async def test_an_openai_compatible_server(first: object, last: object, expected: tuple[int, int, int, bool]) -> None:
    early, late = (Json() if each == "none" else {"usage": each} for each in (first, last))
    events = [chunk({"content": TEXT}) | early, chunk({}, "stop"), chunk() | late | {"choices": []}]
    server = DialectServer("vllm", Raw(sse(*events)))
    async with server.running():
        environ = {"OTHER_KEY": KEY, "ANTHROPIC_API_KEY": "unused"}
        usage, report = await used(environ, settings_for(server), "vllm/some-model")
    assert counts(usage, report) == expected and not report.untold
    assert report.tokens.cache_write == (300 if last == TOLD | WRITTEN else 0)
    size = ContextSize()
    size.ended(usage)
    shown = sum(expected[:3]) + report.tokens.cache_write
    assert size.counted == shown, "/context and the status line show it, too"


async def test_what_came_before_a_failure_is_paid_for() -> None:
    """An error in a stream is no free answer."""
    failure = {"error": {"message": "upstream exploded", "type": "server_error"}}
    server = DialectServer("vllm", Raw(sse(chunk({"content": TEXT}), failure)), Raw(sse(failure)))
    async with server.running():
        environ = {"OTHER_KEY": KEY, "ANTHROPIC_API_KEY": "unused"}
        _, answer, report = await asked(environ, settings_for(server), "vllm/some-model")
        _, _, nothing = await asked(environ, settings_for(server), "vllm/some-model")
    assert b"upstream exploded" in answer and (report.tokens.input, report.tokens.output) == (1_004, 100)
    assert report.estimated and not report.untold and nothing.tokens.output <= 5


MOST_INPUT, LONGEST = 1_415, 5_000
INPUT: Json = {"input_tokens": 1_200, "cache_read_input_tokens": 300}
LAST: Json = {"output_tokens": 90}
MOST = (MOST_INPUT, 300, LONGEST, True)
DETAILS: Json = {
    "cache_creation": {"ephemeral_1h_input_tokens": 0},
    "server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0},
    "iterations": [{"type": "message", "input_tokens": 3, "cache_creation": None}],
    "speed": "standard",
    "inference_geo": "not_available",
}
UNREADABLE: dict[str, Json] = {
    "number": {"input_tokens": "1200"},
    "empty number": {"cache_creation_input_tokens": ""},
    "negative": {"cache_creation_input_tokens": -5},
    "not finite": {"cache_creation_input_tokens": 1e300},
    "true": {"cache_creation_input_tokens": True},
    "iterations": {"iterations": {"0": {"input_tokens": 90_000}}},
    "iteration": {"iterations": [7]},
    "number of an iteration": {"iterations": [{"input_tokens": "90000"}]},
    "hour of an iteration": {"iterations": [{"cache_creation": {"ephemeral_1h_input_tokens": []}}]},
    "hour": {"cache_creation": {"ephemeral_1h_input_tokens": "9"}},
    "cache": {"cache_creation": [1]},
    "searches": {"server_tool_use": {"web_search_requests": "30"}},
    "tools": {"server_tool_use": "30"},
    "speed": {"speed": ["fast"]},
    "place": {"inference_geo": 1},
}
NATIVE: dict[str, tuple[object, object, tuple[int, int, int, bool]]] = {  # usage at the start, usage at the end
    "told": ({**INPUT, "output_tokens": 1}, {"output_tokens": 90}, (1_200, 300, 90, False)),
    "none": ("none", "none", (MOST_INPUT, 0, LONGEST, True)),
    "null": (None, None, (MOST_INPUT, 0, LONGEST, True)),
    "zero": (dict.fromkeys(TOKENS, 0), dict.fromkeys(TOKENS, 0), (MOST_INPUT, 0, LONGEST, True)),
    "text": ({"input_tokens": "x", "output_tokens": -1}, {"output_tokens": []}, (MOST_INPUT, 0, LONGEST, True)),
    "the start only": ({**INPUT, "output_tokens": 1}, "none", (1_200, 300, LONGEST, True)),
    "zeroed at the end": ({**INPUT, "output_tokens": 1}, dict.fromkeys(TOKENS, 0), (1_200, 300, LONGEST, True)),
    "zeroed input at the end": (INPUT, {"input_tokens": 0, "output_tokens": 90}, (1_200, 300, 90, False)),
    "the end only": ("none", {**INPUT, "output_tokens": 90}, (1_200, 300, 90, False)),
    "floats": ({"input_tokens": 1_200.0}, {"output_tokens": 90.0}, (1_200, 0, 90, False)),
    "null beside numbers": (INPUT | {"cache_creation": None}, {"output_tokens": 90}, (1_200, 300, 90, False)),
    "details": (INPUT | DETAILS, {**DETAILS, "output_tokens": 90}, (1_200, 300, 90, False)),
    **{
        f"unreadable {name}": ({**INPUT, **more}, {"output_tokens": 90}, (MOST_INPUT, 300, LONGEST, True))
        for name, more in UNREADABLE.items()
    },
    "unreadable cache": (
        {"input_tokens": 3, "cache_read_input_tokens": "190000"},
        LAST,
        (MOST_INPUT, 0, LONGEST, True),
    ),
    "unreadable at the end": (INPUT, {**LAST, "server_tool_use": {"web_search_requests": -1}}, MOST),
    "no usage at the end": ({**INPUT, "output_tokens": 1}, "x", MOST),
}


@pytest.mark.parametrize(("first", "last", "expected"), NATIVE.values(), ids=NATIVE)
async def test_a_server_of_the_messages_api(first: object, last: object, expected: tuple[int, int, int, bool]) -> None:
    """What a complete answer does not tell is the most that it can be: the bytes pass as they are, so neither end can
    ask the other."""
    head: Json = {"id": "m", "type": "message", "role": "assistant", "model": "x", "content": []}
    start: Json = {"type": "message_start", "message": head if first == "none" else {**head, "usage": first}}
    end: Json = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    text = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": TEXT}}
    done = {"type": "content_block_stop", "index": 0}
    events = [start, block, text, done, end if last == "none" else {**end, "usage": last}, {"type": "message_stop"}]

    async def upstream(got: web.Request) -> web.Response:
        await got.read()
        return web.Response(body=sse(*events, done=False), headers={"content-type": "text/event-stream"})

    async with serving(upstream) as url:
        environ = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": url}
        usage, report = await used(environ, Settings(), "claude-sonnet-4-5")
    assert counts(usage, report) == expected
    assert report.untold is (usage.get(ESTIMATED) == AT_MOST)
    size = ContextSize()
    size.ended(usage)
    assert size.counted == (0 if report.untold else sum(expected[:3])), "a window is not full of what may have been"
