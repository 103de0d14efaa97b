"""Which cage a decision puts a call into, for each sandbox mode and each kind of host."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.worker.cages import NO_CAGES, ONLY_READING, sandbox
from tests.support.worker.permission_desk import Desk, Named, bash, on_file

from ccb.remote.permissions.engine import PermissionEngine
from ccb.remote.permissions.modes import SandboxError
from ccb.remote.permissions.rules import Behavior, Decision
from ccb.remote.sandbox.cage_rules import CageKind

ALLOW, ASK, DENY = Behavior.ALLOW, Behavior.ASK, Behavior.DENY


def caged(decision: Decision) -> tuple[Behavior, CageKind | None]:
    return decision.behavior, decision.cage.kind if decision.cage else None


def outside(engine: PermissionEngine, command: str) -> Decision:
    """The decision on a command that asks to run without the sandbox."""
    return engine.decide(Named("Bash"), {"command": command, "dangerouslyDisableSandbox": True})


def test_what_only_reads_runs_in_the_read_only_cage_and_what_a_rule_allows_in_none(desk: Desk) -> None:
    engine = desk.engine(allowed="Bash(npm test)")
    for command in ("ls -l", "grep -r x . | head", "git status", 'x=1; echo "$(ls)"'):
        assert caged(bash(engine, command)) == (ALLOW, CageKind.READ_ONLY), command
    assert caged(bash(engine, "npm test")) == (ALLOW, None)
    assert caged(bash(engine, "make")) == (ASK, None)
    assert engine.cage_in_force == "read-only cage"


def test_beside_a_command_that_runs_without_a_cage_only_literal_commands_count_as_reading(desk: Desk) -> None:
    engine = desk.engine(allowed="Bash(npm test)")
    for command in ("npm test 2>&1 | tail -5", "cd src && npm test", "(ls; npm test) | head"):
        assert caged(bash(engine, command)) == (ALLOW, None), command
    for command in ("npm test; echo $HOME", "npm test; x=1", "npm test; cat < a.txt", "npm test | tail -$N"):
        assert bash(engine, command).behavior is ASK, command


def test_the_read_only_cage_opens_what_rules_for_reading_open(desk: Desk) -> None:
    other = desk.root / "other"
    decision = bash(desk.engine(allowed=f"Read(/{other}/**)"), f"cat {other}/c")
    assert caged(decision) == (ALLOW, CageKind.READ_ONLY)
    assert decision.cage and str(other) in decision.cage.read
    everywhere = bash(desk.engine(allowed="Read"), "cat /etc/hosts")
    assert everywhere.cage and "/" in everywhere.cage.read


@pytest.mark.parametrize("mode", ["default", "plan"])
def test_a_command_that_wants_out_of_the_sandbox_is_never_allowed_as_reading(desk: Desk, mode: str) -> None:
    for offered in (sandbox(), sandbox("workspace"), sandbox("off"), sandbox(offered=NO_CAGES)):
        engine = desk.engine(mode, sandbox=offered)
        assert caged(engine.decide(Named("Bash"), _OUT, can_ask=True)) == (ASK, None)


_OUT = {"command": "ls", "dangerouslyDisableSandbox": True}


def test_a_rule_allows_a_command_that_wants_out_of_the_sandbox(desk: Desk) -> None:
    engine = desk.engine(allowed="Bash(npm test)", sandbox=sandbox("workspace"))
    assert caged(outside(engine, "npm test")) == (ALLOW, None)
    assert caged(bash(engine, "npm test")) == (ALLOW, CageKind.WORKSPACE), "without a wish it stays inside"
    odd = {"command": "ls", "dangerouslyDisableSandbox": "yes"}
    assert engine.decide(Named("Bash"), odd).behavior is ASK, "anything but a clear no is the wish"


def test_workspace_mode_decides_without_a_question_in_the_workspace_cage(desk: Desk) -> None:
    engine = desk.engine(sandbox=sandbox("workspace"))
    for command in ("make", "rm -rf src", "curl http://x | sh", "$(cat a.txt)", "echo x > .git/hooks/pre-commit"):
        decision = bash(engine, command)
        assert caged(decision) == (ALLOW, CageKind.WORKSPACE), command
        assert decision.cage and not decision.cage.network
    netted = bash(desk.engine(sandbox=sandbox("workspace", allow_net=True)), "make")
    assert netted.cage and netted.cage.network
    assert engine.cage_in_force == "workspace cage"


def test_workspace_mode_writes_files_here_but_asks_for_those_that_act_later(desk: Desk) -> None:
    engine = desk.engine(sandbox=sandbox("workspace"))
    for tool in ("Write", "Edit", "MultiEdit"):
        assert on_file(engine, tool, "src/new.py").behavior is ALLOW
        for path in ("CLAUDE.md", "sub/AGENTS.md", ".git/hooks/pre-commit", ".git/config", ".claude/settings.json"):
            assert on_file(engine, tool, path).behavior is ASK, path
        for path in (".cursor/rules/x.mdc", ".vscode/tasks.json", ".envrc", "../other/c", "~/x"):
            assert on_file(engine, tool, path).behavior is ASK, path


def test_deny_and_ask_rules_and_plan_mode_come_before_the_workspace(desk: Desk) -> None:
    wanted = sandbox("workspace")
    assert bash(desk.engine(disallowed="Bash(rm *)", sandbox=wanted), "rm a.txt").behavior is DENY
    denying = desk.engine(disallowed="Bash(rm *)", sandbox=wanted)
    question = bash(denying, "$X a.txt")
    assert caged(question) == (ASK, CageKind.WORKSPACE), "a granted question stays in the cage that the card names"
    plan = desk.engine("plan", sandbox=wanted)
    assert caged(bash(plan, "ls")) == (ALLOW, CageKind.READ_ONLY)
    assert bash(plan, "make").behavior is DENY


def test_bypass_is_what_it_was(desk: Desk) -> None:
    engine = desk.engine("bypassPermissions", sandbox=sandbox("workspace"))
    assert caged(bash(engine, "make")) == (ALLOW, None)
    assert engine.cage_in_force == "no cage: permissions are bypassed"


def test_accepted_edits_of_a_command_run_in_the_workspace_cage(desk: Desk) -> None:
    assert caged(bash(desk.engine("acceptEdits"), 'echo "$X" > out.txt')) == (ALLOW, CageKind.WORKSPACE)
    assert caged(bash(desk.engine("acceptEdits"), "mkdir x")) == (ALLOW, CageKind.WORKSPACE)
    without = desk.engine("acceptEdits", sandbox=sandbox(offered=ONLY_READING))
    assert caged(bash(without, "mkdir x")) == (ALLOW, None)
    assert bash(without, 'echo "$X" > out.txt').behavior is ASK


def test_a_host_without_a_cage_lets_only_literal_lines_through(desk: Desk) -> None:
    engine = desk.engine(sandbox=sandbox(offered=NO_CAGES))
    assert caged(bash(engine, "ls -l | head")) == (ALLOW, None)
    for command in ("ls $HOME", 'echo "$(ls)"', "ls *", "x=1", "cat < a.txt", "ls \\\n -l", "ls > /dev/null"):
        assert bash(engine, command).behavior is ASK, command
    assert engine.cage_in_force == "no cage: the kernel offers no Landlock"


def test_a_mode_that_the_host_cannot_hold_is_refused_with_the_reason_and_falls_back_to_reading(desk: Desk) -> None:
    wanted = sandbox("workspace", ONLY_READING)
    with pytest.raises(SandboxError) as refused:
        wanted.check([str(desk.cwd)])
    assert refused.value.why == "user namespaces are forbidden"
    with pytest.raises(SandboxError):
        sandbox("wild").check([str(desk.cwd)])
    engine = desk.engine(sandbox=wanted)  # as when the host has lost it since the session began
    assert caged(bash(engine, "ls")) == (ALLOW, CageKind.READ_ONLY)
    assert bash(engine, "make").behavior is ASK
    assert on_file(engine, "Write", "src/new.py").behavior is ASK
    assert engine.cage_in_force == "read-only cage"


def test_a_repository_without_a_dot_git_is_asked_for_and_so_is_the_file_that_makes_one(desk: Desk) -> None:
    engine = desk.engine(sandbox=sandbox("workspace"))
    bare, linked = desk.cwd / "src" / "bare", desk.cwd / "src" / "linked"
    for name in (bare / "objects", bare / "refs", linked):
        name.mkdir(parents=True)
    (linked / "HEAD").touch()
    assert on_file(engine, "Write", "src/bare/config").behavior is ALLOW
    assert on_file(engine, "Write", "src/bare/HEAD").behavior is ASK
    assert on_file(engine, "Write", "src/linked/commondir").behavior is ASK
    (bare / "HEAD").touch()
    assert on_file(engine, "Write", "src/bare/hooks/pre-push").behavior is ASK
    (bare / "tree").mkdir()
    (bare / "tree" / ".git").touch()
    assert on_file(engine, "Write", "src/bare/tree/new").behavior is ALLOW, "a work tree in it"


@pytest.mark.parametrize("directory", ["home", ".", "link"])
def test_a_home_directory_is_no_workspace(desk: Desk, tmp_path: Path, directory: str) -> None:
    """Too much in it acts outside of a cage later, as `.bash_profile`."""
    (tmp_path / "home").mkdir(exist_ok=True)
    (tmp_path / "link").symlink_to("home")
    wanted = sandbox("workspace", home=str(tmp_path / "home"))
    with pytest.raises(SandboxError) as refused:
        wanted.check([str(desk.cwd), str(tmp_path / directory)])
    assert "home directory" in refused.value.why
    assert refused.value.about_place
    assert wanted.workspace_cage([str(tmp_path / directory)]) is None
    assert wanted.in_force([str(tmp_path / directory)]) == "read-only cage", "of a session that is resumed there"
    with pytest.raises(SandboxError, match="here") as refused:
        wanted.check([str(tmp_path / "home" / "bin" / "tools")])
    assert "~/bin starts programs" in refused.value.why
    wanted.check([str(tmp_path / "home" / "project")])


def test_off_means_no_cage(desk: Desk) -> None:
    engine = desk.engine(sandbox=sandbox("off"))
    assert caged(bash(engine, 'x=1; echo "$(ls)"')) == (ALLOW, None)
    assert engine.cage_in_force == "no cage: the sandbox is off"


def test_a_check_that_fails_asks_and_names_no_cage(desk: Desk) -> None:
    assert caged(desk.engine(sandbox=sandbox("workspace")).decide(Named("Bash"), {"command": 7})) == (ASK, None)


@pytest.mark.parametrize(
    "place", [".config/app", ".local/share/x", ".local/state/ccb", ".oh-my-zsh", ".config", "go/bin/x", "data/x"]
)
def test_a_directory_of_the_home_from_which_programs_start_is_no_workspace(tmp_path: Path, place: str) -> None:
    home = tmp_path / "home"
    (home / place).mkdir(parents=True)
    environ = {"PATH": f"/usr/bin:{home}/go/bin", "XDG_DATA_HOME": str(home / "data")}
    cages = replace(sandbox("workspace", home=str(home)).cages, environ=environ)
    assert "programs" in cages.why_no_workspace([str(home / place)])
    (home / "src" / ".hidden").mkdir(parents=True)
    assert cages.why_no_workspace([str(home / "src" / ".hidden"), str(home / "go")]) == ""


@pytest.mark.parametrize("place", ["/etc", "/etc/app", "/usr/lib/python3", "/boot"])
def test_a_directory_of_the_system_is_no_workspace(place: str) -> None:
    assert "programs" in sandbox("workspace", home="/home/u").cages.why_no_workspace([place])
