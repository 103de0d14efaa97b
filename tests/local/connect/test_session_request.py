"""What a connection asks the worker for: the session, and its options from flags and settings."""

from __future__ import annotations

import pytest

from ccb.local.command_line.parser import parse_arguments
from ccb.local.config.settings import RuleSettings, Settings
from ccb.local.connect.session_request import (
    counted_session,
    options_for_existing,
    reconnect_seconds,
    session_options,
    session_parameters,
)
from ccb.tunnel.errors import UsageError

NAMED = {"named": True}
NEW = "0a1b2c3d-1111-4222-8333-444455556666"


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
    plain = session_options(parse_arguments(["ssh", "h", "-p", "x"]), settings)
    assert (plain.model, plain.permission_mode, plain.permission_prompts) == ("haiku", "plan", "none")
    argv = ["ssh", "h", "--model", "opus", "--dangerously-skip-permissions", "--allowedTools=LS"]
    flagged = session_options(parse_arguments(argv), settings)
    assert (flagged.model, flagged.permission_mode, flagged.allow_bypass) == ("opus", "bypassPermissions", True)
    assert (flagged.allowed_tools, flagged.disallowed_tools) == (["Read", "LS"], ["Write"])


def test_the_sandbox_of_a_new_session_is_the_flag_or_the_setting_and_an_existing_one_keeps_its_own() -> None:
    settings = Settings(sandbox="workspace")
    for argv, wanted in (
        ([], ("workspace", False)),
        (["--sandbox", "off"], ("off", False)),
        (["--sandbox", "workspace", "--allow-net"], ("workspace", True)),
    ):
        options = session_options(parse_arguments(["ssh", "h", *argv]), settings)
        assert (options.sandbox, options.allow_net) == wanted
    for argv, given in (([], None), (["--sandbox", "read-only"], "read-only"), (["--sandbox", "off"], "off")):
        arguments = parse_arguments(["ssh", "h", "-c", *argv])
        assert options_for_existing(arguments, session_options(arguments, settings)).get("sandbox") == given
    with pytest.raises(UsageError, match="--allow-net belongs to --sandbox workspace"):
        parse_arguments(["ssh", "h", "--allow-net", "--sandbox", "off"])


def test_settings_do_not_change_the_model_of_an_existing_session() -> None:
    settings = Settings(model="haiku", permissionMode="plan")
    for argv, wanted in (
        (["--continue"], {}),
        (["--continue", "--model", "opus"], {"model": "opus"}),
        (["--continue", "--permission-mode", "default"], {"permission_mode": "default"}),
    ):
        arguments = parse_arguments(["ssh", "h", *argv])
        given = options_for_existing(arguments, session_options(arguments, settings))
        assert {name: given[name] for name in ("model", "permission_mode") if name in given} == wanted


def test_a_host_does_not_choose_whose_budget_it_spends() -> None:
    cases: tuple[tuple[dict[str, object], str, str], ...] = (
        ({"session": NEW}, NEW, NEW),
        ({"session": NEW[:4], "create": False}, NEW, NEW),
        ({"continue": True}, NEW, NEW),
        ({"session": NEW}, "another", NEW),
    )
    for asked, said, counted in cases:
        assert counted_session(asked, said) == counted


def test_a_headless_run_gives_up_sooner() -> None:
    assert reconnect_seconds(parse_arguments(["ssh", "h"]), Settings(graceHours=2)) == 7200
    assert reconnect_seconds(parse_arguments(["ssh", "h", "-p", "x"]), Settings(graceHours=2)) == 600
    assert reconnect_seconds(parse_arguments(["ssh", "h", "--reconnect-timeout", "5"]), Settings()) == 5


def test_a_strict_run_leaves_the_servers_of_the_project_out_also_of_a_session_that_had_them() -> None:
    for argv, counts in (([], True), (["--strict-mcp-config"], False)):
        arguments = parse_arguments(["ssh", "h", *argv])
        options = session_options(arguments, Settings())
        assert options.project_mcp is counts
        assert options_for_existing(arguments, options)["project_mcp"] is counts
