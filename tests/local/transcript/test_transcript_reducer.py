"""The transcript as a projection: records and messages become blocks, without an application."""

from __future__ import annotations

import base64
import re
import time
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.broken_messages import broken_messages

from ccb.local.plain.line_output import PlainQuestion
from ccb.local.session.session_client import SessionEvent, parse_snapshot
from ccb.local.terminal.keymap import DEFAULT_KEYMAP
from ccb.local.transcript import blocks as shown
from ccb.local.transcript import session_facts
from ccb.local.transcript.prompt_tracker import PromptTracker
from ccb.local.transcript.tool_calls import in_words
from ccb.local.transcript.transcript_reducer import TranscriptReducer
from ccb.local.tui.approvals import card_for
from ccb.local.tui.cards.question_card import Asked
from ccb.local.tui.rendering.approval_text import place_of_call
from ccb.local.tui.rendering.themes import palette_of
from ccb.remote.agent import agent_messages
from ccb.remote.agent.prompt_opening import _reminder
from ccb.remote.agent.tool_call import NOT_RUN, STOPPED
from ccb.remote.tools.bash import _HOW_TO_ANSWER, _HOW_TO_ASK, _HOW_TO_READ, _SET_ASIDE, _TO_KEEP
from ccb.remote.tools.tool_contract import ToolResult
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.messages import ControlRequest, parse_message

CALL: Json = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "make"}}


class Told:
    def __init__(self) -> None:
        self._container = shown.BlockList()
        self.reducer = TranscriptReducer(self._container, own_name="me")
        self.seq = 0

    @property
    def blocks(self) -> list[shown.Block]:
        return self._container.blocks

    @property
    def notices(self) -> list[shown.NoticeBlock]:
        return [block for block in self.blocks if isinstance(block, shown.NoticeBlock)]

    def record(self, kind: str, *, replayed: bool = False, **body: Any) -> None:
        self.seq += 1
        self.reducer.apply_event(SessionEvent(kind, body, self.seq).record, replayed=replayed)

    def assistant(self, *content: Json, message_id: str = "m1") -> None:
        message = {"id": message_id, "role": "assistant", "model": "x", "content": list(content), "usage": {}}
        self.record("message", type="assistant", message=message)

    def result_of(self, tool_id: str, text: str) -> None:
        block = {"type": "tool_result", "tool_use_id": tool_id, "content": text}
        self.record("message", type="user", message={"role": "user", "content": [block]})

    def stream(self, **event: Any) -> None:
        self.reducer.apply_progress(parse_message({"type": "stream_event", "event": event}))


def test_a_finished_text_replaces_what_was_streamed_and_a_withdrawn_message_disappears() -> None:
    told = Told()
    told.stream(type="message_start", message={"id": "m1"})
    told.stream(type="content_block_start", index=0, content_block={"type": "text"})
    told.stream(type="content_block_delta", index=0, delta={"type": "text_delta", "text": "Hel"})
    (live,) = told.blocks
    assert isinstance(live, shown.MarkdownBlock) and live.live and live.text == "Hel"
    told.assistant({"type": "text", "text": "Hello"})
    assert told.blocks == [live] and live.text == "Hello" and not live.live
    assert told.reducer.answers[-1] == "Hello"
    told.assistant({"type": "text", "text": "cut off"}, message_id="m2")
    assert len(told.blocks) == 2
    told.record("withdrawn", message_id="m2")
    assert told.blocks == [live] and live.text == "Hello"


@pytest.mark.parametrize("loaded_later", [False, True])
def test_a_tool_call_runs_and_gets_its_result(loaded_later: bool) -> None:
    told = Told()
    if loaded_later:
        told.result_of("t1", "built")
    told.assistant(CALL)
    (tool,) = told.blocks
    assert isinstance(tool, shown.ToolBlock)
    if not loaded_later:
        assert tool.state is shown.ToolState.WAITING
        told.record("tool_start", tool_use_id="t1", name="Bash")
        assert shown.ToolState(tool.state) is shown.ToolState.RUNNING
        told.result_of("t1", "built")
    assert (shown.ToolState(tool.state), tool.result) == (shown.ToolState.DONE, "built")


def test_a_call_of_a_tool_that_was_found_is_shown_as_that_call() -> None:
    told = Told()
    given = {"tool_name": "mcp__notes__add", "params": {"text": "milk"}}
    told.assistant({"type": "tool_use", "id": "t1", "name": "ExecuteExtraTool", "input": given})
    (tool,) = told.blocks
    assert isinstance(tool, shown.ToolBlock) and (tool.name, tool.tool_input) == ("mcp__notes__add", {"text": "milk"})


