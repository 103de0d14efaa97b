"""A conversation that fills the window is compacted: never twice, never between a call and its result."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.remote import agent_kit as kit

from ccb.remote.agent import agent_messages
from ccb.remote.agent.agent_histories import Ledger
from ccb.remote.agent.compaction import newest, old_results
from ccb.remote.agent.conversation import FROM, UP_TO, Conversation, KeptPrompts, tool_result_message
from ccb.remote.context.reminders import Occasion
from ccb.remote.hooks.hook_outcome import HookOutcome
from ccb.remote.hooks.hook_runner import HookContext, HookRunner
from ccb.remote.hooks.hook_table import PRE_COMPACT, SESSION_START
from ccb.remote.model.model_request import CLEARED, ContextLimits, ModelLinkError, WindowSettings
from ccb.tunnel.wire import journal_records as kinds
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.journal_records import record_of
from ccb.tunnel.wire.model_facts import ModelTable, claude_facts
from ccb.tunnel.wire.session_options import SessionOptions

WINDOW = WindowSettings(4000)
"""A compaction starts at 2,800 tokens: 800 are for the summary, 400 are the buffer."""

TOO_LONG = "prompt is too long: 4100 tokens > 4000 maximum"


def big(*tools: tuple[str, str, Json], message_id: str = "msg_1", tokens: int = 3000) -> kit.Reply:
    """An answer after which the window is nearly full."""
    blocks = [kit.tool_block(i, *tool) for i, tool in enumerate(tools)] or [kit.text_block(0, f"answer {message_id}")]
    return kit.Reply([kit.opening(message_id, tokens), *blocks, kit.closing("tool_use" if tools else "end_turn")])


def summary(text: str = "SUMMARY", message_id: str = "msg_s") -> kit.Reply:
    return kit.says(text, message_id)


def too_long() -> kit.Reply:
    return kit.error_reply(400, "invalid_request_error", TOO_LONG)


def again(world: kit.World) -> Conversation:
    """What a restart reads."""
    return Conversation.from_records(world.journal.records)


def words(text: str) -> Json:
    return {"type": "text", "text": text}


def asked_for_summary(world: kit.World) -> list[int]:
    """The numbers of the requests for a summary."""
    return [i for i, body in enumerate(world.transport.bodies) if b"Answer with the summary alone" in body]


def texts(message: Json) -> str:
    return "\n".join(block.get("text", "") for block in message["content"])


def test_the_thresholds_of_the_usual_windows() -> None:
    limits = ContextLimits.of(claude_facts("claude-sonnet-4-5"), WindowSettings())
    assert (limits.window, limits.usable, limits.auto) == (200_000, 180_000, 167_000)
    assert ContextLimits.of(ModelTable().facts("claude-sonnet-4-5[1m]"), WindowSettings()).auto == 967_000
    assert ContextLimits.of(claude_facts("local/model"), WindowSettings(8_000)).auto == 5_600
    assert WindowSettings.from_env({"CCB_MAX_CONTEXT_TOKENS": "5000", "CCB_DISABLE_AUTO_COMPACT": "1"}) == (
        WindowSettings(5000, auto=False)
    )


async def test_a_full_window_is_compacted_between_two_calls() -> None:
    world = kit.make_world(big(("t1", "Look", {"key": "a"})), summary(), kit.says("done", "msg_2"), window=WINDOW)
    world.agent.reminders.follow(lambda occasion: ["PLAN"] if occasion is Occasion.COMPACTED else [])
    result = await world.turn("build the red house")
    assert (result["result"], result["is_error"]) == ("done", False)
    assert asked_for_summary(world) == [1]
    first, ask, last = (world.transport.request_json(i) for i in range(3))
    assert (ask["system"], ask["tools"], ask["messages"][0]) == (first["system"], first["tools"], first["messages"][0])
    assert [block["type"] for block in ask["messages"][-1]["content"]] == ["tool_result", "text"]
    assert [message["role"] for message in last["messages"]] == ["user"]
    said = texts(last["messages"][0])
    assert "SUMMARY" in said and "build the red house" in said and "CLAUDE.md says hi" in said and "PLAN" in said
    boundary = world.journal.messages("system", "compact_boundary")[0]["compact_metadata"]
    assert boundary["trigger"] == "auto" and boundary["pre_tokens"] > 2800 > boundary["post_tokens"] > 0
    assert world.journal.messages("user")[-1]["isCompactSummary"] is True
    assert [m.api() for m in again(world).messages] == world.history()
    kit.assert_valid(world.history())
    statuses = [body["status"] for body in world.journal.messages("system", "status")]
    assert statuses == ["compacting", None]
    assert result["usage"]["output_tokens"] == 60, "the summary is paid for as well"


async def test_another_model_may_write_the_summary_and_the_own_one_does_where_that_fails() -> None:
    failed = kit.error_reply(400, "invalid_request_error", "no")
    for replies, asked in (((summary(),), ["other-1"]), ((failed, summary()), ["other-1", "main-1"])):
        first = big(("t1", "Look", {"key": "a"}))
        world = kit.make_world(first, *replies, kit.says("done", "msg_2"), window=WINDOW, model="main-1")
        world.agent.configure(replace(world.agent.config, options=SessionOptions(compact_model="other-1")))
        assert (await world.turn("hi"))["result"] == "done"
        assert [world.transport.request_json(place)["model"] for place in asked_for_summary(world)] == asked


async def test_the_person_compacts_with_a_hint_and_goes_on() -> None:
    world = kit.make_world(kit.says("hello"), summary(), kit.says("later", "msg_2"))
    assert (await world.turn("/compact"))["result"] == "There is nothing to compact yet." and not world.history()
    await world.turn("first")
    result = await world.turn("/compact keep the colours")
    assert result["result"].startswith("Compacted: about ")
    assert "keep the colours" in texts(world.transport.request_json(1)["messages"][-1])
    assert "/compact" not in texts(world.history()[0])
    await world.turn("second")
    assert [message["role"] for message in world.transport.request_json(2)["messages"]] == ["user"]
    assert texts(world.history()[0]).endswith("second")
    assert [m.api() for m in again(world).messages] == world.history()


async def test_a_compaction_by_hand_that_fails_changes_nothing() -> None:
    wordless = kit.calls(("t9", "Look", {"key": "a"}))
    world = kit.make_world(kit.says("hello"), kit.error_reply(401), wordless, kit.says("on", "msg_2"))
    await world.turn("first")
    before = world.history()
    result = await world.turn("/compact")
    assert (result["is_error"], result["api_error_status"]) == (True, 401)
    assert "wrote no summary" in (await world.turn("/compact"))["result"]
    assert world.history() == before and world.log == [], "the call of a tool in a summary does not run"
    await world.turn("second")
    assert not world.conversation.compactions.unfinished


async def test_a_prompt_that_is_too_long_compacts_and_goes_on() -> None:
    world = kit.make_world(kit.says("hello"), too_long(), summary(), kit.says("done", "msg_3"))
    await world.turn("first")
    result = await world.turn("second")
    assert (result["result"], result["is_error"]) == ("done", False)
    assert not world.journal.messages("assistant", "")[0].get("error")
    assert "second" in texts(world.history()[0])


async def test_a_full_window_in_the_middle_of_an_answer_compacts_and_goes_on() -> None:
    world = kit.make_world(
        kit.says("x", stop_reason="model_context_window_exceeded"), summary(), kit.says("done", "m3")
    )
    assert (await world.turn())["result"] == "done"


async def test_a_conversation_too_long_for_its_own_summary_loses_its_beginning() -> None:
    world = kit.make_world(
        kit.says("one " * 400, "m1"),
        kit.says("two " * 400, "m2"),
        too_long(),
        too_long(),
        summary(),
        kit.says("done", "m3"),
    )
    await world.turn("first")
    await world.turn("second")
    assert (await world.turn("third"))["result"] == "done"
    whole, part = (world.transport.request_json(i)["messages"] for i in asked_for_summary(world))
    assert len(part) < len(whole) and "left out" in texts(part[0])
    kit.assert_valid([*part, {"role": "assistant", "content": [{"type": "text", "text": "x"}]}])


async def test_without_any_summary_the_session_goes_on_with_the_words_of_the_person() -> None:
    world = kit.make_world(kit.says("hello"), too_long(), *[too_long()] * 4, kit.says("done", "msg_3"))
    await world.turn("paint it red")
    assert (await world.turn("and now?"))["result"] == "done"
    assert "paint it red" in texts(world.history()[0])


async def test_who_asks_for_a_summary_that_is_too_long_to_make_is_told_what_helps() -> None:
    world = kit.make_world(kit.says("hello"), *[too_long()] * 4)
    await world.turn("first")
    result = await world.turn("/compact")
    assert "not compacted: for claude" in result["result"] and TOO_LONG in result["result"]
    assert "/clear" in result["result"] and "Send /compact" not in result["result"]


async def test_a_first_prompt_that_is_too_long_is_taken_back_and_not_compacted() -> None:
    world = kit.make_world(too_long())
    result = await world.turn("x" * 20_000)
    assert result["terminal_reason"] == "prompt_too_long"
    assert "/rewind" in result["result"] and "/compact" not in result["result"]


async def test_a_request_that_stays_too_long_ends_in_an_error() -> None:
    world = kit.make_world(kit.says("hello"), too_long(), summary(), too_long())
    await world.turn("first")
    result = await world.turn("second")
    assert result["terminal_reason"] == "prompt_too_long" and "/rewind" in result["result"]
    kit.assert_valid([*world.history(), {"role": "assistant", "content": [{"type": "text", "text": "x"}]}])


async def test_compactions_by_hand_do_not_end_those_that_ccb_makes_by_itself() -> None:
    by_hand = [summary(message_id=f"s{i}") for i in range(4)]
    world = kit.make_world(kit.says("hello"), *by_hand, big(), summary(), kit.says("on", "m2"), window=WINDOW)
    await world.turn("first")
    for _ in by_hand:
        assert "Compacted" in (await world.turn("/compact"))["result"]
    await world.turn("second")
    assert (await world.turn("third"))["result"] == "on"
    assert len(asked_for_summary(world)) == 5 and again(world).compactions.failures == 0


async def test_three_failures_in_a_row_are_enough_until_a_request_is_too_long() -> None:
    failing = [kit.error_reply(400, "invalid_request_error", "no")] * 3
    answers = [big(message_id=f"m{i}") for i in range(5)]
    mixed = [reply for number in range(3) for reply in (answers[number], failing[number])]
    world = kit.make_world(*mixed, *answers[3:], too_long(), summary("KNOWN"), kit.says("on", "m9"), window=WINDOW)
    for number in range(5):
        assert (await world.turn(f"prompt {number}"))["is_error"] is False
    assert len(asked_for_summary(world)) == 3 and world.conversation.compactions.given_up
    assert again(world).compactions.given_up, "a restart knows it as well"
    assert (await world.turn("once more"))["result"] == "on"
    assert "KNOWN" in texts(world.history()[0])


async def test_a_summary_that_has_killed_its_worker_three_times_is_not_tried_again() -> None:
    world = kit.make_world(kit.says("hello"))
    await world.turn("first")
    for _ in range(3):
        world.journal.emit(kinds.CompactStartRecord("auto", ""))
    after = kit.make_world(too_long(), kit.says("on", "m2"), conversation=again(world), ledger=Ledger())
    assert (await after.turn("second"))["result"] == "on"
    assert not asked_for_summary(after) and "first" in texts(after.history()[0])


async def test_a_compaction_without_effect_is_not_repeated_for_ever() -> None:
    long = "word " * 3000
    replies = [reply for i in range(8) for reply in (big(message_id=f"m{i}"), summary(long))]
    world = kit.make_world(*replies[:1], *replies[1:6], *[big(message_id=f"n{i}") for i in range(4)], window=WINDOW)
    for number in range(6):
        await world.turn(f"prompt {number}")
    assert len(asked_for_summary(world)) == 3


async def test_a_compaction_that_died_with_its_worker_is_made_again_once() -> None:
    world = kit.make_world(kit.says("hello"))
    await world.turn("first")
    world.journal.emit(kinds.CompactStartRecord("manual", "keep the colours"))
    journal = list(world.journal.records)
    after = kit.make_world(
        summary(), kit.says("on", "m"), kit.says("on", "n"), conversation=again(world), ledger=Ledger()
    )
    await after.turn("second")
    await after.turn("third")
    assert asked_for_summary(after) == [0]
    assert "keep the colours" in texts(after.transport.request_json(0)["messages"][-1])
    copy = Conversation.from_records([*journal, record_of(kinds.ForkedRecord("x"), 99)])
    assert copy.compactions.unfinished is None, "a copy leaves it to the original"


async def test_an_interrupted_compaction_is_over() -> None:
    wait = asyncio.Event()
    world = kit.make_world(kit.says("hello"), kit.Reply(head_wait=wait), kit.says("on", "m2"))
    await world.turn("first")
    before = world.history()
    task = world.start("/compact")
    await world.journal.until(lambda: bool(world.journal.facts("compact_start")))
    await kit.settle()
    assert world.agent.interrupt()
    assert (await task)["terminal_reason"] == "aborted_streaming"
    assert [body["outcome"] for body in world.journal.facts("compact_end")] == ["interrupted"]
    assert world.history()[:2] == before
    await world.turn("second")
    assert len(asked_for_summary(world)) == 1


async def test_nothing_is_compacted_unasked_where_that_is_switched_off() -> None:
    world = kit.make_world(big(), big(message_id="m2"), window=WindowSettings(4000, auto=False))
    await world.turn()
    await world.turn()
    assert not asked_for_summary(world)


def history_of(rounds: list[list[int]]) -> Conversation:
    """A conversation of rounds of Read calls with results of these sizes."""
    conversation = Conversation()
    conversation.apply(record_of(kinds.PromptRecord([], [kinds.PromptItem(content=[{"type": "text", "text": "go"}])])))
    for number, sizes in enumerate(rounds):
        for place in range(len(sizes)):
            block = {"type": "tool_use", "id": f"t{number}_{place}", "name": "Read", "input": {"file_path": "/a"}}
            message = {"id": f"m{number}", "role": "assistant", "content": [block]}
            conversation.apply(record_of(kinds.MessageRecord({"type": "assistant", "message": message})))
        for place, size in enumerate(sizes):
            body = tool_result_message(f"t{number}_{place}", "x" * size, is_error=False)
            conversation.apply(record_of(kinds.MessageRecord(body)))
        conversation.seal()
    return conversation


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.integers(0, 4000), min_size=1, max_size=3), min_size=1, max_size=12), st.floats(0.01, 1))
def test_no_cut_splits_a_pair(rounds: list[list[int]], share: float) -> None:
    kept = [message.api() for message in newest(history_of(rounds).messages, share)]
    kit.assert_valid([*kept, {"role": "assistant", "content": [{"type": "text", "text": "end"}]}])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.integers(0, 4000), min_size=1, max_size=3), min_size=1, max_size=12), st.integers(0, 4000))
def test_only_old_results_are_cleared_and_pairs_stay(rounds: list[list[int]], keep: int) -> None:
    conversation = history_of(rounds)
    before = conversation.size.estimated
    old, saved = old_results(conversation.messages, keep)
    meta = {"tokens_saved": saved, "cleared": old}
    body = {"type": "system", "subtype": "microcompact_boundary", "microcompact_metadata": meta}
    conversation.apply(record_of(kinds.MessageRecord(body)))
    blocks = [block for message in conversation.messages for block in message.blocks]
    cleared = {block["tool_use_id"] for block in blocks if block.get("content") == CLEARED}
    assert cleared == set(old)
    assert not cleared & {f"t{len(rounds) - 1}_{place}" for place in range(3)}, "the model has not seen these"
    assert conversation.size.estimated == before - saved
    assert not old_results(conversation.messages, keep)[0]
    kit.assert_valid([*[m.api() for m in conversation.messages], {"role": "assistant", "content": [{"type": "text"}]}])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 40), max_size=3), min_size=1, max_size=6), st.integers(0), st.booleans())
def test_a_summary_of_a_part_keeps_the_rest_word_for_word(rounds: list[list[int]], chosen: int, follows: bool) -> None:
    journal: list[kinds.Record] = []

    def add(content: kinds.Content) -> int:
        journal.append(record_of(content, len(journal) + 1))
        return len(journal)

    prompts = []
    for number, sizes in enumerate(rounds):  # a prompt after results is sent with them
        prompts.append(add(kinds.PromptRecord([], [kinds.PromptItem(content=[words(f"prompt {number}")])])))
        for place in range(len(sizes)):
            block = {"type": "tool_use", "id": f"t{number}_{place}", "name": "Read", "input": {}}
            add(kinds.MessageRecord({"type": "assistant", "message": {"id": f"m{number}", "content": [block]}}))
        for place, size in enumerate(sizes):
            add(kinds.MessageRecord(tool_result_message(f"t{number}_{place}", "x" * size, is_error=False)))
    before = [block for message in Conversation.from_records(journal).messages for block in message.blocks]
    part, at = (FROM if follows else UP_TO), chosen % len(prompts)
    asked = kinds.CompactStartRecord("manual", "", part, prompts[at])
    add(kinds.MessageRecord(agent_messages.compact_boundary(asked, 9, 9, 9)))
    add(kinds.MessageRecord(agent_messages.compact_summary("SUMMARY")))
    after = Conversation.from_records(journal)
    cut = before.index(words(f"prompt {at}"))
    kept = [*before[:cut], words("SUMMARY")] if follows else [words("SUMMARY"), *before[cut:]]
    assert [block for message in after.messages for block in message.blocks] == kept
    end = [] if after.messages[-1].role == "assistant" else [{"role": "assistant", "content": [words("end")]}]
    kit.assert_valid([*(message.api() for message in after.messages), *end])
    assert after.split(prompts[at]) is None or not follows


@pytest.mark.parametrize("count", [3, 400])
def test_the_first_and_the_latest_prompts_are_kept_word_for_word(count: int) -> None:
    prompts = KeptPrompts()
    for number in range(count):
        prompts.add(f"prompt {number} " + "x" * 100)
    kept = prompts.texts()
    assert kept[0].startswith("prompt 0 ") and kept[-1].startswith(f"prompt {count - 1} ")
    assert sum(map(len, kept)) < 25_000


async def test_the_picture_of_the_window_adds_up() -> None:
    world = kit.make_world(kit.calls(("t1", "Look", {"key": "a"})), kit.says("done", "m2"), kit.Reply((b"none",), 404))
    await world.turn("hello")
    report = await world.agent.context_report()
    public = report.public()
    assert sum(part["tokens"] for part in public["categories"]) == public["maxTokens"] == 200_000
    assert public["totalTokens"] == report.used > 0 and public["autoCompactThreshold"] == 167_000
    assert [len(row) for row in public["gridRows"]] == [40] * 5
    lines = report.text().splitlines()
    assert lines[0].startswith("claude-sonnet-4-5: ") and {len(line) for line in lines[2:7]} == {42}
    assert "compacted at 167.0k tokens" in lines[-1]
    assert ": about " in lines[0] and not report.exact, "this provider does not count"


async def test_the_provider_counts_what_fills_the_window() -> None:
    counts = kit.Reply((b'{"input_tokens": 12345}',)), kit.Reply(head_error=ModelLinkError("gone"))
    world = kit.make_world(kit.calls(("t1", "Look", {"key": "a"})), kit.says("done", "m2"), *counts)
    assert not (await world.agent.context_report()).exact and not world.transport.heads, "there is nothing to count"
    await world.turn("hello")
    report = await world.agent.context_report()
    assert report.used == 12_345 and report.exact and report.text().startswith("claude-sonnet-4-5: 12.3k of")
    assert sum(report.parts.values()) == 200_000
    assert world.transport.heads[-1][:2] == ("POST", "/v1/messages/count_tokens")
    counted = world.transport.request_json(-1)
    last = world.transport.request_json(1)
    assert set(counted) == {"system", "tools", "messages", "model"} and counted["tools"] == last["tools"]
    assert [each["role"] for each in counted["messages"]] == ["user", "assistant", "user", "assistant"]
    assert not (await world.agent.context_report()).exact


class OneHook(HookRunner):
    """One PreCompact hook, and one of SessionStart."""

    def __init__(self, world: kit.World, outcome: HookOutcome) -> None:
        nothing = cast(Any, None)
        super().__init__(HookContext("", nothing, nothing, world.journal, world.permissions, world.agent.reminders.add))
        self.outcome = outcome
        self.payloads: list[Json] = []

    async def run(
        self, event: str, payload: Json, match: str = "", *, about: str = "", agent_id: str = ""
    ) -> HookOutcome:
        if event == PRE_COMPACT:
            self.payloads.append({**payload, "match": match})
            return self.outcome
        return HookOutcome(context=(f"it is {match}",)) if event == SESSION_START else HookOutcome()


@pytest.mark.parametrize("refuses", [False, True])
async def test_a_hook_adds_to_a_compaction_or_refuses_it(refuses: bool) -> None:
    world = kit.make_world(kit.says("hello"), summary())
    hook = OneHook(world, HookOutcome("deny", "not now") if refuses else HookOutcome(context=("the ids",)))
    world.agent._deps = replace(world.agent._deps, hooks=hook)
    await world.turn("first")
    result = await world.turn("/compact the colours")
    assert hook.payloads == [{"trigger": "manual", "custom_instructions": "the colours", "match": "manual"}]
    if refuses:
        assert "a hook refused it: not now" in result["result"] and not asked_for_summary(world)
    else:
        assert "the colours\nthe ids" in texts(world.transport.request_json(1)["messages"][-1])
        world.transport.replies.append(kit.says("on", "m3"))
        await world.turn("next")
        told = texts(world.transport.request_json(2)["messages"][-1])
        assert "SessionStart hook additional context: it is compact" in told


async def test_the_long_window_is_asked_for_by_a_header_and_not_by_the_name() -> None:
    counted = kit.Reply((b'{"input_tokens": 9}',))
    world = kit.make_world(kit.says("hello"), summary(), counted, model="claude-sonnet-4-5[1m]")
    await world.turn("first")
    await world.turn("/compact")
    assert (await world.agent.context_report()).limits.window == 1_000_000
    for number, (_, _, headers) in enumerate(world.transport.heads):
        assert headers["anthropic-beta"] == "context-1m-2025-08-07"
        assert world.transport.request_json(number)["model"] == "claude-sonnet-4-5"
