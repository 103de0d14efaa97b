"""One suite of conversations against every adapter, in front of a server of its dialect that refuses what the real one
refuses."""

from __future__ import annotations

import json

import pytest
from tests.support.providers.adapters import IMAGE, MODELS, PDF, adapter, answered, result, tool, user
from tests.support.providers.turns import Said

pytestmark = pytest.mark.parametrize("flavour", MODELS)
SEES_THINKING = tuple(each for each in MODELS if each not in ("openai", "azure", "gemini"))
TOOLS = [tool("Read", {"type": "object", "properties": {"path": {"type": "string"}}}), tool("Bash")]


async def test_text_thinking_and_usage(flavour: str) -> None:
    said = Said("Grüße \U0001f600 to you", thinking="let me see", prompt=100, cached=40, output=20, reasoning=8)
    async with adapter(flavour, said) as it:
        told = await it.ask([user("hi")], system="be brief", metadata={"user_id": "u" * 90})
        assert not it.server.refused and it.server.headers[0].get("x-api-key") is None
    assert told.status == 200 and told.headers["content-type"].startswith("text/event-stream")
    message = told.message
    kinds = [block["type"] for block in message["content"]]
    assert kinds == (["thinking", "text"] if flavour in SEES_THINKING else ["text"])
    first, last = message["content"][0], message["content"][-1]
    assert last["text"] == said.text and first.get("thinking", said.thinking) == said.thinking
    assert (message["model"], message["stop_reason"], message["role"]) == (MODELS[flavour], "end_turn", "assistant")
    cached = 0 if flavour in ("ollama", "llamacpp") else 40
    usage = message["usage"]
    counts = [usage[name] for name in ("input_tokens", "cache_read_input_tokens", "output_tokens")]
    assert counts == [100 - cached, cached, 20]
    if flavour not in ("ollama", "llamacpp"):
        assert usage["output_tokens_details"] == {"thinking_tokens": 8}


async def test_parallel_calls_their_results_and_what_must_come_back(flavour: str) -> None:
    """The server refuses the second request if reasoning, signatures or results are not where they must be."""
    calls: tuple[tuple[str, dict[str, object]], ...] = (
        ("Read", {"path": 'a "b" \\ c'}),
        ("Bash", {}),
        ("Read", {"path": "x" * 50}),
    )
    first = Said("I look.", thinking="three calls", calls=calls)
    async with adapter(flavour, first, Said("", thinking="more", calls=(("Bash", {}),)), Said("done")) as it:
        told = await it.ask([user("go")], tools=TOOLS)
        uses = [block for block in told.message["content"] if block["type"] == "tool_use"]
        assert [(use["name"], use["input"]) for use in uses] == [(name, given) for name, given in calls]
        assert told.message["stop_reason"] == "tool_use" and len({use["id"] for use in uses}) == 3
        results = [result(use["id"], f"r{place}", error=place == 1) for place, use in enumerate(uses)]
        history = [user("go"), answered(told), user(*results, "and now?")]
        told = await it.ask(history, tools=TOOLS)
        assert it.server.refused == [] and told.message["stop_reason"] == "tool_use"
        more = [block for block in told.message["content"] if block["type"] == "tool_use"]
        history += [answered(told), {"role": "user", "content": [result(more[0]["id"], [])]}]
        assert (await it.ask(history, tools=TOOLS)).message["content"][-1] == {"type": "text", "text": "done"}
        assert it.server.refused == []
        sent = it.server.requests[1]
    items = sent["input"] if flavour == "responses" else sent["messages"]
    results = [item for item in items if item.get("type", item.get("role")) in ("function_call_output", "tool")]
    assert [item.get("output", item.get("content")) for item in results] == ["r0", "Error: r1", "r2"]


async def test_images_and_documents_also_in_results(flavour: str) -> None:
    async with adapter(flavour, Said("", calls=(("Read", {}), ("Bash", {}))), Said("I see")) as it:
        told = await it.ask([user("look", IMAGE, PDF)], tools=TOOLS)
        one, two = [block["id"] for block in told.message["content"] if block["type"] == "tool_use"]
        shot = [{"type": "text", "text": "a picture:"}, IMAGE]
        history = [user("look", IMAGE, PDF), answered(told), user(result(one, shot), result(two, "done"))]
        told = await it.ask(history, tools=TOOLS)
        assert it.server.refused == [] and told.message["content"][-1]["text"] == "I see"
        sent = str(it.server.requests[1])
    if flavour == "deepseek":  # it takes none, and a picture as text would fill the window
        assert "aGVsbG8=" not in sent and sent.count("an image is left out") == 2
    else:
        assert sent.count("aGVsbG8=") == 2
    assert sent.count("JVBERi0=") == (1 if flavour in ("responses", "openai", "azure") else 0)


async def test_stop_reasons(flavour: str) -> None:
    replies = Said("half", stop="length"), Said("no", stop="filter"), Said("", calls=(("Bash", {}),), stop="length")
    async with adapter(flavour, *replies) as it:
        reasons = [(await it.ask([user("hi")], tools=TOOLS)).message["stop_reason"] for _ in range(3)]
    assert reasons[:2] == ["max_tokens", "refusal"]
    assert reasons[2] == "max_tokens"