def test_a_queued_prompt_stays_at_the_bottom_until_the_agent_takes_it() -> None:
    told = Told()
    told.record("turn_start")
    body = {"type": "user", "uuid": "p1", "message": {"role": "user", "content": "and now?"}}
    told.record("input", id="p1", body=body)
    told.assistant({"type": "text", "text": "working"})
    text, prompt = told.blocks
    assert isinstance(prompt, shown.PromptBlock) and prompt.state is shown.PromptState.QUEUED
    told.record("prompt", context=[], items=[{"input": "p1"}])
    told.assistant({"type": "text", "text": "done"}, message_id="m2")
    assert told.blocks[:2] == [text, prompt] and shown.PromptState(prompt.state) is shown.PromptState.TAKEN


def test_a_change_of_driver_is_announced_only_after_the_past() -> None:
    told = Told()
    told.record("driver", replayed=True, by="somebody", epoch=1)
    told.record("driver", by="me", epoch=2)
    assert told.blocks == []
    told.record("driver", by="bob", epoch=3)
    told.record("driver", by="me", epoch=4)
    assert [each.text for each in told.notices] == ["“bob” drives this session now.", "You drive this session now."]


def test_records_of_unknown_kinds_change_nothing_and_damage_is_a_warning() -> None:
    told = Told()
    told.record("from_the_future", much="more")
    told.record("damaged")
    assert told.blocks == []
    told.record("damaged", what="line 3 cannot be read")
    (notice,) = told.notices
    assert told.blocks == [notice] and notice.level is shown.Level.WARNING and "line 3" in notice.text


def test_a_snapshot_takes_the_place_of_events_that_are_not_loaded() -> None:
    told = Told()
    body = {
        "model": "opus",
        "permission_mode": "plan",
        "result": {"total_cost_usd": 2.5, "modelUsage": {"a": {"inputTokens": 7, "outputTokens": 3}}},
        "todos": [{"content": "test", "status": "pending"}, "broken"],
        "prompts": [{"input": "p1", "uuid": "u1", "text": "go on", "taken": True}, {"text": "  "}, None],
    }
    told.reducer.skipped(parse_snapshot(body), running=True)
    reducer = told.reducer
    assert (reducer.facts.model, reducer.facts.mode, reducer.running) == ("opus", "plan", True)
    assert (reducer.totals.input_tokens, reducer.totals.output_tokens, reducer.totals.cost_usd) == (7, 3, 2.5)
    prompt, todos = told.blocks
    assert isinstance(prompt, shown.PromptBlock) and (prompt.text, prompt.state) == ("go on", shown.PromptState.TAKEN)
    assert isinstance(todos, shown.ToolBlock)
    assert todos.tool_input == {"todos": [{"content": "test", "status": "pending"}]}


def test_the_cage_in_force_is_what_the_worker_tells_and_a_missing_one_is_a_warning() -> None:
    told = Told()
    told.record("options", options={"sandbox": "workspace"})
    assert told.reducer.facts.sandbox == "", "a worker without a sandbox names none"
    told.reducer.facts.sandbox = "read-only cage"
    told.record("options", options={"sandbox": "workspace"})
    assert told.reducer.facts.sandbox == "workspace cage"
    told.record("options", options={"sandbox": "read-only", "permission_mode": "bypassPermissions"})
    assert told.reducer.facts.sandbox == "no cage: permissions are bypassed", (
        "nobody is told of a cage that holds nothing"
    )
    told.record("options", options={"sandbox": "read-only", "permission_mode": "default"})
    init: Json = {"type": "system", "subtype": "init", "cwd": "/", "model": "m", "permissionMode": "plan"}
    for _ in range(2):
        told.record("message", **init, sandbox="no cage: no Land\x1block")
    (notice,) = told.notices
    assert told.blocks == [notice] and notice.level is shown.Level.WARNING
    assert "no cage: no Land" in notice.text and "\x1b" not in notice.text
    told.record("message", type="system", subtype="status", status=None, sandbox="read-only cage")
    assert told.reducer.facts.sandbox == "read-only cage"
    told.reducer.skipped(parse_snapshot({"sandbox": "workspace cage"}), running=False)
    assert told.reducer.facts.sandbox == "workspace cage"


