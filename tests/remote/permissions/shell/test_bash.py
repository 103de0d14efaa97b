"""Command lines that try to get round the rules, and the properties that hold for every line."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.remote.permissions.corpus.rows import cases
from tests.support.worker.permission_desk import Desk, bash

from ccb.remote.permissions.rules import Behavior

ALLOW, ASK, DENY = Behavior.ALLOW, Behavior.ASK, Behavior.DENY


@pytest.mark.parametrize(
    "command",
    cases("reading elsewhere with bash asks"),
)
def test_reading_elsewhere_with_bash_asks(desk: Desk, command: str) -> None:
    assert bash(desk.engine(), command).behavior is ASK


@pytest.mark.parametrize(
    "command",
    cases("reading here does not"),
)
def test_reading_here_does_not(desk: Desk, command: str) -> None:
    assert bash(desk.engine(), command).behavior is ALLOW


GIT = "Bash(git status *) Bash(git log *) Bash(ls *) Bash(echo *) Bash(cat *) Bash(npm test) Bash(find *) Bash(xargs *)"


@pytest.mark.parametrize(
    "command",
    [*cases("no way round the rules"), "ls\xa0&& rm x", "ls;\u2003rm x"],
    ids=ascii,
)
def test_no_way_round_the_rules(desk: Desk, command: str) -> None:
    assert bash(desk.engine(allowed=GIT), command).behavior is ASK


@pytest.mark.parametrize(
    "command",
    cases("what the rules do allow"),
)
def test_what_the_rules_do_allow(desk: Desk, command: str) -> None:
    assert bash(desk.engine(allowed=GIT), command).behavior is ALLOW


@pytest.mark.parametrize(
    "command",
    cases("a deny rule is found wherever the command hides"),
)
@pytest.mark.parametrize("mode", ["default", "bypassPermissions", "acceptEdits"])
def test_a_deny_rule_is_found_wherever_the_command_hides(desk: Desk, mode: str, command: str) -> None:
    assert bash(desk.engine(mode, allowed="Bash", disallowed="Bash(rm *)"), command).behavior is DENY


@pytest.mark.parametrize("command", ["find . -exec " * 1_400 + "rm {} +", "xargs " * 3_000 + "rm"])
@pytest.mark.parametrize("mode", ["default", "bypassPermissions"])
def test_commands_that_start_each_other_too_deeply_are_asked_about(desk: Desk, mode: str, command: str) -> None:
    assert bash(desk.engine(mode, allowed="Bash", disallowed="Bash(rm *)"), command).behavior is ASK
    assert bash(desk.engine("default"), command).behavior is ASK


def test_file_rules_hold_for_bash_too(desk: Desk) -> None:
    engine = desk.engine("bypassPermissions", disallowed="Read(src/**) Edit(a.txt)")
    for command in cases("file rules hold for bash too"):
        assert bash(engine, command).behavior is DENY, command
    for command in ("echo x > a.txt", "rm a.txt", "tee ./a.txt", "cat x >> src/../a.txt"):
        assert bash(engine, command).behavior is DENY, command
    assert bash(engine, "cat a.txt").behavior is ALLOW
    assert bash(desk.engine("bypassPermissions", disallowed="Edit"), "echo x > y").behavior is DENY


def test_paths_count_from_where_the_shell_is(desk: Desk) -> None:
    engine = desk.engine("acceptEdits", disallowed="Read(src/key)")
    inside, outside = str(desk.cwd / "src"), str(desk.root / "other")
    assert bash(engine, "cat ../a.txt", shell_cwd=inside).behavior is ALLOW
    assert bash(engine, "cat ../a.txt").behavior is ASK
    assert bash(engine, "cat key", shell_cwd=inside).behavior is DENY
    for command in ("ls", "cat c", "echo x > c", "rg x", "git log", "touch c"):
        assert bash(engine, command, shell_cwd=outside).behavior is ASK, command
    assert bash(engine, "pwd; echo x", shell_cwd=outside).behavior is ALLOW


def test_git_in_a_bare_repository_asks(desk: Desk) -> None:
    """Its configuration, which the agent could have written as plain files, starts programs."""
    (desk.cwd / "HEAD").write_text("ref: refs/heads/main\n")
    (desk.cwd / "objects").mkdir()
    (desk.cwd / "refs").mkdir()
    assert bash(desk.engine(), "git status").behavior is ASK
    assert bash(desk.engine(), "cd sub && git status").behavior is ASK


PARTS = cases("parts")
SEPARATORS = ["; ", " && ", " || ", " | ", " & ", "\n"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.sampled_from(PARTS), st.sampled_from(SEPARATORS)), min_size=1, max_size=4),
    st.sampled_from(["default", "acceptEdits"]),
)
def test_a_compound_command_is_allowed_only_if_each_part_is(
    tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[str, str]], mode: str
) -> None:
    engine = Desk(tmp_path_factory.mktemp("desk")).engine(mode, allowed="Bash(git push *) Bash(npm test)")
    line = "".join(part + separator for part, separator in parts[:-1]) + parts[-1][0]
    if bash(engine, line).behavior is ALLOW:
        assert [part for part, _ in parts if bash(engine, part).behavior is not ALLOW] == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sampled_from(PARTS), max_size=3),
    st.sampled_from(SEPARATORS),
    st.sampled_from(["rm x", "git push -f", "(rm x)", "$(rm x)", "if a; then rm x; fi"]),
    st.sampled_from(["default", "acceptEdits", "plan", "bypassPermissions"]),
    st.sampled_from(["", "Bash", "Bash(rm *) Bash(git *)", "Bash(rm x)"]),
)
def test_deny_always_wins(
    tmp_path_factory: pytest.TempPathFactory, around: list[str], separator: str, denied: str, mode: str, allowed: str
) -> None:
    engine = Desk(tmp_path_factory.mktemp("desk")).engine(
        mode, allowed=allowed, disallowed="Bash(rm *) Bash(git push *)"
    )
    for line in (separator.join([denied, *around]), separator.join([*around, denied])):
        assert bash(engine, line).behavior is DENY


def test_of_the_65_everyday_commands_of_a_session_at_most_30_ask(desk: Desk) -> None:
    subprocess.run(["git", "init", "-q", str(desk.cwd)], check=True)
    engine = desk.engine()
    free, asking = cases("everyday commands without a question"), cases("everyday commands with a question")
    assert (len([*free, *asking]), len(asking) <= 30) == (65, True)
    asked = [command for command in [*free, *asking] if bash(engine, command).behavior is ASK]
    assert [command for command in asked if command not in asking] == []
