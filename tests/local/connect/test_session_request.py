"""What a connection asks the worker for: the session, and its options from flags and settings."""

from __future__ import annotations

import json
from dataclasses import fields
from operator import attrgetter
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from ccb.local.command_line.arguments import OPTIONS
from ccb.local.command_line.parser import parse_arguments
from ccb.local.config.settings import MANAGED, RuleSettings, Settings, SettingsChoice, SettingsLayer
from ccb.local.config.settings_loading import load_settings
from ccb.local.connect.session_request import (
    counted_session,
    options_for_existing,
    reconnect_seconds,
    session_options,
    session_parameters,
)
from ccb.tunnel.errors import UsageError
from ccb.tunnel.wire.session_options import SessionOptions

NAMED = {"named": True}
NEW = "0a1b2c3d-1111-4222-8333-444455556666"


COMPUTED = {
    *("model", "permission_mode", "permission_prompts", "allow_bypass", "system_prompt", "append_system_prompt"),
    *("partial_messages", "api_key_source", "client", "host", "setup", "left_out", "task_tools", "foreign_agent"),
    *("own_agents", "own_files", "client_mcp", "laptop_mcp", "fallback_model", "max_output_tokens", "defer_above"),
    *("model_facts", "thinking_models", "model_aliases", "small_model", "compact_model"),
    *("web_allow_private", "background_after_ms", "background_wait_ms", "max_thinking_tokens", "titles"),
}
"""Options of a session that no row of the command line says alone."""

OF_CLIENTS = {
    *("settings", "append_agent_prompt", "client_hooks", "client_mcp_configs", "skills", "tool_aliases"),
    *("plan_instructions", "static_prompt"),
}
"""Options that the host or the client's `initialize` add."""


def options_of(*argv: str, settings: Settings | None = None) -> SessionOptions:
    return session_options(parse_arguments(["ssh", "h", *argv]), settings or Settings())


def test_each_option_of_a_session_is_declared_computed_or_set_by_a_client() -> None:
    declared = [each.wire for each in OPTIONS if each.wire]
    assert sorted([*declared, *COMPUTED, *OF_CLIENTS]) == sorted(each.name for each in fields(SessionOptions))


def test_a_row_with_a_setting_takes_the_same_values_as_the_setting() -> None:
    for row in OPTIONS:
        if row.setting:
            attrgetter(row.setting)(Settings())
        for literal in filter(get_args, get_args(get_type_hints(Settings).get(row.setting))):
            assert [row.value(each) for each in get_args(literal)] == [*get_args(literal)], row.names
            with pytest.raises(UsageError, match=f"Allowed choices are {', '.join(get_args(literal))}"):
                row.value("another")


@pytest.mark.parametrize("name", ["sandbox", "web"])
def test_a_policy_outranks_a_flag_which_outranks_a_setting_which_outranks_the_default(name: str) -> None:
    weak, strong = {"sandbox": ("off", "workspace"), "web": ("laptop", "host")}[name]
    policy = SettingsLayer(MANAGED, "policy", "", {name: weak})

    def value(settings: Settings, *argv: str) -> object:
        return getattr(options_of("-p", "x", *argv, settings=settings), name)

    given: dict[str, Any] = {name: weak}
    assert value(Settings()) == getattr(SessionOptions(), name)
    assert value(Settings(**given)) == weak
    assert value(Settings(**given), f"--{name}", strong) == strong
    assert value(Settings(**given, layers=(policy,)), f"--{name}", strong) == weak


async def chosen() -> str:
    return "c0ffee"


@pytest.mark.parametrize(
    ("argv", "wanted"),
    [
        ([], {"session": NEW, "create": True, "fresh": True}),
        (["--continue"], {"continue": True, **NAMED}),
        (["--continue", "--fork-session"], {"continue": True, "fork": True, "session": NEW, "fresh": True, **NAMED}),
        (["--resume", "3f2a"], {"session": "3f2a", "create": False, **NAMED}),
        (["--resume"], {"session": "c0ffee", "create": False}),
        (["--resume", "3f2a", "--fork-session"], {"fork_of": "3f2a", "session": NEW, "fresh": True, **NAMED}),
    ],
)
async def test_the_command_line_says_which_session(argv: list[str], wanted: dict[str, object]) -> None:
    found = await session_parameters(parse_arguments(["ssh", "h:/srv", *argv]), NEW, Settings(), chosen)
    assert found == {"cwd": "/srv", "shell": True, **wanted}


@pytest.mark.parametrize(
    ("argv", "shell", "named"),
    [
        (["-c"], False, False),
        (["/", "-c"], False, True),
        (["ssh", "h", "-c"], True, False),
        (["ssh", "h:/srv", "-c", "--local"], False, True),
        (["ssh", "/srv", "-c", "--transport", "docker exec -i web"], True, True),
    ],
)
async def test_the_worker_is_told_whether_a_directory_was_named_and_whether_to_ask_the_shell(
    argv: list[str], shell: bool, named: bool
) -> None:
    found = await session_parameters(parse_arguments(argv), NEW, Settings(), chosen)
    assert (found.get("shell", False), found.get("named", False)) == (shell, named)


async def test_only_times_that_the_settings_name_go_to_the_host() -> None:
    settings = Settings(graceHours=2, idleMinutes=3, given=frozenset({"graceHours", "idleMinutes"}))
    found = await session_parameters(parse_arguments(["ssh", "h", "-c"]), NEW, settings, chosen)
    assert (found["grace_s"], found["idle_s"]) == (7200, 180)