def test_the_effort_is_that_of_the_options_of_a_change_and_of_what_is_not_loaded() -> None:
    told = Told()
    told.record("options", options={"effort": "high"})
    assert told.reducer.facts.effort == "high"
    told.record("reasoning", effort="", thinking_tokens=-1)
    told.record("options", options={"model": "m"})
    assert told.reducer.facts.effort == "", "another client has left it to the model"
    for known, effort in (({"effort": "low"}, "low"), ({}, "low"), ({"effort": "no level"}, "")):
        told.reducer.skipped(parse_snapshot(known), running=False)
        assert told.reducer.facts.effort == effort


def test_a_compaction_and_the_output_of_a_command_are_notices() -> None:
    told = Told()

    def system(subtype: str, **fields: Any) -> None:
        told.record("message", type="system", subtype=subtype, **fields)

    system("status", status="compacting")
    system("status", status=None, permissionMode="plan")
    system("compact_boundary", compact_metadata={"trigger": "auto", "pre_tokens": 167000, "post_tokens": 9000})
    system("status", status=None, compact_result="success")
    summary = {"role": "user", "content": [{"type": "text", "text": "the summary"}]}
    told.record("message", type="user", isSynthetic=True, isCompactSummary=True, message=summary)
    system("status", status="compacting")
    system("status", status=None, compact_result="failed")
    printed = "<local-command-stdout>40 % of\nthe window\x1b[2J</local-command-stdout>"
    output = {"role": "user", "content": [{"type": "text", "text": printed}]}
    told.record("message", type="user", isReplay=True, message=output)
    texts = [block.text for block in told.notices]
    assert texts[:2] == [
        "── Compacted: the agent goes on with a summary (167,000 became 9,000 tokens).",
        "The conversation was not compacted.",
    ]
    system("compact_boundary", compact_metadata={"trigger": "auto", "pre_tokens": 167000, "post_tokens": 9000})
    assert told.notices.pop().text.startswith("── The agent goes on without the conversation"), "there is no summary"
    system("status", status="compacting")
    system("compact_boundary", compact_metadata={"part": "up_to", "at": 3, "prompt": "Fix it\x1b"})
    assert told.notices.pop().text.startswith("── Compacted up to “Fix it")
    assert texts[2].startswith("40 % of\nthe window") and "\x1b" not in texts[2] and len(texts) == 3
    moved = f"It goes on in the background with ID: bash_1. You are told when it ends. {_HOW_TO_READ}"
    line = {"type": "text", "text": f"<local-command-stdout>{moved}</local-command-stdout>"}
    told.record("message", type="user", isReplay=True, message={"role": "user", "content": [line]})
    assert told.notices[-1].text == "in the background: bash_1 (/tasks)"


@pytest.mark.parametrize(
    ("for_the_model", "for_people"),
    [
        ("(Bash completed with no output)", "no output"),
        ("(Bash completed with no output)\nShell cwd was reset to /srv", "no output\nShell cwd was reset to /srv"),
        ("echo (Bash completed with no output)", "echo (Bash completed with no output)"),
        (
            f"Command running in background with ID: bash_1. You are told when it ends. {_HOW_TO_READ} Output is also "
            "written to: /tmp/x",
            "in the background: bash_1 (/tasks)",
        ),
        (
            f"It takes longer than 15 s, so it goes on in the background with ID: bash_2. You are told when it ends. "
            f"{_HOW_TO_READ}\nOutput so far:\n1",
            "in the background: bash_2 (/tasks)\nOutput so far:\n1",
        ),
        (
            "1\nStill running after the command: python3 (pid 7). Its task is bash_3; TaskStop ends it.",
            "1\nstill running: python3 (pid 7), in the background: bash_3 (/tasks)",
        ),
        (NOT_RUN, "Interrupted; not run."),
        (f"{STOPPED}\nIt had printed:\n1", "Interrupted; what it had done until then stays done.\nIt had printed:\n1"),
        (agent_messages.INTERRUPTED_FOR_TOOL, "Interrupted."),
        (f"stopped by the sandbox: x\n{_HOW_TO_ASK}", "stopped by the sandbox: x"),
        (f"{_SET_ASIDE}: a\n{_TO_KEEP}", f"{_SET_ASIDE}: a"),
        (f"sudo: no tty\n{_HOW_TO_ANSWER}", "sudo: no tty\nThere is no terminal, and nobody can be asked here."),
        ("The user denied this; it was not done. The user says: no", "Denied; not run. The user says: no"),
    ],
)
def test_what_the_worker_tells_the_model_is_shown_in_words_for_people(for_the_model: str, for_people: str) -> None:
    told = Told()
    told.assistant(CALL)
    told.result_of("t1", for_the_model)
    (block,) = told.blocks
    assert isinstance(block, shown.ToolBlock) and block.result == for_people


