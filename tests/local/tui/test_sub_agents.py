"""What the person sees of sub-agents: nested rows while they work, one line when they are done, who asks."""

from __future__ import annotations

from typing import Any

from tests.support.repl.paper import Paper
from tests.support.repl.pilot import Desk, desk
from tests.support.repl.scripted_session import ScriptedSession, question

from ccb.local.session.session_client import SessionEvent
from ccb.tunnel.wire.frames import Json

TASK = {"description": "Find the parser", "prompt": "Find it.\nSay where.", "subagent_type": "Explore"}


def says(session: ScriptedSession, agent_id: str, *content: Json) -> None:
    session.assistant(*content, message_id=f"of {agent_id}", parent_tool_use_id=agent_id)


def calls(session: ScriptedSession, agent_id: str, call_id: str, name: str, **tool_input: Any) -> None:
    says(session, agent_id, {"type": "tool_use", "id": call_id, "name": name, "input": tool_input})
    session.fact("tool_start", tool_use_id=call_id, name=name, agent_id=agent_id)


def done(session: ScriptedSession, agent_id: str, call_id: str, text: str) -> None:
    block = {"type": "tool_result", "tool_use_id": call_id, "content": text}
    session.say({"type": "user", "message": {"role": "user", "content": [block]}, "parent_tool_use_id": agent_id})


def told(agent_id: str, subtype: str, tokens: int, tool_uses: int, seconds: int) -> Json:
    usage = {"total_tokens": tokens, "tool_uses": tool_uses, "duration_ms": seconds * 1000}
    body = {"type": "system", "subtype": subtype, "task_id": agent_id, "tool_use_id": agent_id}
    return {**body, "description": "d", "usage": usage}


class Kept(ScriptedSession):
    """A session that gives back all that it has said."""

    def say(self, body: Json) -> None:
        super().say(body)
        self.past.append(SessionEvent("message", body, self._seq, True))

    def fact(self, kind: str, **body: Any) -> None:
        super().fact(kind, **body)
        self.past.append(SessionEvent(kind, body, self._seq, True))


async def started(at: Desk) -> str:
    """A Task call that runs."""
    await at.turn()
    agent_id = at.session.call("Task", **TASK)
    at.session.run(agent_id, "Grep x", 3, name="Task")
    at.session.say(told(agent_id, "task_started", 0, 0, 0))
    return agent_id


async def test_the_calls_of_an_agent_are_rows_under_its_call_and_one_line_when_it_is_done(at: Desk) -> None:
    agent_id = await started(at)
    for number in range(6):
        calls(at.session, agent_id, f"c{number}", "Grep", pattern=f"word{number}")
    for number in range(5):
        done(at.session, agent_id, f"c{number}", "a secret result")
    at.session.progress(told(agent_id, "task_progress", 12_300, 6, 9))
    await at.sees("Agent Explore: Find the parser", "└ 6 tool uses · 12.3k tokens", "… 2 earlier calls (Ctrl+O)")
    await at.sees("● Grep word4", "◐ Grep word5")
    assert "secret" not in at.screen and "word1" not in at.screen
    says(at.session, agent_id, {"type": "text", "text": "Its own words."})
    structured = {"status": "completed", "totalTokens": 13_400, "totalToolUseCount": 6, "totalDurationMs": 41_000}
    at.session.done(agent_id, "In parse.py.", structured={**structured, "totalCostUsd": 0.0123})
    await at.sees("└ 6 tool uses · 13.4k tokens · 41 s · $0.0123")
    assert "word5" not in at.screen and "Its own words" not in at.screen
    await at.alone("ctrl+o", sees=("Asked: Find it.", "Grep word0", "Answer: In parse.py."))
    at.session.finish()
    await at.enter("/cost", sees=("Of that, by sub-agents:", "Explore: Find the parser: 13.4k tokens, $0.0123"))


def test_the_row_of_an_agent_in_a_worktree_says_so_and_that_of_a_skill_shows_its_agent() -> None:
    paper = Paper()
    apart = paper.call("Task", **TASK, isolation="worktree")
    paper.run(apart, "", 3, name="Task")
    paper.say(told(apart, "task_started", 0, 0, 0))
    paper.sees("└ in a worktree")
    structured = {"status": "completed", "totalToolUseCount": 1, "worktreeBranch": "worktree/find-1"}
    paper.done(apart, "Done.", structured=structured)
    paper.sees("└ worktree on worktree/find-1 · 1 tool use")
    skill = paper.call("Skill", skill="dig")
    paper.run(skill, "", 3, name="Skill")
    paper.say(told(skill, "task_started", 0, 0, 0))
    calls(paper, skill, "c1", "Grep", pattern="gold")
    paper.sees("└ 1 tool use", "◐ Grep gold")


async def test_the_row_of_an_agent_that_goes_on_names_the_agent(at: Desk) -> None:
    earlier = await started(at)
    at.session.done(earlier, "Cut.", structured={"status": "completed"})
    again = at.session.call("Task", description="Go on", prompt="Go on.", resume=earlier)
    note = {**told(earlier, "task_started", 0, 0, 0), "tool_use_id": again, "subagent_type": "Explore"}
    at.session.say(note)
    calls(at.session, earlier, "c1", "Grep", pattern="word")
    await at.sees("Agent Explore: Go on", "◐ Grep word")


