"""The list of models that a provider gives, in the JSON of each."""

from __future__ import annotations

import json

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from tests.support.network.http_server import serving

from ccb.tunnel.providers.http_client import ProviderClient, endpoint_at
from ccb.tunnel.providers.model_lists import MAX_LISTED, ListCall, ListedModel, ModelSource, read_page
from ccb.tunnel.providers.model_traits import ModelTraits, traits_of
from ccb.tunnel.providers.provider import ProviderError
from ccb.tunnel.providers.provider_kinds import KINDS

ANTHROPIC = """
{"has_more": false, "data": [{
  "type": "model", "id": "claude-opus-9-20270101", "display_name": "Claude Opus 9",
  "created_at": "2027-01-01T00:00:00Z", "max_input_tokens": 1000000, "max_tokens": 128000, "capabilities": {
    "image_input": {"supported": true}, "pdf_input": {"supported": false}, "thinking": {"supported": true, "types": {}},
    "effort": {"supported": true, "low": {"supported": true}, "max": {"supported": true}}}}]}"""
OPENAI = {"object": "list", "data": [{"id": "gpt-9", "created": 1}, {"id": "text-embedding-3-large"}, {"id": "tts-1"}]}
OPENROUTER = """
{"data": [
  {"id": "vendor/coder", "name": "Vendor: Coder", "context_length": 131072,
   "architecture": {"input_modalities": ["text", "image"]},
   "pricing": {"prompt": "0.00000125", "completion": "0.00001", "input_cache_read": "0.000000125"},
   "top_provider": {"max_completion_tokens": 32000}, "supported_parameters": ["tools", "reasoning"]},
  {"id": "vendor/auto", "pricing": {"prompt": "-1", "completion": "-1"}, "supported_parameters": ["stop"]}]}"""
GEMINI = """
{"models": [
  {"name": "models/gemini-9-pro", "displayName": "Gemini 9 Pro", "inputTokenLimit": 2000000, "outputTokenLimit": 65536,
   "supportedGenerationMethods": ["generateContent", "countTokens"], "thinking": true},
  {"name": "models/gemini-embed", "supportedGenerationMethods": ["embedContent"]}]}"""
VLLM = '{"data": [{"id": "Qwen/Qwen3-Coder", "max_model_len": 262144}]}'
LLAMACPP = '{"models": [], "data": [{"id": "qwen.gguf", "meta": {"n_ctx_train": 40960, "n_ctx": 8192}}]}'
OPUS = {"window": 1_000_000, "max_output": 128_000, "images": True, "documents": False, "thinking": True}
CODER = {"window": 131_072, "max_output": 32_000, "tools": True, "thinking": True, "images": True, "documents": False}
PRICES = {"input_price": 1.25, "output_price": 10.0, "cache_read_price": 0.125}
LISTS: dict[str, tuple[str, dict[str, object]]] = {
    "anthropic": (ANTHROPIC, {"claude-opus-9-20270101": {**OPUS, "efforts": ["low", "max"]}}),
    "openai": (json.dumps(OPENAI), {"gpt-9": {}}),
    "openrouter": (
        OPENROUTER,
        {"vendor/coder": {**CODER, **PRICES}, "vendor/auto": {"tools": False, "thinking": False}},
    ),
    "gemini": (GEMINI, {"gemini-9-pro": {"window": 2_000_000, "max_output": 65_536, "thinking": True}}),
    "vllm": (VLLM, {"Qwen/Qwen3-Coder": {"window": 262_144}}),
    "llamacpp": (LLAMACPP, {"qwen.gguf": {"window": 8_192}}),
}


async def unsigned(url: str) -> dict[str, str]:
    return {}


def read_list(data: bytes) -> list[ListedModel]:
    return read_page(data)[0]


@pytest.mark.parametrize(("listed", "expected"), LISTS.values(), ids=LISTS)
def test_each_provider_lists_its_models_in_its_own_words(listed: str, expected: dict[str, object]) -> None:
    assert {each.id: dict(each.facts) for each in read_list(listed.encode())} == expected