def test_a_long_text_of_a_hostile_host_takes_no_time_to_be_put_in_words() -> None:
    text = "The user doesn't want to proceed with it" + " while it ran: what x." * 50_000
    begins = time.thread_time()
    assert in_words(text) == text
    assert time.thread_time() - begins < 2


def test_what_a_prompt_names_is_said_below_it() -> None:
    told = Told()
    told.reducer.notices.cwd = "/srv"
    message = {"role": "user", "content": "see @app.py"}
    told.record("input", id="i1", body={"type": "user", "uuid": "u1", "message": message})
    named = [
        *_reminder("the file /srv/app.py", ToolResult("".join(f"{n}\tx\n" for n in range(1, 41)))),
        *_reminder("the directory /srv/src", ToolResult("- a.py")),
        *_reminder("the file /etc/logo.png", ToolResult([{"type": "image"}])),
    ]
    told.record("prompt", context=[*named, {"type": "text", "text": "something else"}], items=[{"input": "i1"}])
    assert [each.text for each in told.blocks] == [
        "see @app.py", "Read app.py (40 lines)", "Listed src", "Read /etc/logo.png"
    ]  # fmt: skip


def test_what_a_hostile_worker_says_of_todos_takes_little_memory() -> None:
    told, long = Told(), "x" * 100_000
    told.record("todo", id=long, subject=long, status=long, active_form=long, description=long, owner=long)
    assert len(repr(told.reducer.todos)) < 10_000


def test_going_back_brings_the_todo_list_of_that_place_back() -> None:
    told = Told()

    def write(*texts: str) -> int:
        todos = [{"content": each, "status": "pending"} for each in texts]
        call = {"type": "tool_use", "id": f"todo_{len(texts)}", "name": "TodoWrite", "input": {"todos": todos}}
        told.assistant(call, message_id=f"m{len(texts)}")
        return told.seq

    first = write("a")
    write("a", "b")
    told.record("rewind", message="u", to=first + 1, files=[], prompt="")
    assert [each.subject for each in told.reducer.todos.items] == ["a"]
    told.record("rewind", message="u", to=first, files=[], prompt="")
    assert told.reducer.todos.items == ()


def test_the_status_line_has_the_size_that_the_worker_counts_once_an_answer_is_complete() -> None:
    told = Told()
    usage = {"input_tokens": 900.0, "output_tokens": 100}
    told.record("model_end", message_id="m1", stop_reason="end_turn", usage=usage)
    totals = told.reducer.totals
    assert totals.context_text == "context 1.0k"
    told.record("model_end", message_id="m2", stop_reason=None, usage={"input_tokens": 1900, "estimated": True})
    assert totals.context_text == "context ~1.9k"
    most = {"input_tokens": 50_000, "output_tokens": 8_000, "estimated": "at_most"}
    told.record("model_end", message_id="m3", stop_reason=None, usage=most)
    assert totals.context_text == "context ~1.9k", "what it can be at most says nothing of its size"
    sizes = {"pre_tokens": 1900, "post_tokens": 600}
    told.record("message", type="system", subtype="compact_boundary", compact_metadata=sizes)
    assert totals.context_text == "context ~600", "at once, not with the next answer"


