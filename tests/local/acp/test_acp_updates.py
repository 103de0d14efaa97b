"""What a session says, as updates of the Agent Client Protocol, and the answers that a question offers."""

from __future__ import annotations

from typing import Any, cast

import pytest

from ccb.local.acp.acp_paths import PathMap
from ccb.local.acp.acp_questions import choices
from ccb.local.acp.acp_tool_calls import described, more_output
from ccb.local.acp.acp_updates import AcpUpdates, Editor
from ccb.local.session.session_client import SessionEvent
from ccb.local.slash_commands.session_api import ReplInfo
from ccb.tunnel.wire.json_rpc import JsonRpcPeer
from ccb.tunnel.wire.messages import ControlRequest, parse_message

Json = dict[str, Any]
INFO = ReplInfo("web1", "/srv/app", "opus", "default", "0")
PATHS = PathMap("web1", "/srv/app", ["/srv/app/lib=/mnt/lib"])


def editor(capabilities: Json) -> Editor:
    return Editor(cast("JsonRpcPeer", None), capabilities, PATHS)


def updates(*events: tuple[str, Json], terminal_output: bool = False) -> list[Json]:
    made = AcpUpdates(INFO, editor({"_meta": {"terminal_output": terminal_output}}))
    return [each for seq, (kind, body) in enumerate(events, 1) for each in made.take(SessionEvent(kind, body, seq))]


def stream(**event: object) -> tuple[str, Json]:
    return "progress", {"type": "stream_event", "event": event, "parent_tool_use_id": None}


def started(message_id: str) -> tuple[str, Json]:
    return stream(type="message_start", message={"id": message_id})


def grown(text: str, index: int = 0, kind: str = "text") -> tuple[str, Json]:
    return stream(type="content_block_delta", index=index, delta={"type": f"{kind}_delta", kind: text})


def finished(message_id: str, *blocks: Json, parent: str | None = None) -> tuple[str, Json]:
    message = {"id": message_id, "role": "assistant", "content": list(blocks)}
    return "message", {"type": "assistant", "message": message, "parent_tool_use_id": parent}


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def said(told: list[Json], kind: str = "agent_message_chunk") -> str:
    return "".join(each["content"]["text"] for each in told if each["sessionUpdate"] == kind)


@pytest.mark.parametrize(
    "events",
    [
        [finished("m", text("one two"))],
        [started("m"), grown("one "), grown("two"), finished("m", text("one two"))],
        [started("m"), grown("one "), finished("m", text("one two"))],
        [started("m"), grown("one "), started("m"), grown("one t"), grown("wo"), finished("m", text("one two"))],
        [started("m"), grown("one"), finished("m", text("one")), started("m"), grown("one"), grown(" two", 1),
         finished("m", text(" two"))],
    ],
    ids=["not streamed", "streamed", "partly", "begun again after a cut", "finished in two parts, with a cut"],
)  # fmt: skip
def test_each_word_of_an_answer_comes_once(events: list[tuple[str, Json]]) -> None:
    assert said(updates(*events)) == "one two"


def test_an_answer_that_the_model_begins_again_says_so() -> None:
    events = [started("m"), grown("wrong"), ("withdrawn", {"message_id": "m"}), started("m"), grown("right")]
    assert "begins this answer again" in said(updates(*events)).removeprefix("wrong").removesuffix("right")


def test_what_a_sub_agent_says_is_not_what_the_agent_says() -> None:
    assert said(updates(finished("m", text("inner"), parent="toolu_1"))) == ""


def call(name: str, **given: object) -> Json:
    return {"type": "tool_use", "id": "t1", "name": name, "input": given}


def result(content: str, *, is_error: bool = False) -> tuple[str, Json]:
    block = {"type": "tool_result", "tool_use_id": "t1", "content": content, "is_error": is_error}
    return "message", {"type": "user", "message": {"role": "user", "content": [block]}, "parent_tool_use_id": None}


def printed(output: str) -> tuple[str, Json]:
    return "progress", {"type": "tool_progress", "tool_use_id": "t1", "output": output, "parent_tool_use_id": None}


def test_a_command_streams_into_a_terminal_or_replaces_its_text() -> None:
    events = [finished("m", call("Bash", command="make")), ("tool_start", {"tool_use_id": "t1", "name": "Bash"}),
              printed("a\n"), printed("a\nb\n"), result("a\nb\nc", is_error=True)]  # fmt: skip
    told = updates(*events, terminal_output=True)
    assert told[0]["content"] == [{"type": "terminal", "terminalId": "t1"}]
    metas = [each.get("_meta", {}) for each in told]
    assert "".join(each["terminal_output"]["data"] for each in metas if "terminal_output" in each) == "a\nb\nc"
    assert [each["status"] for each in told if "status" in each] == ["pending", "in_progress", "failed"]
    assert metas[-1]["terminal_exit"]["exit_code"] == 1
    plain = updates(*events)
    assert [each["content"][0]["content"]["text"] for each in plain if each.get("content")] == [
        "```\na\n```", "```\na\nb\n```", "```\na\nb\nc\n```",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "now", "more"),
    [
        ("", "ab", "ab"),
        ("ab", "abc", "c"),
        ("abcd", "cdef", "ef"),
        ("ab", "xy", "\nxy"),
        ("ab", "ab", ""),
        ("b\nc\n", "a\nb\nc\nd", "d"),
        ("b\nc\n", "a\nb\nc", ""),
    ],
)
def test_only_what_is_new_of_an_output_is_sent(before: str, now: str, more: str) -> None:
    assert more_output(before, now) == more