def test_a_flag_outranks_the_settings_and_rules_add_up() -> None:
    settings = Settings(model="haiku", permissionMode="plan", permissions=RuleSettings(allow=["Read"], deny=["Write"]))
    plain = options_of("-p", "x", settings=settings)
    assert (plain.model, plain.permission_mode, plain.permission_prompts) == ("haiku", "plan", "none")
    flagged = options_of("--model=opus", "--dangerously-skip-permissions", "--allowedTools=LS", settings=settings)
    assert (flagged.model, flagged.permission_mode, flagged.allow_bypass) == ("opus", "bypassPermissions", True)
    assert (flagged.allowed_tools, flagged.disallowed_tools) == (["Read", "LS"], ["Write"])


def test_the_sandbox_of_a_new_session_is_the_flag_or_the_setting_and_an_existing_one_keeps_its_own() -> None:
    given = [[], ["--sandbox", "off"], ["--sandbox", "workspace", "--allow-net"]]
    found = [options_of(*argv, settings=Settings(sandbox="workspace")) for argv in given]
    wanted = [("workspace", False), ("off", False), ("workspace", True)]
    assert [(each.sandbox, each.allow_net) for each in found] == wanted
    with pytest.raises(UsageError, match="--allow-net belongs to --sandbox workspace"):
        parse_arguments(["ssh", "h", "--allow-net", "--sandbox", "off"])


@pytest.mark.parametrize(
    ("argv", "role", "foreign"),
    [
        (["--agent", "reviewer"], "reviewer", ""),
        (["--agent", "gemini"], "", "gemini"),
        (["--agent", "my-agent --acp"], "", "my-agent --acp"),
        (["--remote-bin", "/opt/my claude"], "", "stream-json:'/opt/my claude'"),
    ],
)
def test_an_agent_is_one_of_ccb_or_one_of_others(argv: list[str], role: str, foreign: str) -> None:
    options = options_of(*argv, settings=Settings(model="opus"))
    assert (options.role, options.foreign_agent, options.model) == (role, foreign, None if foreign else "opus")
    existing = options_for_existing(parse_arguments(["ssh", "h", *argv]), Settings(), options)
    assert existing.get("foreign_agent", "") == foreign
    from_settings = options_of(settings=Settings(agent="gemini"))
    assert (from_settings.role, from_settings.foreign_agent) == ("", "gemini")
    assert "foreign_agent" not in options_for_existing(parse_arguments(["ssh", "h"]), Settings(), from_settings)


def test_the_command_line_of_an_agent_must_be_readable() -> None:
    with pytest.raises(UsageError, match="--agent my 'agent: No closing quotation"):
        options_of("--agent", "my 'agent")


def test_settings_do_not_change_an_existing_session() -> None:
    settings = Settings(model="haiku", permissionMode="plan", sandbox="workspace")
    for flag, name, value in (
        ([], "", ""),
        (["--model", "opus"], "model", "opus"),
        (["--permission-mode", "default"], "permission_mode", "default"),
        (["--sandbox", "read-only"], "sandbox", "read-only"),
        (["--sandbox", "off"], "sandbox", "off"),
    ):
        arguments = parse_arguments(["ssh", "h", "--continue", *flag])
        given = options_for_existing(arguments, settings, session_options(arguments, settings))
        found = {each: given[each] for each in ("model", "permission_mode", "sandbox") if each in given}
        assert found == ({name: value} if name else {})


@pytest.mark.parametrize("by", [{"permissionMode": "plan"}, {"permissions": {"defaultMode": "plan"}}])
def test_no_flag_changes_what_a_policy_sets_also_not_in_an_existing_session(
    by: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "policy.json"
    path.write_text(json.dumps({"model": "haiku", "sandbox": "read-only", "agent": "reviewer", **by}))
    monkeypatch.setattr("ccb.local.config.settings.POLICY_FILES", (path,))
    mine = '{"model": "opus", "sandbox": "off", "permissionMode": "acceptEdits", "agent": "gemini"}'
    flags = ["--model", "opus", "--sandbox", "off", "--permission-mode", "acceptEdits", "--agent", "gemini"]
    settings = load_settings({}, SettingsChoice(user=False, flag=mine))
    for more in ([], ["--remote-bin", "/opt/claude"]):
        arguments = parse_arguments(["ssh", "h", *flags[: 6 if more else 8], *more])
        new = session_options(arguments, settings)
        assert (new.model, new.sandbox, new.permission_mode, new.foreign_agent) == ("haiku", "read-only", "plan", "")
        given = options_for_existing(arguments, settings, new)
        assert (given["model"], given["sandbox"], given["permission_mode"]) == ("haiku", "read-only", "plan")
        assert "foreign_agent" not in given


def test_a_host_does_not_choose_whose_budget_it_spends() -> None:
    asked: list[dict[str, object]] = [{"session": NEW}, {"session": NEW[:4], "create": False}, {"continue": True}]
    assert {counted_session(each, NEW) for each in asked} == {NEW}
    assert {counted_session({"session": NEW}, said) for said in ("another", f"{NEW}x")} == {NEW}


def test_a_headless_run_gives_up_sooner() -> None:
    assert reconnect_seconds(parse_arguments(["ssh", "h"]), Settings(graceHours=2)) == 7200
    assert reconnect_seconds(parse_arguments(["ssh", "h", "-p", "x"]), Settings(graceHours=2)) == 600
    assert reconnect_seconds(parse_arguments(["ssh", "h", "--reconnect-timeout", "5"]), Settings()) == 5


def test_a_strict_run_leaves_the_servers_of_the_project_out_also_of_a_session_that_had_them() -> None:
    for argv, counts in (([], True), (["--strict-mcp-config"], False)):
        arguments = parse_arguments(["ssh", "h", *argv])
        options = session_options(arguments, Settings())
        assert options.project_mcp is counts
        assert options_for_existing(arguments, Settings(), options)["project_mcp"] is counts
