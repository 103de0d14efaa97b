"""Errors of other APIs, as the worker gets them: the right type, whether a retry helps, and no part of a key."""

from __future__ import annotations

import json

import pytest
from tests.support.providers.adapters import adapter, tool, user
from tests.support.providers.dialect_server import Raw

from ccb.remote.model.retry import ModelError
from ccb.tunnel.providers.api_errors import read_error

_VLLM = "This model's maximum context length is 32768 tokens. However, you requested 40000 tokens in the messages"
_OPENAI = "This model's maximum context length is 128000 tokens. However, your messages resulted in 130001 tokens."
_GEMINI = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."
_LLAMA = "the request exceeds the available context size. try increasing it"
_GROK = "This model's maximum prompt length is 131072 but the request contains 140000 tokens."
TOO_LONG: dict[str, object] = {
    "openai": {"error": {"code": "context_length_exceeded", "message": _OPENAI}},
    "responses": {"error": {"code": "context_length_exceeded", "message": "Your input exceeds the context window."}},
    "gemini": [{"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": _GEMINI}}],
    "llamacpp": {"error": {"code": 400, "type": "exceed_context_size_error", "message": _LLAMA}},
    "grok": {"code": "Client specified an invalid argument", "error": _GROK},
    "vllm": {"object": "error", "message": _VLLM, "type": "BadRequestError", "code": 400},
}


@pytest.mark.parametrize("name", TOO_LONG)
def test_a_conversation_that_is_too_long_is_what_the_worker_compacts(name: str) -> None:
    error = read_error(400, [], json.dumps(TOO_LONG[name]).encode(), name)
    assert (error.status, error.kind, error.headers) == (400, "invalid_request_error", {"x-should-retry": "false"})
    assert ModelError(error.message, error.status, error.kind).prompt_too_long
    numbers = {"openai": "130001 tokens > 128000 maximum", "gemini": "1200000 tokens > 1048576 maximum"}
    assert error.message.removeprefix("prompt is too long: ") == numbers.get(name, error.message[20:])


@pytest.mark.parametrize(
    ("status", "body", "kind", "becomes"),
    [
        (400, {"error": {"message": "bad"}}, "invalid_request_error", 400),
        (401, {"error": {"message": "Incorrect API key provided: sk-abc***xyz"}}, "authentication_error", 401),
        (402, {"error": {"message": "Insufficient Balance"}}, "billing_error", 402),
        (403, {"error": {"message": "no"}}, "permission_error", 403),
        (404, {"error": {"message": "no model", "code": "model_not_found"}}, "not_found_error", 404),
        (413, {"error": {"message": "large"}}, "request_too_large", 413),
        (422, {"detail": "wrong"}, "invalid_request_error", 400),
        (429, {"error": {"code": "slow_down", "message": "x"}}, "rate_limit_error", 429),
        (429, [{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "x"}}], "rate_limit_error", 429),
        (503, {"error": {"code": "server_is_overloaded", "message": "x"}}, "overloaded_error", 529),
        (502, {"error": {"code": 502, "message": "provider down"}}, "overloaded_error", 529),
        (500, {"error": {"message": "x"}}, "api_error", 500),
        (504, {"error": {"message": "x"}}, "timeout_error", 504),
        (400, {"error": {"code": "content_filter", "message": "policy"}}, "invalid_request_error", 400),
        (400, {"code": "invalid", "error": "xAI says this"}, "invalid_request_error", 400),
        (500, "not JSON at all", "api_error", 500),
    ],
)
def test_each_error_has_its_type(status: int, body: object, kind: str, becomes: int) -> None:
    error = read_error(status, [], (body if isinstance(body, str) else json.dumps(body)).encode(), "p")
    assert (error.kind, error.status) == (kind, becomes)
    headers = {"x-should-retry": "false"} if kind == "billing_error" else {}
    assert "sk-" not in error.message and error.headers == headers


async def test_what_cannot_be_translated_is_refused_before_it_is_sent() -> None:
    server_tool = {"type": "web_search_20250305", "name": "web_search"}
    many = [tool(f"t{number}") for number in range(129)]
    prefill = [user("a"), {"role": "assistant", "content": "I will"}]
    for flavour in ("openai", "responses"):
        async with adapter(flavour) as it:
            for asked, said in (
                (await it.ask([user("a")], tools=[server_tool]), "web_search"),
                (await it.ask([user("a")], tools=many), "128 tools"),
                (await it.ask(prefill), "prefill"),
                (await it.ask([]), "messages"),
            ):
                assert (asked.status, asked.headers["x-should-retry"]) == (400, "false")
                assert said in asked.error["message"]
            assert it.server.requests == []


@pytest.mark.parametrize("code", [429, "429"])
async def test_openrouter_fails_inside_a_stream_that_began_well(code: object) -> None:
    failed = {"id": "g", "error": {"code": code, "message": "no", "metadata": {"raw": "it is busy"}}, "choices": []}
    async with adapter("openrouter", Raw(f": OPENROUTER PROCESSING\n\ndata: {json.dumps(failed)}\n\n".encode())) as it:
        error = (await it.ask([user("go")])).error
    assert error["type"] == "rate_limit_error" and "it is busy" in error["message"]


async def test_an_answer_in_one_piece_that_fails_and_a_refused_key_are_errors_without_the_key() -> None:
    async with adapter("openai", Raw(b'data: {"error": {"code": "server_is_overloaded", "message": "x"}}\n\n')) as it:
        got = await it.ask([user("go")], stream=False)
        assert (got.status, got.error["type"]) == (529, "overloaded_error")
        it.server.replies.append(Raw(b'{"error":{"message":"bad key sk-proj-12345678 or key-of-the-other"}}', 401))
        got = await it.ask([user("go")])
    assert got.status == 401 and got.error["type"] == "authentication_error"
    assert b"sk-proj" not in got.body and b"key-of" not in got.body
