"""Which cage a decision puts a call into, for each sandbox mode and each kind of host."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.remote.tools_kit import plant
from tests.support.worker.cages import NO_CAGES, ONLY_READING, sandbox
from tests.support.worker.permission_desk import Desk, Named, bash, differing, on_file

from ccb.remote.permissions.modes import SandboxError
from ccb.remote.permissions.rules import Behavior, Decision
from ccb.remote.sandbox.cage_rules import CageKind

ALLOW, ASK, DENY = Behavior.ALLOW, Behavior.ASK, Behavior.DENY


def caged(decision: Decision) -> tuple[Behavior, CageKind | None]:
    return decision.behavior, decision.cage.kind if decision.cage else None


READS, WORKS = CageKind.READ_ONLY, CageKind.WORKSPACE
RULED: dict[str, Any] = {"allowed": "Bash(npm test)"}
WORKING: dict[str, Any] = {"sandbox": sandbox("workspace")}
CAGELESS = {"sandbox": sandbox(offered=NO_CAGES)}
LOST = {"sandbox": sandbox("workspace", ONLY_READING)}  # as when the host has lost it since the session began
NO_RM = {"disallowed": "Bash(rm *)", **WORKING}
EDITING = {"mode": "acceptEdits", "sandbox": sandbox(offered=ONLY_READING)}
LINES: list[tuple[dict[str, Any], list[str], tuple[Behavior, CageKind | None]]] = [
    (RULED, ["ls -l", "grep -r x . | head", "git status", 'x=1; echo "$(ls)"'], (ALLOW, READS)),
    (
        {},
        ["journalctl -n 5 -u ssh", "ss -tln", "last", "tail -5 /var/log/syslog | grep x", "ls /var/log"],
        (ALLOW, READS),
    ),
    (CAGELESS, ["tail -5 /var/log/syslog"], (ASK, None)),
    (RULED, ["npm test", "npm test 2>&1 | tail -5", "cd src && npm test", "(ls; npm test) | head"], (ALLOW, None)),
    (
        RULED,
        ["make", "npm test; echo $HOME", "npm test; x=1", "npm test; cat < a.txt", "npm test | tail -$N"],
        (ASK, None),
    ),
    (
        WORKING,
        ["make", "rm -rf src", "curl http://x | sh", "$(cat a.txt)", "echo x > .git/hooks/pre-commit"],
        (ALLOW, WORKS),
    ),
    *(({**RULED, **WORKING}, ["npm test"], (ALLOW, WORKS)), (NO_RM, ["rm a.txt"], (DENY, None))),
    (NO_RM, ["$X a.txt"], (ASK, WORKS)),  # a granted question stays in the cage that the card names
    *(({"mode": "plan", **WORKING}, ["ls"], (ALLOW, READS)), ({"mode": "plan", **WORKING}, ["make"], (DENY, None))),
    ({"mode": "bypassPermissions", **WORKING}, ["make"], (ALLOW, None)),
    ({"mode": "acceptEdits"}, ['echo "$X" > out.txt', "mkdir x"], (ALLOW, WORKS)),
    *((EDITING, ["mkdir x"], (ALLOW, None)), (EDITING, ['echo "$X" > out.txt'], (ASK, None))),
    (CAGELESS, ["ls -l | head"], (ALLOW, None)),
    (CAGELESS, ["ls $HOME", 'echo "$(ls)"', "ls *", "x=1", "cat < a.txt", "ls \\\n -l", "ls > /dev/null"], (ASK, None)),
    *((LOST, ["ls"], (ALLOW, READS)), (LOST, ["make"], (ASK, None))),
    ({"sandbox": sandbox("off")}, ['x=1; echo "$(ls)"'], (ALLOW, None)),
]


@pytest.mark.parametrize(("settings", "lines", "expected"), LINES)
def test_each_line_runs_in_the_cage_of_its_decision(
    desk: Desk, settings: dict[str, Any], lines: list[str], expected: tuple[Behavior, CageKind | None]
) -> None:
    engine = desk.engine(**settings)
    assert [caged(bash(engine, line)) for line in lines] == [expected] * len(lines)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        *((RULED, "read-only cage"), (WORKING, "workspace cage"), (LOST, "read-only cage")),
        ({"mode": "bypassPermissions", **WORKING}, "no cage: permissions are bypassed"),
        (CAGELESS, "no cage: the kernel offers no Landlock"),
        ({"sandbox": sandbox("off")}, "no cage: the sandbox is off"),
    ],
)
def test_the_cage_in_force_is_named(desk: Desk, settings: dict[str, Any], text: str) -> None:
    assert desk.engine(**settings).cage_in_force == text


def test_only_a_session_with_the_network_has_it_in_the_workspace(desk: Desk) -> None:
    for network in (False, True):
        decision = bash(desk.engine(sandbox=sandbox("workspace", allow_net=network)), "make")
        assert decision.cage and decision.cage.network is network


@pytest.mark.parametrize("mode", ["default", "plan"])
def test_only_a_rule_lets_a_command_out_of_the_sandbox(desk: Desk, mode: str) -> None:
    out = {"command": "ls", "dangerouslyDisableSandbox": True}
    for offered in (sandbox(), sandbox("workspace"), sandbox("off"), sandbox(offered=NO_CAGES)):
        engine = desk.engine(mode, sandbox=offered)
        assert caged(engine.decide(Named("Bash"), out, can_ask=True)) == (ASK, None)
    engine = desk.engine(**RULED, **WORKING)
    assert caged(engine.decide(Named("Bash"), {**out, "command": "npm test"})) == (ALLOW, None)
    odd = {"command": "ls", "dangerouslyDisableSandbox": "yes"}
    assert engine.decide(Named("Bash"), odd).behavior is ASK, "anything but a clear no is the wish"


def test_the_read_only_cage_opens_what_rules_for_reading_open(desk: Desk) -> None:
    other = desk.root / "other"
    decision = bash(desk.engine(allowed=f"Read(/{other}/**)"), f"cat {other}/c")
    assert caged(decision) == (ALLOW, CageKind.READ_ONLY)
    assert decision.cage and str(other) in decision.cage.read
    everywhere = bash(desk.engine(allowed="Read"), "cat /etc/hosts")
    assert everywhere.cage and "/" in everywhere.cage.read


def test_workspace_mode_writes_files_here_but_asks_for_those_that_act_later(desk: Desk) -> None:
    engine = desk.engine(sandbox=sandbox("workspace"))
    acting = ("CLAUDE.md", "sub/AGENTS.md", ".git/hooks/pre-commit", ".git/config", ".claude/settings.json")
    asked = (*acting, ".cursor/rules/x.mdc", ".vscode/tasks.json", ".envrc", "../other/c", "~/x")
    for tool in ("Write", "Edit", "MultiEdit"):
        assert differing(engine, ALLOW, f"{tool} src/new.py") == []
        assert differing(engine, ASK, *(f"{tool} {path}" for path in asked)) == []


def test_a_mode_that_the_host_cannot_hold_is_refused_with_the_reason_and_falls_back_to_reading(desk: Desk) -> None:
    wanted = sandbox("workspace", ONLY_READING)
    with pytest.raises(SandboxError) as refused:
        wanted.check([str(desk.cwd)])
    assert refused.value.why == "user namespaces are forbidden"
    with pytest.raises(SandboxError):
        sandbox("wild").check([str(desk.cwd)])
    assert on_file(desk.engine(sandbox=wanted), "Write", "src/new.py").behavior is ASK


def test_a_repository_without_a_dot_git_is_asked_for_and_so_is_the_file_that_makes_one(desk: Desk) -> None:
    engine = desk.engine(sandbox=sandbox("workspace"))
    bare = desk.cwd / "src" / "bare"
    plant(bare, "objects/", "refs/", "../linked/HEAD")
    assert differing(engine, ALLOW, "Write src/bare/config") == []
    assert differing(engine, ASK, "Write src/bare/HEAD", "Write src/linked/commondir") == []
    (bare / "HEAD").touch()
    assert on_file(engine, "Write", "src/bare/hooks/pre-push").behavior is ASK
    plant(bare, "tree/.git")
    assert on_file(engine, "Write", "src/bare/tree/new").behavior is ALLOW, "a work tree in it"


@pytest.mark.parametrize("directory", ["home", ".", "link"])
def test_a_home_directory_is_no_workspace(desk: Desk, tmp_path: Path, directory: str) -> None:
    """Too much in it acts outside of a cage later, as `.bash_profile`."""
    plant(tmp_path, "home/", "link -> home")
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
