"""What agents say in ACP, in public messages, and the other way round."""

from __future__ import annotations

from pathlib import Path

import pytest

from ccb.remote.agent.turn_state import ProgramChoice
from ccb.remote.foreign import acp_translation as translation
from ccb.tunnel.wire.control_protocol import ToolPermission
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.known_agents import environment_of, foreign_agent, options_without_effect
from ccb.tunnel.wire.session_options import SessionOptions

_TWO = [{"type": "diff", "path": "/p/a", "oldText": "a", "newText": "b"},
        {"type": "diff", "path": "/p/a", "oldText": "c", "newText": "d"},
        {"type": "diff", "path": "/p/z", "oldText": "", "newText": "e"}]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "name", "given"),
    [
        ({"kind": "execute", "title": "`make  test`"}, "Bash", {"command": "make test", "description": "make test"}),
        ({"kind": "execute", "rawInput": {"command": ["ls", "a b"]}}, "Bash", {"command": "ls 'a b'"}),
        ({"kind": "read", "locations": [{"path": "/p/a", "line": 7}]}, "Read", {"file_path": "/p/a", "offset": 7}),
        ({"kind": "read", "title": "all"}, "Read", {"query": "all"}),
        ({"kind": "edit", "content": _TWO[:1]}, "Edit", {"file_path": "/p/a", "old_string": "a", "new_string": "b"}),
        ({"kind": "edit", "content": [{**_TWO[0], "oldText": None}]}, "Write", {"file_path": "/p/a", "content": "b"}),
        ({"kind": "edit", "content": _TWO}, "MultiEdit", {"file_path": "/p/a"}),
        ({"kind": "fetch", "rawInput": {"url": "http://x"}}, "WebFetch", {"url": "http://x"}),
        ({"kind": "switch_mode", "rawInput": {"plan": "1."}}, "ExitPlanMode", {"plan": "1."}),
        ({"kind": "search", "rawInput": {"pattern": "x"}, "title": "t"}, "Search", {"pattern": "x"}),
        ({"name": "my_tool", "title": "T", "rawInput": {"n": 1}}, "my_tool", {"query": "T", "n": 1}),
        ({"kind": "\x1b[2J", "name": 7, "title": None, "rawInput": "x", "content": 3}, "Tool", {"query": ""}),
    ],
)
def test_a_call_is_shown_as_the_tool_that_it_is_like(call: Json, name: str, given: Json) -> None:
    found, tool_input = translation.tool_use(call)
    assert (found, {**tool_input, **given}) == (name, tool_input)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ({"content": [{"type": "content", "content": {"type": "text", "text": "ok"}}]}, "ok"),
        ({"content": _TWO}, "Also changed: /p/z"),
        ({"rawOutput": {"n": [1]}}, '{"n":[1]}'),
        ({"content": [{"type": "content", "content": {"type": "resource_link", "uri": "file:///a"}}]}, "file:///a"),
        ({}, ""),
    ],
)
def test_a_result_holds_what_a_call_brought(call: Json, text: str) -> None:
    assert translation.result_content(call, "", 0) == text


@pytest.mark.parametrize(
    ("offered", "allow", "option"),
    [
        (("allow_once", "reject_once"), True, "allow_once"),
        (("allow_always", "reject_always"), True, None),  # nobody has granted more than once
        (("allow_once", "reject_always"), False, None),
        ((), True, None),
    ],
)
def test_an_agent_is_told_no_more_than_the_person_has_said(offered: list[str], allow: bool, option: str | None) -> None:
    options = [{"optionId": kind, "kind": kind, "name": kind} for kind in offered]
    chosen = translation.chosen_option(options, ToolPermission(allow))
    assert chosen == ({"outcome": "selected", "optionId": option} if option else {"outcome": "cancelled"})


def test_only_edits_inside_of_the_session_are_allowed_by_accept_edits(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("/etc")

    def answer(kind: str, *names: str) -> bool | None:
        call = {"kind": kind, "locations": [{"path": str(tmp_path / each)} for each in names]}
        return translation.unasked_answer("acceptEdits", call, [str(tmp_path)])

    assert answer("edit", "a", "new/b") is True
    assert [answer("edit", "a", "../b"), answer("edit", "out/passwd"), answer("edit"), answer("execute", "a")] == [
        None
    ] * 4


@pytest.mark.parametrize(
    ("answer", "values", "option"),
    [
        ({"models": {"currentModelId": "a", "availableModels": [{"modelId": "a", "name": "A"}]}}, {"a": "A"}, ""),
        ({"configOptions": [{"id": "m", "category": "model", "currentValue": "a", "options":
            [{"group": "g", "options": [{"value": "a", "name": "A"}, {"value": "b-2", "name": "Big"}]}]}]},
         {"a": "A", "b-2": "Big"}, "m"),
    ],
)  # fmt: skip
def test_models_are_a_config_option_or_the_older_field(answer: Json, values: Json, option: str) -> None:
    choice = translation.offered(answer, "model")
    assert (choice.current, dict(choice.values), choice.option) == ("a", values, option)
    assert choice.find("A") == "a" and choice.find("none") == "" and choice.find("b2") == ("b-2" if option else "")


@pytest.mark.parametrize(
    ("text", "name", "argv", "streams_json"),
    [
        ("gemini", "gemini", ("gemini", "--acp"), False),
        ("/opt/gemini --acp --debug", "gemini", ("/opt/gemini", "--acp", "--debug"), False),
        ("npx my-agent --acp", "my-agent", ("npx", "my-agent", "--acp"), False),
        ("stream-json:/opt/claude", "claude", ("/opt/claude", "--print"), True),
    ],
)
def test_an_agent_is_known_by_name_or_command_line(
    text: str, name: str, argv: tuple[str, ...], streams_json: bool
) -> None:
    agent = foreign_agent(text)
    assert (agent.name, agent.argv[: len(argv)], agent.streams_json) == (name, argv, streams_json)
    led = environment_of(agent, "http://127.0.0.1:1/t", trusted=False)
    assert any(value.startswith("http://127.0.0.1:1/t") for value in led.values())
    assert not any("127.0.0.1" in value for value in environment_of(agent, "", trusted=True).values())


@pytest.mark.parametrize(
    ("offered", "modes"),
    [
        (  # Codex: in "agent" a model reviews its commands in the person's place
            ["read-only", "workspace-write", "agent", "agent-full-access"],
            ["read-only", "workspace-write", "read-only", "agent-full-access"],
        ),
        (["default", "auto-edit", "plan", "yolo"], ["default", "auto-edit", "plan", "yolo"]),  # Qwen Code
        (["auto", "approve", "smart_approve", "chat"], ["approve", "", "", ""]),  # Goose
        (["build", "plan"], ["build", "", "plan", ""]),  # OpenCode
    ],
)
def test_the_mode_of_an_agent_asks_for_no_less_than_that_of_the_session(offered: list[str], modes: list[str]) -> None:
    choice = ProgramChoice(offered[0], {each: each for each in offered})
    session = ("default", "acceptEdits", "plan", "bypassPermissions")
    assert [translation.agent_mode(mode, choice) for mode in session] == modes


def test_options_that_an_agent_does_not_take_are_named() -> None:
    options = SessionOptions(max_turns=3, effort="high", model="m", max_budget_usd=1.0)
    assert options_without_effect(foreign_agent("gemini"), options) == ["--max-turns", "--effort"]
    assert options_without_effect(foreign_agent("claude"), options) == ["--effort"]
    assert "--max-budget-usd" in options_without_effect(foreign_agent("copilot"), options), "it has its own login"