async def test_a_request_with_everything_is_accepted(flavour: str) -> None:
    async with adapter(flavour, Said("fine")) as it:
        await it.ask(
            [user("hi")],
            system=[{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}],
            tools=[{**tool("Read"), "cache_control": {"type": "ephemeral"}}],
            thinking={"type": "enabled", "budget_tokens": 4096},
            output_config={"effort": "xhigh"},
            temperature=0.5,  # no worker says this, and it is left out
            stop_sequences=["STOP"],
            metadata={"user_id": '{"device": "ä"}' * 9},
        )
        assert it.server.refused == [] and "device" not in json.dumps(it.server.requests)


async def test_a_system_message_in_the_middle_reaches_the_model(flavour: str) -> None:
    """Claude Code describes its environment there."""
    async with adapter(flavour, Said("hi")) as it:
        told = await it.ask([user("hello"), {"role": "system", "content": "on a submarine"}])
        assert told.status == 200 and "on a submarine" in str(it.server.requests[0])


async def test_an_answer_in_one_piece(flavour: str) -> None:
    async with adapter(flavour, Said("whole", thinking="why", calls=(("Bash", {"a": [1, 2]}),))) as it:
        told = await it.ask([user("hi")], tools=TOOLS, stream=False)
    message = json.loads(told.body)
    assert told.headers["content-type"] == "application/json" and message["type"] == "message"
    assert message["content"][-1]["input"] == {"a": [1, 2]} and message["stop_reason"] == "tool_use"
    assert message["usage"]["output_tokens"] == 20


async def test_tokens_are_counted(flavour: str) -> None:
    async with adapter(flavour) as it:
        small = await it.ask([user("hi")], path="/v1/messages/count_tokens")
        large = await it.ask([user("hi")], path="/v1/messages/count_tokens", tools=[tool("T" + "x" * 4000)])
        it.server.count_tokens = 4321
        exact = await it.ask([user("hi")], path="/v1/messages/count_tokens")
    one, other = json.loads(small.body)["input_tokens"], json.loads(large.body)["input_tokens"]
    assert 0 < one < 50 and other > one + 1000
    assert json.loads(exact.body)["input_tokens"] == (4321 if flavour == "responses" else one)


async def test_thinking_of_another_model_is_left_out_and_its_text_kept(flavour: str) -> None:
    other = "responses" if flavour != "responses" else "openrouter"
    async with adapter(other, Said("text", thinking="deep", calls=(("Bash", {}),))) as it:
        told = await it.ask([user("go")], tools=TOOLS)
    (use,) = [block for block in told.message["content"] if block["type"] == "tool_use"]
    claude = {"type": "thinking", "thinking": "hm", "signature": "EqQBCg=="}
    sealed = {"type": "redacted_thinking", "data": "EmwKAhgB"}
    said = {"role": "assistant", "content": [claude, sealed, *told.message["content"]]}
    history = [user("go"), said, user(result(use["id"], "ok"))]
    async with adapter(flavour, Said("fine")) as it:
        told = await it.ask(history, tools=TOOLS)
        assert it.server.refused == [] and told.message["stop_reason"] == "end_turn"
        assert "EqQBCg" not in str(it.server.requests) and "ccb1." not in str(it.server.requests)
        assert "text" in str(it.server.requests[0])


async def test_long_ids_and_names_come_back_as_they_were(flavour: str) -> None:
    name = "mcp__a_server_with_a_long_name__" + "tool" * 20
    ids = ("call.with:odd/characters" + "y" * 60,)
    short = {"responses": "name"}.get(flavour)

    def reply(body: dict[str, object]) -> Said:
        tools = body["tools"]
        assert isinstance(tools, list)
        sent = tools[0]["name"] if short else tools[0]["function"]["name"]
        assert len(sent) <= 64
        return Said("", calls=((sent, {}),), ids=ids)

    async with adapter(flavour, reply, Said("ok")) as it:
        told = await it.ask([user("go")], tools=[tool(name)])
        (use,) = told.message["content"][-1:]
        assert use["name"] == name
        history = [user("go"), answered(told), user(result(use["id"], "ok"))]
        await it.ask(history, tools=[tool(name)])
        assert it.server.refused == []


_HIGH: dict[str, object] = {
    "responses": {"reasoning": {"effort": "high", "summary": "auto"}},
    "openai": {"reasoning_effort": "high"},
    "azure": {"reasoning_effort": "high"},
    "gemini": {"extra_body": {"google": {"thinking_config": {"include_thoughts": True, "thinking_budget": 4096}}}},
    "grok": {},
    "deepseek": {"thinking": {"type": "enabled"}, "reasoning_effort": "high"},
    "openrouter": {"reasoning": {"effort": "high"}},
}
"""What asks the model of a flavour for much thinking."""


async def test_effort_and_thinking_are_asked_for_in_the_words_of_each_api(flavour: str) -> None:
    thinking = {"type": "enabled", "budget_tokens": 4096}
    async with adapter(flavour, Said("deep"), Said("shallow")) as it:
        await it.ask([user("hi")], thinking=thinking, output_config={"effort": "high"})
        await it.ask([user("hi")], thinking={"type": "disabled"})
        assert it.server.refused == []
        deep, shallow = it.server.requests
    fields = ("reasoning", "reasoning_effort", "thinking", "extra_body")
    assert {name: deep[name] for name in fields if name in deep} == _HIGH.get(flavour, {})
    if flavour in ("deepseek", "openrouter"):
        off = {"thinking": {"type": "disabled"}} if flavour == "deepseek" else {"reasoning": {"enabled": False}}
        assert {name: shallow[name] for name in fields if name in shallow} == off