async def test_ollama_is_asked_for_each_of_its_models() -> None:
    shown = {
        "qwen3:8b": {"capabilities": ["completion", "tools", "thinking"], "parameters": "stop x\nnum_ctx   16384\n"},
        "llava:7b": {"capabilities": ["completion", "vision"], "model_info": {"llama.context_length": 32_768}},
    }

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == "/api/tags":
            return web.json_response({"models": [{"name": name} for name in ("broken:1b", *shown, "gone:1b")]})
        model = (await request.json())["model"]
        if model == "broken:1b" and request.transport is not None:
            request.transport.abort()
        found = shown.get(model)
        return web.json_response(found) if found else web.json_response({"error": "not found"}, status=404)

    async with serving(answer) as url:
        call = KINDS["ollama"].lists
        assert call is not None
        client = ProviderClient(endpoint_at(f"{url}/v1".removesuffix(call.strips), "baseUrl", {}), {})
        models = await ModelSource(client, unsigned, call).fetch()
    assert {each.id: dict(each.facts) for each in models} == {
        "qwen3:8b": {"tools": True, "images": False, "thinking": True, "window": 16_384},
        "llava:7b": {"tools": False, "images": True, "thinking": False},
        "gone:1b": {},
        "broken:1b": {},
    }


@pytest.mark.parametrize("data", [b"", b"[1", b'"x"', b"{}", b'{"data": {}}', b"[" * 100_000])
def test_what_is_no_list_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"^it "):
        read_list(data)


_WORDS = st.sampled_from(["id", "pricing", "prompt", "meta", "capabilities", "architecture", "max_tokens"])
_ANY = st.recursive(st.none() | st.integers() | st.text(), lambda each: st.lists(each) | st.dictionaries(_WORDS, each))


@given(_ANY)
def test_whatever_a_list_holds_it_is_read(item: object) -> None:
    for each in read_list(json.dumps({"data": [item, {"id": "m", "meta": item, "pricing": item}]}).encode()):
        traits_of(each.id, ModelTraits(), each.facts, {})


def test_a_list_has_a_limit_and_a_price_beyond_all_numbers_is_none() -> None:
    (model,) = read_list(b'{"data": [{"id": "m", "pricing": {"prompt": 1%s, "completion": "1"}}]}' % (b"0" * 400))
    assert not model.facts
    many = {"data": [{"id": f"model-{number}"} for number in range(MAX_LISTED + 10)]}
    assert len(read_list(json.dumps(many).encode())) == MAX_LISTED


def test_the_person_outranks_the_list_and_the_list_what_ccb_knows() -> None:
    listed = {"window": 300_000, "input_price": 2.0, "images": "yes", "max_output": -1, "colour": "red"}
    traits = traits_of("gpt-5", ModelTraits(), listed, {"input_price": 9.0})
    assert (traits.window, traits.input_price, traits.output_price) == (300_000, 9.0, 10)
    assert (traits.images, traits.max_output) == (True, 128_000), "what is of a wrong type does not count"
    prices = {name: traits_of(name, ModelTraits(), {}, {}).input_price for name in ("gpt-5-2025-08-07", "gpt-5-giant")}
    assert prices == {"gpt-5-2025-08-07": 1.25, "gpt-5-giant": None}, "a date changes no price, another word does"


@pytest.mark.parametrize("sdk", ["openai", "anthropic"])
async def test_an_sdk_sends_no_credential_that_it_finds_by_itself(sdk: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And its errors are those of model calls: one request, a redirect is not followed."""
    for name in ("OPENAI_API_KEY", "OPENAI_ORG_ID", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.setenv(name, "found")
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "x-found: found")
    asked: list[dict[str, str]] = []
    statuses = [200, 401, 307]

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append({name.lower(): value for name, value in request.headers.items()})
        return web.json_response(OPENAI, status=statuses[len(asked) - 1], headers={"location": "/elsewhere"})

    async def sign(url: str) -> dict[str, str]:
        return {"authorization": f"Bearer for {url.rpartition('/')[2].partition('?')[0]}"}

    async with serving(answer) as url:
        source = ModelSource(ProviderClient(endpoint_at(f"{url}/v1", "baseUrl", {}), {}), sign, ListCall(sdk=sdk))
        assert [each.id for each in await source.fetch()] == ["gpt-9"]
        with pytest.raises(ProviderError, match="HTTP 401"):
            await source.fetch()
        with pytest.raises(ProviderError, match="redirect; check baseUrl"):
            await source.fetch()
    plain = {"accept": "application/json", "accept-encoding": "identity", "user-agent": "ccb"}
    host = {"host": url.removeprefix("http://")}
    assert asked == [{**host, **plain, "authorization": "Bearer for models"}] * 3
