"""The command lines that the official SDKs write, and CCB_REMOTE."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ccb.local.command_line import option_values
from ccb.local.command_line.parser import parse_arguments
from ccb.local.config.settings import Settings
from ccb.local.connect.session_request import session_options
from ccb.tunnel.errors import UsageError
from ccb.tunnel.wire.model_facts import EFFORTS
from ccb.tunnel.wire.session_options import SessionOptions

UUID = "0a1b2c3d-1111-4222-8333-444455556666"
STREAMS = ["--output-format", "stream-json", "--verbose", "--input-format", "stream-json"]
SERVERS = '{"mcpServers": {"calc": {"type": "sdk", "name": "calc"}, "files": {"command": "x"}}}'

PYTHON = [
    *("--output-format", "stream-json", "--verbose", "--append-system-prompt", "APP", "--tools", "Bash,Read"),
    *("--allowedTools", "Bash(ls:*),Read,mcp__calc__add", "--max-turns", "3", "--max-budget-usd", "1.0"),
    *("--disallowedTools", "Write", "--model", "opus", "--fallback-model", "haiku", "--betas", "context-1m-2025-08-07"),
    *("--permission-prompt-tool", "stdio", "--permission-mode", "acceptEdits", f"--resume={UUID}"),
    *("--settings", '{"a": 1}', "--add-dir", "/tmp", "--add-dir", "/var", "--mcp-config", SERVERS),
    *("--include-partial-messages", "--include-hook-events", "--strict-mcp-config", "--fork-session"),
    *("--setting-sources=user,project", "--plugin-dir", "/tmp/plug", "--foo", "bar", "--baz"),
    *("--max-thinking-tokens", "100", "--effort", "low", "--json-schema", '{"type": "object"}'),
    *("--input-format", "stream-json"),
]
NPM = [
    *("--output-format", "stream-json", "--verbose", "--input-format", "stream-json", "--max-thinking-tokens=100"),
    *("--effort=low", "--max-turns=3", "--max-budget-usd=1", "--model=opus", "--betas=context-1m-2025-08-07"),
    *('--json-schema={"type": "object"}', "--permission-prompt-tool=stdio", "--allowedTools=Bash(ls:*),Read"),
    *("--disallowedTools=Write", "--tools=Bash,Read", "--mcp-config", SERVERS, "--setting-sources=user,project"),
    *("--strict-mcp-config", "--permission-mode=acceptEdits", "--allow-dangerously-skip-permissions"),
    *("--fallback-model=haiku", "--include-hook-events", "--include-partial-messages", "--add-dir=/tmp"),
    *("--add-dir=/var", "--plugin-dir=/tmp/plug", f"--resume={UUID}", "--fork-session", "--no-session-persistence"),
    *("--foo", "bar", "--baz", "--settings", '{"a": 1}', "--append-system-prompt=APP"),
]


def options_of(*argv: str) -> SessionOptions:
    return session_options(parse_arguments([*argv, *STREAMS]), Settings())


def test_names_of_the_family_are_understood_too() -> None:
    arguments = parse_arguments(["-p", "hi", "--allow", "Bash(ls *)", "--deny=Read", "--bare"])
    assert (arguments.permissions.allowed_tools, arguments.permissions.disallowed_tools) == (("Bash(ls *)",), ("Read",))
    assert (arguments.sdk.setting_sources, arguments.sdk.strict_mcp_config, option_values.EFFORTS) == (
        "",
        True,
        EFFORTS,
    )
    assert parse_arguments(["-p", "hi", "--bare", "--setting-sources", "user"]).sdk.setting_sources == "user"


@pytest.mark.parametrize("argv", [PYTHON, NPM], ids=["python", "npm"])
def test_the_command_lines_of_the_official_clients_are_understood(argv: list[str]) -> None:
    arguments = parse_arguments(argv)
    assert arguments.headless and arguments.prompt is None and arguments.session.resume == UUID
    assert arguments.sdk.setting_sources == "user,project" and arguments.sdk.settings == '{"a": 1}'
    options = session_options(arguments, Settings())
    assert (options.tools, options.client_mcp) == (["Bash", "Read"], ["calc"])
    assert (options.json_schema, options.max_budget_usd) == ({"type": "object"}, 1.0)
    assert (options.fallback_model, options.effort, options.max_thinking_tokens) == ("haiku", "low", 100)
    assert (options.permission_prompts, options.append_system_prompt) == ("stdio", "APP")
    assert options.include_hook_events and options.partial_messages
    assert options.from_json(options.to_json()) == options
    assert options.betas == ["context-1m-2025-08-07"] and options.forget == ("--no-session-persistence" in argv)
    assert options.plugin_dirs == ["/tmp/plug"]
    more = parse_arguments([*argv, f"--resume-session-at={UUID}", f"--resume-drops-turn={UUID}", "--agent=critic"])
    assert more.session.drops_turn == UUID and session_options(more, Settings()).role == "critic"
    assert [hint for hint in arguments.hints if hint.startswith("unknown")] == [
        "unknown option '--foo' and its value 'bar' ignored",
        "unknown option '--baz' ignored",
    ]


def test_an_unknown_option_is_passed_over_only_in_a_run_of_json_messages() -> None:
    for given, said in (
        (["--new"], "unknown option '--new' ignored"),
        (["--new=a b"], "unknown option '--new' ignored"),
        (["--new", "a", "--verbose"], "unknown option '--new' and its value 'a' ignored"),
    ):
        assert parse_arguments([*given, *STREAMS]).hints == (said,)
        for formats in ([], STREAMS[:3]):
            with pytest.raises(UsageError, match="unknown option '--new'"):
                parse_arguments([*formats, "-p", *given])


def test_thinking_and_who_decides_on_permissions() -> None:
    def chosen(*argv: str) -> tuple[str, int | None, str | None, int | None]:
        options = options_of(*argv)
        return options.permission_prompts, options.max_thinking_tokens, options.thinking_display, options.task_budget

    assert chosen() == ("none", None, None, None)
    assert chosen("--thinking", "disabled", "--permission-prompt-tool", "stdio") == ("stdio", 0, None, None)
    assert chosen("--thinking=adaptive", "--thinking-display=omitted") == ("none", 31_999, "omitted", None)
    assert chosen("--max-thinking-tokens=5", "--thinking=enabled", "--task-budget=70000")[1:] == (5, None, 70_000)
    assert chosen("--permission-prompt-tool=mcp__guard__decide")[0] == "mcp__guard__decide"


@pytest.mark.parametrize(
    ("given", "characters"), [("", None), ("auto", None), ("true", 0), ("auto:5", 40_000), ("auto:x", None)]
)
def test_a_variable_for_tool_search_counts(given: str, characters: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENABLE_TOOL_SEARCH", given)
    assert options_of().defer_above == characters
    monkeypatch.setenv("ENABLE_TOOL_SEARCH", "false")
    assert (options_of().defer_above or 0) > 10**12


def test_variables_leave_out_instruction_files_and_built_in_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_CODE_DISABLE_CLAUDE_MDS", "1")
    monkeypatch.setenv("CLAUDE_AGENT_SDK_DISABLE_BUILTIN_AGENTS", "true")
    assert options_of().left_out == ["built_in_agents", "instructions"]
    assert session_options(parse_arguments([]), Settings()).left_out == ["instructions"], "a person keeps the agents"
    monkeypatch.setenv("CLAUDE_CODE_DISABLE_CLAUDE_MDS", "0")
    assert session_options(parse_arguments([]), Settings()).left_out == []


def test_tools_can_be_none_all_or_some() -> None:
    for argv in ([], ["--tools", "default"], ["--tools=default"]):
        assert options_of(*argv).tools is None
    assert options_of("--tools", "").tools == options_of("--tools=").tools == []
    assert options_of("--tools", "Bash", "Read").tools == ["Bash", "Read"]


@pytest.mark.parametrize(("given", "meant"), [("Nosuch", "See|says how"), ("bash", "Did you mean Bash")])
def test_a_tool_that_there_is_not_is_refused_or_told_to_a_program(given: str, meant: str) -> None:
    with pytest.raises(UsageError, match=f"--tools {given}: there is no tool of that name") as refused:
        parse_arguments(["-p", "hi", "--tools", f"Read,{given}"])
    assert re.search(meant, refused.value.do)
    hints = parse_arguments(["--tools", given, *STREAMS]).hints
    assert len(hints) == 1 and hints[0].startswith(f"--tools {given}: there is no tool of that name")
    assert parse_arguments(["-p", "hi", "--tools", "Read,mcp__later__tool,Skill,Agent,ToolSearch"]).hints == ()


@pytest.mark.parametrize("option", ["--model", "--fallback-model"])
@pytest.mark.parametrize(("given", "meant"), [("foo bar", "It is quick, default"), ("opsu", "Did you mean opus")])
def test_a_word_that_is_no_model_is_refused(option: str, given: str, meant: str) -> None:
    own = Settings(modelAliases={"quick": "openai/gpt-5-mini"})
    with pytest.raises(UsageError, match=f"'{given}' is no model") as refused:
        session_options(parse_arguments(["-p", "hi", option, given]), own)
    assert meant in refused.value.do
    for name, used in (("deepseek-chat", "deepseek-chat"), ("quick", "openai/gpt-5-mini")):
        options = session_options(parse_arguments(["-p", "hi", option, name]), own)
        assert used in (options.model, options.fallback_model)


def test_an_empty_system_prompt_is_one_and_a_file_may_hold_it(tmp_path: Path) -> None:
    (tmp_path / "prompt").write_text("from a file")
    assert options_of().system_prompt is None and options_of("--system-prompt", "").system_prompt == ""
    assert options_of("--system-prompt-file", str(tmp_path / "prompt")).system_prompt == "from a file"


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--json-schema", "[]"], "not a JSON object"),
        (["--agents", "{"], "not a JSON object"),
        (["--setting-sources", "user,root"], "Allowed choices are user, project, local"),
        (["--max-budget-usd", "0"], "must be more than 0"),
        (["--betas", "everything"], "ends with its date"),
        (["--thinking", "much"], "Allowed choices are adaptive, enabled, disabled"),
        (["--permission-prompt-tool", "guard"], "Allowed choices are stdio and mcp__SERVER__TOOL"),
        (["--mcp-config", "/nonexistent/mcp.json"], "it cannot be read"),
        (["--mcp-config", '{"mcpServers": {"a": 1}}'], "no object mcpServers"),
        (["--system-prompt-file", "/nonexistent/prompt"], "cannot be read"),
    ],
)
def test_a_wrong_value_is_refused(argv: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        options_of(*argv)


def test_ccb_remote_moves_a_session_to_a_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    moved = parse_arguments([*STREAMS, "--model", "opus"], remote="ann@devbox:/srv/app")
    target = moved.connection.target
    assert target is not None and (target.user, target.host) == ("ann", "devbox")
    assert (moved.command, moved.directory, moved.agent.model) == ("ssh", "/srv/app", "opus")
    assert parse_arguments(STREAMS, remote="devbox").directory == str(tmp_path)  # the same path on the host
    assert parse_arguments(["-p", "look"], remote="devbox").prompt == "look"
    assert parse_arguments(["--local", *STREAMS], remote="devbox").connection.target is None
    named = parse_arguments(["ssh", "other:/x"], remote="devbox").connection.target
    assert named is not None and named.host == "other"