SYSTEM: Json = {"type": "system", "sandbox": "no cage", "permissionMode": "plan"}
RETRY: Json = {"attempt": 1, "max_retries": 9, "retry_delay_ms": 5, "error_status": 529, "error": "e", "message": "m"}
TASK: Json = {"type": "system", "task_id": "t1", "tool_use_id": "t1", "agent_id": "a", "subagent_type": "Plan"}
RESULT: Json = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "image"}], "is_error": True}
AGENT: Json = {**CALL, "name": "Agent", "input": {"prompt": "find", "resume": "a"}}
COLOURS = ("foreground", "background", "accent", "surface", "success", "error", "warning")
ASKED: Json = {
    "subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "make"}, "permission_suggestions": [{}],
    "blocked_path": "/x", "decision_reason": "why", "decision_reason_type": "t", "agent": "a", "file_change": {},
    "sandbox": "none", "mcp_server_name": "s", "message": "m", "mode": "url", "url": "u", "requested_schema": {},
}  # fmt: skip
MESSAGES: list[Json] = [
    {**SYSTEM, "subtype": "informational", "content": "careful", "level": "warning"},
    {**SYSTEM, "subtype": "init", "model": "m", "cwd": "/srv", "git_branch": "main", "tools": ["Bash"]},
    {**SYSTEM, "subtype": "status", "status": "compacting", "compact_result": "failed"},
    {**SYSTEM, "subtype": "compact_boundary", "compact_metadata": {"pre_tokens": 9, "trigger": "clear"}},
    {**SYSTEM, "subtype": "model_silent", "silent_ms": 5, "retry_in_ms": 5},
    {**SYSTEM, "subtype": "api_retry", **RETRY},
    {**TASK, "subtype": "task_started", "description": "d", "is_backgrounded": True},
    {**TASK, "subtype": "task_progress", "usage": {"total_tokens": 5, "duration_ms": 6}},
    {**TASK, "subtype": "task_notification", "status": "failed", "summary": "s"},
    {"type": "assistant", "message": {"id": "m", "content": [CALL], "usage": {"input_tokens": 5}}},
    {"type": "user", "message": {"content": [RESULT]}, "tool_use_result": {"totalTokens": 5, "structuredPatch": [7]}},
    {"type": "user", "message": {"content": [{"type": "text", "text": "x"}]}, "isReplay": True, "isSynthetic": True},
    {"type": "tool_progress", "tool_use_id": "t1", "elapsed_time_seconds": 5, "output": "o", "heartbeat": False},
    {"type": "stream_event", "event": {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta"}}},
    {
        "type": "result", "subtype": "error", "is_error": True, "errors": ["e"], "total_cost_usd": 5,
        "modelUsage": {"m": {"inputTokens": 5}}, "usage": {"input_tokens": 5}, "terminal_reason": "x",
    },
]  # fmt: skip


def test_a_broken_message_breaks_nothing() -> None:
    calls = [{"type": "assistant", "message": {"content": [each]}} for each in broken_messages(AGENT)]
    results = [{"type": "user", "message": {"content": [each]}} for each in broken_messages(RESULT)]
    for broken in [*calls, *results, *(each for message in MESSAGES for each in broken_messages(message))]:
        told = Told()
        told.assistant(AGENT)
        told.record("message", **broken)
        told.reducer.apply_progress(parse_message(broken))
        told.assistant({"type": "text", "text": "goes on"}, message_id="m2")
        assert told.reducer.answers[-1] == "goes on", broken


@pytest.mark.parametrize("tool", ["Bash", "Edit", "AskUserQuestion", "ExitPlanMode", "mcp__a__b"])
def test_a_broken_question_can_be_shown_and_answered(tool: str) -> None:
    palette = palette_of(dict.fromkeys(COLOURS, "#808080"), dark=True)
    body = {"type": "control_request", "request_id": "r", "request": {**ASKED, "tool_name": tool}}
    for broken in broken_messages(body):
        request = parse_message(broken)
        assert isinstance(request, ControlRequest)
        place = place_of_call(request, "host", ["a"])
        question = PlainQuestion(request, place)
        assert question.lines and isinstance(question.reply("n"), dict)
        assert card_for(Asked(request, place, palette, DEFAULT_KEYMAP, print)).asked.request is request


def test_more_prompts_than_a_worker_queues_move_up_into_the_conversation() -> None:
    screen = shown.BlockList()
    prompts = PromptTracker(screen)
    prompts.sent("mine", "mine", running=True, connected=True)
    for number in range(3_000):
        prompts.arrived(f"forged {number}", (f"id-{number}",), running=True)
    waiting = prompts.waiting
    assert len(waiting) == 1_001 and waiting[0].text == "mine" and waiting[-1].text == "forged 2999"
    prompts_shown = [each for each in screen.blocks if isinstance(each, shown.PromptBlock)]
    moved = [each for each in prompts_shown if each.state is shown.PromptState.TAKEN]
    assert len(moved) == 2_000, "the conversation has its own limit"
    prompts = PromptTracker(shown.BlockList())
    for number in range(100):
        prompts.arrived("x" * shown.MAX_BLOCK_CHARS, (f"id-{number}",), running=True)
    assert sum(len(each.text) for each in prompts.waiting) <= 8 * 1024 * 1024, "large ones have a limit together"
    for number in range(3_000):  # which never get their place
        taken = {"ids": [f"id-{number}"], "text": "forged", "taken": True}
        prompts.snapshot(parse_snapshot({"prompts": [taken]}).prompts or ())
    assert len(prompts._from_snapshot) <= 1_000


PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\2\x80\0\0\1\xe0\x08\2\0\0\0" + bytes(12_000)
JPEG = b"\xff\xd8\xff\xe0\0\4ab\xff\xc0\0\x0b\x08\0\2\0\3\1" + bytes(2_500_000)


def image(data: object) -> Json:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}


def image_of(data: bytes) -> Json:
    return image(base64.b64encode(data).decode())


@pytest.mark.parametrize(
    ("blocks", "words"),
    [
        (
            [{"type": "text", "text": "Two plots:"}, image_of(PNG), image_of(JPEG)],
            "Two plots:\nPNG 640x480 · 12 KB\nJPEG 3x2 · 2.5 MB",
        ),
        ([image_of(PNG[:12])], "PNG · 1 KB"),
        *(([image(data)], "[image]") for data in ("no base64 ü", "abc", "", 7)),
        *(([block], "[image]") for block in (image_of(b"GIF"), {"type": "image"})),
    ],
    ids=["two", "without its pixels", "no base64", "cut", "empty", "a number", "an unknown kind", "no data"],
)
def test_an_image_in_a_result_is_named_as_far_as_it_is_one(blocks: list[Json], words: str) -> None:
    assert shown.result_text({"type": "tool_result", "tool_use_id": "t", "content": blocks}) == words


def test_a_snapshot_whose_lists_are_no_lists_has_none() -> None:
    state = parse_snapshot({"todos": "a", "asks": "b", "prompts": "c", "tasks": "d"})
    assert (state.todos, state.questions, state.prompts, state.tasks) == ((), (), None, None)


def test_a_turn_ends_with_a_line_of_time_files_cost_and_what_still_runs() -> None:
    told = Told()
    told.record("turn_start")
    for path, lines in (("/srv/a.py", ["-old", "+new", " same"]), ("/srv/a.py", ["+one more"])):
        done = {"filePath": path, "structuredPatch": [{"lines": lines}, "broken"]}
        told.record("message", type="user", message={"content": []}, tool_use_result=done)
    new = {"type": "create", "filePath": "/srv/b.py", "content": "1\n2\n", "structuredPatch": []}
    told.record("message", type="user", message={"content": []}, tool_use_result=new)
    task: Json = {"type": "system", "subtype": "task_started", "task_id": "bash_1", "description": "serve"}
    told.record("message", **task, is_backgrounded=True)
    result: Json = {"type": "result", "subtype": "success", "num_turns": 3, "duration_ms": 125_400}
    told.record("message", **result, total_cost_usd=0.021)
    took, files, cost, at, runs = told.notices[-1].text.split(" · ")
    assert (took, files, cost) == ("2 min 5 s", "2 files +4 −1", "$0.02")
    assert re.fullmatch(r"\d\d:\d\d", at) and runs == "1 task in the background: /tasks"
    told.record("message", **result | {"num_turns": 0}, total_cost_usd=0.021)
    assert len(told.notices) == 1, "a command of the person needs no such line"


def test_the_time_of_a_turn_is_without_that_in_which_it_waited_for_the_person(monkeypatch: pytest.MonkeyPatch) -> None:
    told, now = Told(), 100.0
    monkeypatch.setattr(session_facts, "time", SimpleNamespace(monotonic=lambda: now))
    told.record("turn_start")
    ask: Json = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {}}
    for request in ("q1", "q2"):
        told.record("message", type="control_request", request_id=request, request=ask, parent_tool_use_id=None)
        now += 10.0
    for request in ("q1", "q2"):
        now += 5.0
        told.record("input", id=request, body={"type": "control_response", "response": {"request_id": request}})
    result: Json = {"type": "result", "subtype": "success", "num_turns": 3, "duration_ms": 33_000}
    told.record("message", **result)
    assert told.notices[-1].text.startswith("3 s · ")


def test_the_line_of_a_past_turn_does_not_guess_its_cost_and_time_of_day() -> None:
    told = Told()
    result: Json = {
        "type": "result",
        "subtype": "success",
        "num_turns": 3,
        "duration_ms": 12_000,
        "total_cost_usd": 9.0,
    }
    told.record("message", replayed=True, **result)
    assert told.notices[-1].text == "12 s"
