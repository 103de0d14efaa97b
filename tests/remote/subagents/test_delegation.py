"""Sub-agents in a session: what they see, what they may do, what comes back."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from tests.remote.agent_kit import Json, Reply, assert_valid, calls, closing, opening, says, text_block, tool_block
from tests.remote.subagents.delegation import MAIN, ONE, TWO, delegates, delegation, task, worked
from tests.remote.worker_process import until

from ccb.remote.agent.conversation import Conversation
from ccb.remote.daemon.assembly import INTERRUPTED, NEVER_STARTED
from ccb.tunnel.wire.session_options import SettingsOption
from ccb.tunnel.wire.tool_traits import BUILT_IN, Effect


def unmarked(messages: list[Json]) -> list[Json]:
    """The messages of a request, without their cache marks."""
    return [
        {**each, "content": [{k: v for k, v in block.items() if k != "cache_control"} for block in each["content"]]}
        for each in messages
    ]


def offered(request: Json) -> set[str]:
    return {tool["name"] for tool in request["tools"]}


async def test_an_agent_works_in_its_own_context_and_only_its_answer_comes_back(tmp_path: Path) -> None:
    scripts = {
        MAIN: delegates(task(ONE, "count the lines")),
        "count the lines": [calls(("r1", "Read", {"file_path": str(tmp_path / "project/a.txt")})), says("Two lines.")],
    }
    async with delegation(tmp_path, scripts) as d:
        (tmp_path / "project/a.txt").write_text("x\ny\n")
        result = await d.turn(MAIN + "go")
        assert (result["subtype"], result["result"]) == ("success", "All done.")
        first, second = d.model.requests["count the lines"]
        assert MAIN not in json.dumps(first["messages"]), "it does not see the conversation"
        assert "count the lines" in json.dumps(first["messages"])
        others = {name for name, tool in BUILT_IN.items() if tool.main_only}
        assert offered(first) == BUILT_IN.keys() - others - {"TodoWrite"}, "the list is that of the session"
        assert "another agent" in json.dumps(first["system"])
        assert (second["system"], second["tools"]) == (first["system"], first["tools"])
        assert d.result_text(ONE).startswith(f"Two lines.\n\n<usage>agentId {ONE}, 1 tool uses, ")
        told = d.results()[ONE]["tool_use_result"]
        assert (told["status"], told["agentId"], told["agentType"]) == ("completed", ONE, "general-purpose")
        assert told["totalToolUseCount"] == 1 and told["totalTokens"] > 0
        types = [each["message"]["content"][0]["type"] for each in d.messages("assistant", agent_id=ONE)]
        assert types == ["tool_use", "text"]
        messages = [each for each in d.records() if each.kind == "message"]
        named = {(each.agent_id, each.body.get("parent_tool_use_id") or "") for each in messages}
        assert named == {("", ""), (ONE, ONE)}, "its messages name the call that started it"
        assert "x" in d.result_text("r1", ONE)
        assert [each["task_id"] for each in d.messages("system", "task_started")] == [ONE]
        assert [each["status"] for each in d.messages("system", "task_notification")] == ["completed"]
        assert any(each.get("subtype") == "task_progress" for each in d.shown.bodies)
        main_request = d.model.requests[MAIN][1]
        assert '"r1"' not in json.dumps(main_request["messages"])


async def test_agents_of_one_message_run_at_the_same_time(tmp_path: Path) -> None:
    gates = {key: asyncio.Event() for key in ("first job", "second job")}
    scripts = {
        MAIN: delegates(task(ONE, "first job"), task(TWO, "second job")),
        **{key: [says(f"{key} is done")] for key in gates},
    }
    for key, gate in gates.items():
        scripts[key][0].head_wait = gate
    async with delegation(tmp_path, scripts) as d:
        turn = asyncio.ensure_future(d.turn(MAIN + "go"))
        while d.model.open != set(gates):
            await asyncio.sleep(0.01)
        gates["second job"].set()
        while TWO not in d.results():
            await asyncio.sleep(0.01)
        assert ONE not in d.results()
        gates["first job"].set()
        await turn
        assert d.result_text(ONE).startswith("first job is done")
        assert d.model.most_at_once == 2


async def test_what_agents_use_counts_in_the_sums_of_the_session(tmp_path: Path) -> None:
    async with worked(tmp_path, says("seen"), call={"model": "haiku"}, model="sonnet") as d:
        (result,) = d.messages("result")
        assert d.model.requests["edit it"][0]["model"] == "claude-haiku-4-5"
        used = result["modelUsage"]
        assert set(used) == {"claude-sonnet-4-5", "claude-haiku-4-5"} or len(used) == 1
        costs = [entry["costUSD"] for entry in used.values()]
        assert abs(sum(costs) - result["total_cost_usd"]) < 1e-9
        assert d.results()[ONE]["tool_use_result"]["totalCostUsd"] > 0


async def test_explore_uses_the_small_model_of_the_session_and_no_other_providers(tmp_path: Path) -> None:
    for number, (given, used) in enumerate((({}, "openai/gpt-5"), ({"small_model": "openai/mini-5"}, "openai/mini-5"))):
        options = {"model": "openai/gpt-5", **given}
        async with worked(tmp_path / str(number), says("found"), call={"subagent_type": "Explore"}, **options) as d:
            assert d.model.requests["edit it"][0]["model"] == used


async def test_an_agent_that_only_reads_gets_no_tool_that_writes_and_its_writes_are_denied(tmp_path: Path) -> None:
    script = calls(("b1", "Bash", {"command": "touch made"}), ("b2", "Bash", {"command": "ls -a"})), says("seen")
    async with worked(tmp_path, *script, call={"subagent_type": "Explore"}, allowed_tools=["Bash"]) as d:
        names = offered(d.model.requests["edit it"][0])
        assert "Bash" in names and not any(BUILT_IN[name].effect is Effect.WRITE for name in names)
        assert "only reads" in d.result_text("b1", ONE) and ".." in d.result_text("b2", ONE)
        assert not (tmp_path / "project/made").exists()


async def test_rules_that_deny_hold_for_agents_and_may_deny_an_agent(tmp_path: Path) -> None:
    scripts = {
        MAIN: delegates(task(ONE, "plan it", subagent_type="Plan"), task(TWO, "do it")),
        "do it": [calls(("b1", "Bash", {"command": "rm -r x"})), says("no")],
    }
    async with delegation(tmp_path, scripts, disallowed_tools=["Task(Plan)", "Bash(rm *)", "Write"]) as d:
        await d.turn(MAIN + "go")
        assert "Task(Plan)" in d.result_text(ONE)
        assert "denied" in d.result_text("b1", TWO)
        assert "Write" not in offered(d.model.requests["do it"][0])


async def test_an_unknown_agent_or_model_is_an_error_and_starts_nothing(tmp_path: Path) -> None:
    scripts = {MAIN: delegates(task(ONE, "a", subagent_type="nobody"), task(TWO, "b", model="gpt"))}
    async with delegation(tmp_path, scripts) as d:
        await d.turn(MAIN + "go")
        assert "There is no agent 'nobody'. The agents are: general-purpose, Explore, Plan" in d.result_text(ONE)
        assert "'gpt' is not a model" in d.result_text(TWO)
        assert d.messages("system", "task_started") == []


async def test_the_tool_answers_to_its_other_name(tmp_path: Path) -> None:
    tool_use_id, _, tool_input = task(ONE, "look")
    scripts = {MAIN: delegates((tool_use_id, "Agent", tool_input)), "look": [says("seen")]}
    async with delegation(tmp_path, scripts) as d:
        await d.turn(MAIN + "go")
        assert d.result_text(ONE).startswith("seen")


async def test_an_interrupt_ends_the_agents_of_the_turn_with_their_calls_closed(tmp_path: Path) -> None:
    scripts = {
        MAIN: [calls(task(ONE, "wait long"), message_id="m1"), says("Yes?", "m2")],
        "wait long": [calls(("b1", "Bash", {"command": "echo started; sleep 600"}), message_id="c1")],
    }
    async with delegation(tmp_path, scripts, allowed_tools=["Bash"]) as d:
        running = asyncio.ensure_future(d.turn(MAIN + "go"))
        await until(lambda: d.printed("b1", "started"), "the start of the command")
        d.session.agent.interrupt()
        assert (await running)["terminal_reason"] == "aborted_tools"
        assert "stopped while it ran" in d.result_text("b1", ONE)
        assert "stopped while it ran" in d.result_text(ONE)
        assert [each["status"] for each in d.messages("system", "task_notification")] == ["stopped"]
        assert [each.agent_id for each in d.records() if each.kind == "agent_result"] == [ONE]
        assert (await d.turn(MAIN + "on"))["result"] == "Yes?", "the history is valid"


async def test_one_agent_of_a_turn_can_be_stopped_and_the_turn_goes_on(tmp_path: Path) -> None:
    scripts = {
        MAIN: [calls(task(ONE, "wait long"), task(TWO, "look"), message_id="m1"), says("One of two.", "m2")],
        "wait long": [calls(("b1", "Bash", {"command": "echo started; sleep 600"}), message_id="c1")],
        "look": [says("seen", "c2")],
    }
    async with delegation(tmp_path, scripts, allowed_tools=["Bash"]) as d:
        running = asyncio.ensure_future(d.turn(MAIN + "go"))
        await until(lambda: d.printed("b1", "started"), "the start of the command")
        request = {"subtype": "stop_task", "task_id": ONE}
        d.session.take_input("stop", {"type": "control_request", "request_id": "r1", "request": request})
        assert (await running)["result"] == "One of two."
        assert "The user stopped it." in d.result_text(ONE) and d.result_text(TWO).startswith("seen")
        assert "stopped while it ran" in d.result_text("b1", ONE)
        statuses = {each["task_id"]: each["status"] for each in d.messages("system", "task_notification")}
        assert statuses == {ONE: "failed", TWO: "completed"}


async def test_the_turns_of_an_agent_are_limited_and_its_last_words_are_kept(tmp_path: Path) -> None:
    blocks = text_block(0, "I found the place.") + tool_block(1, "r1", "Glob", {"pattern": "*"})
    answer = Reply([opening("c1"), blocks, closing("tool_use")])
    short = {"description": "Digs.", "prompt": "You dig.", "maxTurns": 1}
    async with worked(tmp_path, answer, call={"subagent_type": "short"}, agents={"short": short}) as d:
        assert "- short: Digs." in json.dumps(d.model.requests[MAIN][-1]["tools"])
        text = d.result_text(ONE)
        assert "limit of its turns" in text and "I found the place." in text
        assert [each["status"] for each in d.messages("system", "task_notification")] == ["failed"]


async def test_an_agent_that_was_cut_by_a_kill_ends_clearly_and_can_go_on_with_what_it_knows(tmp_path: Path) -> None:
    """The journal of a worker that was killed is copied while the agent is in its second tool, and a third waits."""
    cut = tmp_path / "cut"
    cut.mkdir()
    commands = ("echo started; sleep 600", "touch never")
    waiting = [tool_block(i, f"b{i}", "Bash", {"command": each}) for i, each in enumerate(commands, 1)]
    scripts = {
        MAIN: [calls(task(ONE, "dig deep"), message_id="m1")],
        "dig deep": [
            calls(("r1", "Glob", {"pattern": "*"}), message_id="c1"),
            Reply([opening("c2"), text_block(0, "Found the place."), *waiting, closing("tool_use")]),
        ],
    }
    async with delegation(tmp_path, scripts, allowed_tools=["Bash"]) as d:
        running = asyncio.ensure_future(d.turn(MAIN + "go"))
        await until(lambda: d.printed("b1", "started"), "the start of the command")
        (cut / "journal.jsonl").write_bytes((tmp_path / "journal.jsonl").read_bytes())
        (before,), before_cut = d.model.requests[MAIN], d.model.requests["dig deep"]
        running.cancel()
        await asyncio.wait({running})

    again = {
        MAIN: [calls(task(TWO, "go on", resume=ONE), message_id="m2"), says("Good.", "m3")],
        "dig deep": [says("It is in line 7.", "c3")],
    }
    async with delegation(cut, again) as d:
        assert d.result_text("b1", ONE) == INTERRUPTED and d.result_text("b2", ONE) == NEVER_STARTED
        assert "Found the place." in d.result_text(ONE) and f"resume: '{ONE}'" in d.result_text(ONE)
        assert [each["status"] for each in d.messages("system", "task_notification")] == ["failed"]
        assert [each.agent_id for each in d.records() if each.kind == "agent_result"] == [ONE]
        await d.turn(MAIN + "on")
        (request,) = d.model.requests["dig deep"]
        assert unmarked(request["messages"])[:3] == unmarked(before_cut[1]["messages"])
        assert "go on" in json.dumps(request["messages"][-1])
        after = d.model.requests[MAIN][0]
        assert after["tools"] == before["tools"] and unmarked(after["messages"])[0] == unmarked(before["messages"])[0]
        for agent_id in ("", ONE):
            assert_valid([each.api() for each in Conversation.from_records(d.records(), agent_id).messages])
        rebuilt = [each.encoded() for each in Conversation.from_records(d.records()).messages]
        assert [each.encoded() for each in d.session.agent.conversation.messages] == rebuilt
        assert d.result_text(TWO).startswith("It is in line 7.")
        started = [(each["task_id"], each["tool_use_id"]) for each in d.messages("system", "task_started")]
        assert started == [(ONE, ONE), (ONE, TWO)]
    async with delegation(cut, {}) as d:
        assert len(d.messages("system", "task_notification")) == 2, "an end is written once"


async def test_hooks_see_the_end_of_an_agent_and_can_let_it_go_on(tmp_path: Path) -> None:
    command = "cat >> stops; [ -e blocked ] || { touch blocked; echo more >&2; exit 2; }"
    values = {"hooks": {"SubagentStop": [{"hooks": [{"type": "command", "command": command}]}]}}
    layers = [{"source": "user", "path": "settings.json", "values": values}]
    script = says("first", "c1"), says("second", "c2")
    async with worked(tmp_path, *script, settings=SettingsOption(layers=layers).to_json()) as d:
        assert d.result_text(ONE).startswith("second")
        stops = (tmp_path / "project/stops").read_text()
        assert stops.count('"SubagentStop"') == 2 and ONE in stops
        assert "more" in json.dumps(d.model.requests["edit it"][1]["messages"][-1])


async def test_an_agent_stops_when_the_budget_of_the_session_is_spent(tmp_path: Path) -> None:
    """One call of the model fits the budget, two do not."""
    look = calls(("g1", "Glob", {"pattern": "*"}), message_id="c1")
    scripts = {MAIN: [calls(task(ONE, "spend"), message_id="m1")], "spend": [look, says("more", "c2")]}
    async with delegation(tmp_path / "free", {MAIN: [calls(("g0", "Glob", {"pattern": "*"})), says("x")]}) as d:
        cost = (await d.turn(MAIN + "go"))["total_cost_usd"] / 2
    async with delegation(tmp_path / "limited", scripts, max_budget_usd=1.5 * cost) as d:
        result = await d.turn(MAIN + "go")
        assert result["subtype"] == "error_max_budget_usd"
        assert len(d.model.requests["spend"]) == 1
        assert "maximum budget" in d.result_text(ONE)
