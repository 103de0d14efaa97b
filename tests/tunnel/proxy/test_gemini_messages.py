"""An agent that speaks Gemini's API works with a model of another provider: nothing of a conversation is lost on the
way there and back, and what cannot be honoured is refused by its name."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import process_time

import aiohttp
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.model.fake_model import API_KEY, FakeModel
from tests.support.model.model_script import Json, Recorded, Reply, events
from tests.support.providers.dialect_server import KEY, DialectServer
from tests.support.providers.turns import Said
from tests.support.proxy.relayed_agent import relayed

from ccb.local.config.settings import ProviderSettings, Settings
from ccb.local.ledger.audit import SessionAudit
from ccb.local.ledger.call_ledger import open_ledger
from ccb.local.providers.session_provider import session_provider
from ccb.tunnel.providers.api_errors import Refusal
from ccb.tunnel.providers.foreign_api import ForeignCall
from ccb.tunnel.proxy.auth_proxy import AuthProxy
from ccb.tunnel.proxy.foreign_requests import foreign_call
from ccb.tunnel.proxy.gemini_messages import GeminiAnswer, said, translated
from ccb.tunnel.proxy.policy import RequestLimits
from ccb.tunnel.wire.ndjson import MAX_VALUES

GEMINI = "/v1beta/models/gemini-3.8-flash"
STREAM = ":streamGenerateContent?alt=sse"
TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30).filter(lambda text: bool(text.strip()))
BLOCKS = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, TEXT),
    st.builds(lambda text: {"type": "thinking", "thinking": text, "signature": "sig/+="}, TEXT),
    st.just({"type": "redacted_thinking", "data": "c2VjcmV0"}),
    st.builds(lambda path: {"type": "tool_use", "name": "read_file", "input": {"path": path}}, TEXT),
)
THOUGHTS = ("thinking", "redacted_thinking")
SAYS: Json = {"type": "text", "text": "a"}
THINKS: Json = {"type": "thinking", "thinking": "hm", "signature": "s"}
TURNS = st.lists(st.lists(BLOCKS, min_size=1, max_size=5), min_size=1, max_size=4)


def call_for(path: str = STREAM, instead: str = "claude-sonnet-4-5") -> ForeignCall:
    path, _, query = f"/instead/{instead}{GEMINI}{path}".partition("?")
    found = foreign_call("POST", path, query)
    assert found is not None
    return found


def asked(request: Json, path: str = STREAM, limits: RequestLimits | None = None) -> Json:
    """The body with which the model is asked."""
    _, sent = translated(call_for(path), {}, request, limits or RequestLimits(), 64_000)
    return dict(json.loads(sent.body.whole()))


def parts_of(answer: bytes, *, streams: bool) -> list[Json]:
    chunks = [json.loads(line[6:]) for line in answer.splitlines() if line] if streams else [json.loads(answer)]
    return [part for chunk in chunks for part in chunk["candidates"][0]["content"]["parts"]]


def kept_by_gemini_cli(parts: list[Json]) -> list[Json]:
    """What the agent has in its history: no thoughts, texts that follow each other in one, and ids with a name."""
    kept: list[Json] = []
    for part in (each for each in parts if not each.get("thought")):
        if "text" in part and kept and "text" in kept[-1]:
            kept[-1] = {**kept[-1], "text": kept[-1]["text"] + part["text"]}
        elif call := part.get("functionCall"):
            kept.append({**part, "functionCall": {**call, "id": f"{call['name']}__{call['id']}"}})
        else:
            kept.append(part)
    return kept


def unmarked(messages: list[Json]) -> list[Json]:
    return [
        {**each, "content": [{k: v for k, v in block.items() if k != "cache_control"} for block in each["content"]]}
        for each in messages
    ]


@example([[SAYS, THINKS, {"type": "text", "text": "b"}, {"type": "tool_use", "name": "f", "input": {}}]], 7, True)
@given(turns=TURNS, split=st.integers(1, 90), streams=st.booleans())
def test_what_a_model_has_said_comes_back_to_it_as_it_was(turns: list[list[Json]], split: int, streams: bool) -> None:
    contents: list[Json] = [{"role": "user", "parts": [{"text": "begin"}]}]
    expected: list[Json] = [{"role": "user", "content": [{"type": "text", "text": "begin"}]}]
    for number, blocks in enumerate(turns):
        reply = Reply(blocks=blocks)
        stream = "".join(
            f"event: {name}\ndata: {json.dumps(data)}\n\n"
            for name, data in events(reply, Recorded(number, "POST", "/v1/messages", "", {}, None, 9))
        ).encode()
        answer = GeminiAnswer(call_for(STREAM if streams else ":generateContent"), lambda *_: None)
        made = b"".join(answer.feed(stream[at : at + split]) for at in range(0, len(stream), split)) + answer.end()
        parts = kept_by_gemini_cli(parts_of(made, streams=streams))
        said_blocks, calls = (
            joined(reply.content(number)),
            [part["functionCall"] for part in parts if "functionCall" in part],
        )
        while said_blocks and said_blocks[-1]["type"] in THOUGHTS:
            said_blocks.pop()  # nothing follows that could carry it, nor needs it
        results = [{"id": each["id"], "name": each["name"], "response": {"output": "done"}} for each in calls]
        contents += [{"role": "model", "parts": parts}] if parts else []
        contents.append({"role": "user", "parts": [*({"functionResponse": each} for each in results), {"text": "on"}]})
        ids = [block["id"] for block in said_blocks if block["type"] == "tool_use"]
        done = [{"type": "text", "text": "done"}]
        answered = [{"type": "tool_result", "tool_use_id": each, "content": done, "is_error": False} for each in ids]
        expected += [{"role": "assistant", "content": said_blocks}] if said_blocks else []
        expected.append({"role": "user", "content": [*answered, {"type": "text", "text": "on"}]})
    assert unmarked(asked({"contents": contents})["messages"]) == expected


def joined(blocks: list[Json]) -> list[Json]:
    """Texts of a row are one: so does Gemini CLI keep them. Thinking between them goes with the next call."""
    made: list[Json] = []
    for block in blocks:
        before = [index for index, each in enumerate(made) if each["type"] not in THOUGHTS][-1:]
        if block["type"] == "text" and before and made[before[0]]["type"] == "text":
            made[before[0]] = {**block, "text": made[before[0]]["text"] + block["text"]}
        else:
            made.append(block)
    return made


TOOL = {
    "name": "ls",
    "description": "list",
    "parameters": {"type": "OBJECT", "properties": {"type": {"type": "STRING"}}},
}
REQUEST: Json = {
    "systemInstruction": {"role": "user", "parts": [{"text": "be brief"}]},
    "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
    "tools": [{"functionDeclarations": [TOOL, {"name": "rm", "parametersJsonSchema": {"type": "object"}}]}],
    "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["ls"]}},
    "generationConfig": {"temperature": 0, "topP": 0.95, "topK": 64, "stopSequences": ["END"], "maxOutputTokens": 700},
}


def test_a_request_is_that_of_the_messages_api() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    schema = {"type": "object", "properties": {"type": {"type": "string"}}}
    assert asked(REQUEST) == {
        "model": "claude-sonnet-4-5",
        "system": [{"type": "text", "text": "be brief", **mark}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi", **mark}]}],
        "tools": [{"name": "ls", "description": "list", "input_schema": schema}],
        "tool_choice": {"type": "any"},
        "max_tokens": 700,
        "stream": True,
        "stop_sequences": ["END"],
    }
    assert asked({**REQUEST, "generationConfig": {}})["max_tokens"] == 32_000
    assert asked({**REQUEST, "generationConfig": None}, limits=RequestLimits(max_output_tokens=5))["max_tokens"] == 5
    assert not {"max_tokens", "stream"} & set(asked(REQUEST, ":countTokens"))
    with pytest.raises(Refusal, match="do not allow the model 'claude-sonnet-4-5'"):
        asked(REQUEST, limits=RequestLimits(models=("gemini-*",)))


@pytest.mark.parametrize("name", ["responseSchema", "responseJsonSchema"])
def test_an_answer_in_json_is_asked_for_with_its_schema(name: str) -> None:
    config = {
        "responseMimeType": "application/json",
        name: {"type": "OBJECT", "properties": {"n": {"type": "INTEGER"}}},
    }
    (_, told) = asked({**REQUEST, "generationConfig": config})["system"]
    assert told["text"].endswith('{"type":"object","properties":{"n":{"type":"integer"}}}') and "JSON" in told["text"]


@pytest.mark.parametrize(
    ("name", "value"), [("logprobs", 3), ("responseLogprobs", True), ("responseMimeType", "text/x.enum")]
)
def test_what_another_model_cannot_do_is_refused_by_its_name(name: str, value: object) -> None:
    with pytest.raises(Refusal, match=f"claude-sonnet-4-5 cannot answer as the {name} "):
        asked({**REQUEST, "generationConfig": {name: value}})


def test_results_without_ids_belong_to_the_calls_of_their_names_in_order() -> None:
    picture = {"inlineData": {"mimeType": "image/png", "data": "aGk="}}
    calls: list[Json] = [{"functionCall": {"name": name, "args": {}}} for name in ("ls", "cat", "ls")]
    results: list[Json] = [
        {"functionResponse": {"name": "cat", "response": {"output": "c"}, "parts": [picture]}},
        {"functionResponse": {"name": "ls", "response": {"error": "e"}}},
        {"functionResponse": {"name": "ls", "response": {"a": 1, "b": 2}}},
    ]
    contents = [{"role": "model", "parts": calls}, {"role": "user", "parts": [{"text": "so"}, *results]}]
    called, answered = said({"contents": contents})["messages"]
    ids = [each["id"] for each in called["content"]]
    assert len(set(ids)) == 3 and answered["content"][-1] == {"type": "text", "text": "so"}
    first, second, third = answered["content"][:3]
    assert [each["tool_use_id"] for each in (first, second, third)] == [ids[1], ids[0], ids[2]]
    source = {"type": "base64", "media_type": "image/png", "data": "aGk="}
    assert first["content"] == [{"type": "text", "text": "c"}, {"type": "image", "source": source}]
    assert second["is_error"] and third["content"] == [{"type": "text", "text": '{"a":1,"b":2}'}]


def test_a_signature_of_others_adds_nothing_to_a_conversation() -> None:
    for found in (b"\x01\x02", b"[" * 100_000, b'[{"type": "tool_result"}, 7]', b'"thinking"'):
        part = {"text": "said", "thoughtSignature": base64.b64encode(found).decode()}
        (message,) = said({"contents": [{"role": "model", "parts": [part, {**part, "thoughtSignature": "%"}]}]})[
            "messages"
        ]
        assert message["content"] == [{"type": "text", "text": "said"}] * 2


def test_a_host_cannot_hold_up_the_laptop_with_calls_or_hidden_values() -> None:
    def with_thoughts(text: str) -> Json:
        return {"text": "said", "thoughtSignature": base64.b64encode(text.encode()).decode()}

    thought = '[{"type":"thinking","thinking":"hm","more":[]}]'
    contents = [
        {"role": "model", "parts": [with_thoughts(thought), with_thoughts("[" + "[]," * MAX_VALUES + thought[1:])]}
    ]
    (message,) = said({"contents": contents})["messages"]
    assert [block["type"] for block in message["content"]] == ["thinking", "text", "text"]
    assert message["content"][0] == {"type": "thinking", "thinking": "hm"}

    calls = [{"functionCall": {"name": "ls"}}] * 15_000
    results = [{"functionResponse": {"name": name}} for name in ("cat", "ls")] * 7_500
    began = process_time()
    messages = said({"contents": [{"role": "model", "parts": calls}, {"role": "user", "parts": results}]})["messages"]
    assert process_time() - began < 5, "each result is looked up, not searched for"
    assert messages[1]["content"][-1]["tool_use_id"] == "call_7499"


@asynccontextmanager
async def agent(fake_model: FakeModel, home: Path) -> AsyncIterator[tuple[aiohttp.ClientSession, str, SessionAudit]]:
    environ = {"HOME": str(home), "ANTHROPIC_BASE_URL": fake_model.url, "ANTHROPIC_API_KEY": API_KEY}
    environ["OPENAI_API_KEY"] = KEY
    server = DialectServer("responses", Said("from GPT", calls=(("ls", {"path": "/"}),)))
    async with server.running(), SessionAudit(home) as audit:
        audit.begins()
        router = session_provider(
            environ, Settings(providers={"openai": ProviderSettings(baseUrl=server.url)}), None, agent="gemini"
        )
        async with AuthProxy(router, auditor=audit) as proxy, relayed(proxy) as url, aiohttp.ClientSession() as client:
            yield client, f"{url}/instead/", audit


async def test_each_operation_is_answered_in_gemini_s_words(fake_model: FakeModel, tmp_path: Path) -> None:
    usage = {"input_tokens": 5, "cache_read_input_tokens": 7, "cache_creation_input_tokens": 3, "output_tokens": 9}
    cut = {"blocks": [{"type": "tool_use", "name": "ls", "raw": '{"path": "/'}], "stop_reason": "max_tokens"}
    call = {"blocks": [{"type": "tool_use", "name": "ls", "input": {"path": "/"}}], "usage": usage}
    fake_model.add({"text": "one piece", "usage": usage}, call, cut, {"text": "no", "stop_reason": "refusal"})
    fake_model.add({"status": 529, "error": {"type": "overloaded_error", "message": "Overloaded"}, "retry_after": 3})
    told = {"promptTokenCount": 15, "candidatesTokenCount": 9, "cachedContentTokenCount": 7, "totalTokenCount": 24}
    async with agent(fake_model, tmp_path) as (client, url, _):

        async def ask(operation: str, model: str = "claude-sonnet-4-5") -> tuple[int, Json]:
            async with client.post(f"{url}{model}{GEMINI}{operation}", json=REQUEST) as answer:
                text = await answer.text()
                chunks = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
                return answer.status, chunks[-1] if chunks else json.loads(text)

        status, answer = await ask(":generateContent")
        (candidate,) = answer["candidates"]
        assert "".join(each["text"] for each in candidate["content"]["parts"]) == "one piece"
        assert (candidate["finishReason"], answer["usageMetadata"]) == ("STOP", told)
        answers = [await ask(STREAM) for _ in range(3)]
        assert [each["candidates"][0]["finishReason"] for _, each in answers] == ["STOP", "MAX_TOKENS", "SAFETY"]
        assert not answers[1][1]["candidates"][0]["content"]["parts"], "a call that was cut must not run"
        status, answer = await ask(STREAM)
        assert (status, answer["error"]["code"], "Overloaded" in answer["error"]["message"]) == (529, 529, True)
        assert (await ask(":countTokens"))[1]["totalTokens"] > 0
        status, answer = await ask(":generateContent", "openai%2Fgpt-5")
        text, called = answer["candidates"][0]["content"]["parts"][0], answer["candidates"][0]["content"]["parts"][-1]
        assert text["text"] and called["functionCall"]["args"] == {"path": "/"}


async def test_results_belong_to_the_calls_that_the_audit_has_seen(fake_model: FakeModel, tmp_path: Path) -> None:
    fake_model.add({"blocks": [{"type": "tool_use", "name": "ls", "input": {}}]}, {"text": "done"}, {"text": "done"})
    async with agent(fake_model, tmp_path) as (client, url, _):
        path = f"{url}claude-sonnet-4-5{GEMINI}:generateContent"
        async with client.post(path, json=REQUEST) as answer:
            (part,) = (await answer.json())["candidates"][0]["content"]["parts"]
        for call in (part["functionCall"], {"name": "ls", "id": "forged"}):
            result = {"functionResponse": {"name": "ls", "id": call["id"], "response": {"output": "x"}}}
            said_now = [{"role": "model", "parts": [{"functionCall": call}]}, {"role": "user", "parts": [result]}]
            async with client.post(path, json={**REQUEST, "contents": [*REQUEST["contents"], *said_now]}) as answer:
                assert answer.status == 200
    with open_ledger(tmp_path) as ledger:
        kinds = [entry.kind for _, entry in ledger.audited("")]
    assert kinds.count("wanted") == kinds.count("result") == kinds.count("tampering") == 1