async def test_a_question_of_an_agent_names_it_on_the_card_and_its_row_waits(at: Desk) -> None:
    agent_id = await started(at)
    calls(at.session, agent_id, "c1", "Bash", command="make")
    asked = question("r1", "Bash", {"command": "make"}, tool_use_id="c1", agent="Explore: Find the parser")
    at.session.say({**asked, "parent_tool_use_id": agent_id})
    await at.sees("Sub-agent: Explore: Find the parser", "? Bash make  waits for your answer")


async def test_what_an_agent_streams_or_retries_is_not_the_main_agents(at: Desk) -> None:
    agent_id = await started(at)
    retry = {"type": "system", "subtype": "api_retry", "attempt": 2, "max_retries": 9, "error": "overloaded"}
    at.session.say({**retry, "parent_tool_use_id": agent_id})
    mode = {"type": "system", "subtype": "status", "status": None, "permissionMode": "plan"}
    at.session.say({**mode, "parent_tool_use_id": agent_id})
    await at.sees("└ asks its model again, try 2")
    assert "overloaded" not in at.screen and at.view.reducer.facts.mode != "plan"


async def asked(at: Desk) -> str:
    """An agent that has got its prompt, and much happens meanwhile."""
    agent_id = await started(at)
    block = {"type": "text", "text": f"{TASK['prompt']}\x1b[31m"}
    at.session.fact("prompt", context=[], items=[{"content": [block]}], agent_id=agent_id)
    calls(at.session, agent_id, "c1", "Grep", pattern="word")
    done(at.session, agent_id, "c1", "\n".join(f"found {number}" for number in range(9)))
    for number in range(25):
        at.session.fact("taken", input_id=f"x{number}")
    says(at.session, agent_id, {"type": "text", "text": "Its own **words**."})
    await at.sees("1 tool use · Down, Enter opens it")
    return agent_id


async def test_down_and_enter_show_the_conversation_of_an_agent_as_it_goes_on() -> None:
    async with desk(Kept()) as at:
        agent_id = await asked(at)
        await at.press("down", sees="1 tool use · Enter opens it")
        await at.type("x", sees="Down, Enter opens it", has="x")
        await at.press("backspace", "down", "enter", sees="Explore: Find the parser · works · 1 tool use")
        await at.sees("❯ Find it.\n   Say where.", "● Grep word", "9 lines", "Its own words.", lacks="found 1")
        assert "Agent" not in at.screen and "not loaded" not in at.screen
        calls(at.session, agent_id, "c2", "Bash", command="make")
        printed = {"type": "tool_progress", "tool_use_id": "c2", "tool_name": "Bash", "output": "one\ntwo"}
        at.session.progress({**printed, "elapsed_time_seconds": 9, "parent_tool_use_id": agent_id})
        at.session.text("Words of the main agent.", message_id="m7")
        await at.sees("Bash make  9 s", "└ one\n     two", "works · 2 tool uses", lacks="of the main agent")
        assert "Ctrl+B" not in at.screen, "it moves commands of the main agent only"
        await at.press("ctrl+o", sees="found 1")
        done(at.session, agent_id, "c2", "built")
        result = {"type": "result", "subtype": "success", "num_turns": 3, "duration_ms": 9000, "total_cost_usd": 0.02}
        at.session.fact("agent_result", result=result, agent_id=agent_id)
        at.session.done(agent_id, "In parse.py.", structured={"status": "completed", "totalToolUseCount": 2})
        await at.sees("completed · 2 tool uses", "9 s · $0.02")
        await at.press("escape", sees=("Ask for a change", "Words of the main agent."))
        assert at.app.focused is at.composer and at.session.interrupts == 0


async def test_a_click_opens_an_agent_and_what_came_after_its_end_is_not_loaded() -> None:
    async with desk(Kept()) as at:
        agent_id = await asked(at)
        at.session.fact("agent_result", result={"type": "result", "subtype": "success"}, agent_id=agent_id)
        end = at.session._seq
        at.session.done(agent_id, "In parse.py.", structured={"status": "completed", "totalToolUseCount": 1})
        await at.sees("└ 1 tool use")
        row = next(at for at, line in enumerate(at.lines) if "Agent Explore" in line)
        await at.pilot.click(at.view.transcript, offset=(5, row))
        await at.sees("Explore: Find the parser · completed · 1 tool use", "❯ Find it.", "Its own words.")
        assert at.session.fetched[0] == end + 1


async def test_up_and_down_choose_among_the_agents_in_sight_and_esc_lets_them_be() -> None:
    async with desk(Kept()) as at:
        await asked(at)
        at.session.call("Task", description="Other", prompt="p", subagent_type="Plan")
        await at.sees("Agent Plan: Other")
        plan, explore = ("Plan: Other\n   └ starting · Enter", "Explore: Find the parser  3 s\n   └ 1 tool use · Enter")
        await at.press("down", sees=plan)
        await at.press("up", sees=explore, lacks=plan)
        await at.press("up", loses=explore)
        await at.press("down", "up", "down", sees=plan)
        await at.press("down", loses=plan)
        await at.press("down", "escape", loses=plan)
        assert at.session.interrupts == 0