@pytest.mark.parametrize(
    ("name", "given", "kind", "title"),
    [
        ("Bash", {"command": "make\ttest"}, "execute", "make test"),
        ("Read", {"file_path": "/srv/app/a.py", "offset": 7}, "read", "Read a.py on web1"),
        ("Read", {"file_path": "/srv/app/lib/a.py"}, "read", "Read lib/a.py"),
        ("Grep", {"pattern": "x"}, "search", "Grep x"),
        ("Edit", {"file_path": "/srv/app/a.py", "old_string": "a", "new_string": "b"}, "edit", "Edit a.py on web1"),
        ("WebFetch", {"url": "https://a.b"}, "fetch", "WebFetch https://a.b"),
        ("TodoWrite", {"todos": []}, "think", "TodoWrite"),
        ("Task", {"description": "look", "prompt": "p"}, "think", "Task general-purpose: look"),
        ("ExitPlanMode", {"plan": "# Plan"}, "switch_mode", "ExitPlanMode"),
        ("mcp__notes__add", {"a": 1}, "other", 'mcp__notes__add {"a": 1}'),
    ],
)
def test_a_call_has_a_title_a_kind_and_its_places(name: str, given: Json, kind: str, title: str) -> None:
    shown = described(name, given, PATHS, "/srv/app")
    assert (shown["kind"], shown["rawInput"]) == (kind, given) and shown["title"] == title
    path = given.get("file_path")
    assert [each["path"] for each in shown["locations"]] == ([PATHS.shown(path)] if path else [])
    assert [each.get("line") for each in shown["locations"]] == ([given.get("offset")] if path else [])


@pytest.mark.parametrize(
    ("name", "given", "diffs"),
    [
        ("Edit", {"old_string": "a", "new_string": "b"}, [("a", "b")]),
        ("Write", {"content": "all"}, [(None, "all")]),
        ("MultiEdit", {"edits": [{"old_string": "a", "new_string": "b"}, {"new_string": "c"}]},
         [("a", "b"), (None, "c")]),
        ("Edit", {"old_string": 1, "new_string": 2}, []),
    ],
)  # fmt: skip
def test_changes_of_files_are_diffs_with_their_texts(name: str, given: Json, diffs: list[Any]) -> None:
    shown = described(name, {"file_path": "/srv/app/lib/a", **given}, PATHS, "/srv/app")
    assert [(each["oldText"], each["newText"], each["path"]) for each in shown["content"]] == [
        (old, new, "/mnt/lib/a") for old, new in diffs
    ]


def asked(tool: str, tool_input: Json, *suggestions: Json) -> ControlRequest:
    request: Json = {"subtype": "can_use_tool", "tool_name": tool, "input": tool_input, "tool_use_id": "t1"}
    request["permission_suggestions"] = [*suggestions]
    body = {"type": "control_request", "request_id": "r", "request": request}
    line = parse_message(body)
    assert isinstance(line, ControlRequest)
    return line


def test_a_call_of_a_sub_agent_that_is_asked_about_begins_and_ends_for_the_editor() -> None:
    request: Json = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {}, "tool_use_id": "t1"}
    asks = "message", {"type": "control_request", "request_id": "r", "request": request}
    kind, body = result("out")
    began, *ended = updates(asks, asks, (kind, {**body, "parent_tool_use_id": "agent"}))
    assert (began["sessionUpdate"], began["toolCallId"], began["status"]) == ("tool_call", "t1", "pending")
    assert ended == [{"sessionUpdate": "tool_call_update", "toolCallId": "t1", "status": "completed"}]


RULE = {"type": "addRules", "behavior": "allow", "rules": [{"toolName": "Bash", "ruleContent": "make:*"}]}


def mode(name: str) -> Json:
    return {"type": "setMode", "mode": name}


@pytest.mark.parametrize(
    ("request_", "offered"),
    [
        (asked("Bash", {"command": "make"}, RULE), ["allow_once", "allow_always", "reject_once", "reject_always"]),
        (asked("Bash", {"command": "make"}), ["allow_once", "reject_once"]),
        (asked("Edit", {"file_path": "/a"}, mode("acceptEdits")), ["allow_once", "allow_always", "reject_once"]),
        (asked("ExitPlanMode", {"plan": "p"}, mode("acceptEdits"), mode("default")),
         ["allow_always", "allow_once", "reject_once"]),
        (asked("EnterPlanMode", {}), ["allow_once", "reject_once"]),
    ],
    ids=["a rule", "no rule", "a mode", "a plan", "planning"],
)  # fmt: skip
def test_a_question_offers_the_answers_that_ccb_has(request_: ControlRequest, offered: list[str]) -> None:
    assert [each.kind for each in choices(request_).values()] == offered


def test_always_is_kept_for_the_project_and_never_is_a_rule_of_the_session() -> None:
    found = choices(asked("Bash", {"command": "make"}, RULE))
    assert "make *" in found["allow_always"].name
    assert found["allow_always"].answer["updatedPermissions"] == [{**RULE, "destination": "localSettings"}]
    assert found["reject_always"].denies == [{**RULE, "behavior": "deny", "destination": "session"}]
    assert found["reject_always"].answer["behavior"] == "deny"


@pytest.mark.parametrize(("notices", "kind"), [(True, "notice"), (False, "agent_message_chunk")])
def test_a_warning_is_a_notice_or_a_line_of_the_conversation(notices: bool, kind: str) -> None:
    client = editor({"session": {"notices": {}} if notices else {}})
    told = AcpUpdates(INFO, client).notice("warning", "Look out.\nMore.")
    assert [each["sessionUpdate"] for each in told] == [kind]
