"""The permissions of a sub-agent are those of the session, and never freer."""

from __future__ import annotations

import pytest
from tests.support.worker.cages import sandbox

from ccb.remote.permissions.engine import ChildPermissions, LaunchRules, PermissionEngine
from ccb.remote.permissions.rules import Behavior
from ccb.remote.tools.toolset import default_tools

TOOLS = {tool.name: tool for tool in default_tools()}
CALLS = {
    "Bash": {"command": "touch made"},
    "Write": {"file_path": "/srv/app/x", "content": "y"},
    "Read": {"file_path": "/srv/app/x"},
}


def engine(mode: str = "default", *, deny: tuple[str, ...] = ()) -> PermissionEngine:
    launch = LaunchRules(sandbox(), mode, disallowed=deny, allow_bypass=True)
    return PermissionEngine(launch, cwd="/srv/app", home="/home/ann", is_root=False)


def decided(permissions: PermissionEngine, name: str) -> Behavior:
    return permissions.decide(TOOLS[name], dict(CALLS[name]), can_ask=True).behavior


@pytest.mark.parametrize(
    ("parent", "own", "mode"),
    [
        *(("default", "", "default"), ("default", "acceptEdits", "default")),
        *(("default", "bypassPermissions", "default"), ("acceptEdits", "bypassPermissions", "acceptEdits")),
        *(("bypassPermissions", "acceptEdits", "acceptEdits"), ("bypassPermissions", "plan", "plan")),
        *(("plan", "acceptEdits", "plan"), ("acceptEdits", "no such mode", "no such mode")),
    ],
)
def test_the_mode_is_the_stricter_of_both(parent: str, own: str, mode: str) -> None:
    assert ChildPermissions(engine(parent), own).mode == mode


def test_a_mode_and_a_rule_that_change_meanwhile_hold_at_once() -> None:
    parent = engine("acceptEdits")
    child = ChildPermissions(parent)
    assert decided(child, "Write") is Behavior.ALLOW
    parent.set_mode("default")
    assert decided(child, "Write") is Behavior.ASK
    parent.apply([{"type": "addRules", "rules": [{"toolName": "Write"}], "behavior": "deny", "destination": "session"}])
    assert decided(child, "Write") is Behavior.DENY and not child.visible("Write")


def test_what_is_granted_to_an_agent_holds_for_the_session_and_a_new_mode_is_told() -> None:
    parent, told = engine(), []
    child = ChildPermissions(parent, mode_changed=lambda: told.append(parent.mode))
    rule = {"toolName": "Bash", "ruleContent": "touch made"}
    child.apply([{"type": "addRules", "rules": [rule], "behavior": "allow", "destination": "session"}])
    assert decided(parent, "Bash") is Behavior.ALLOW and not told
    child.apply([{"type": "setMode", "mode": "acceptEdits", "destination": "session"}])
    assert told == ["acceptEdits"] and child.mode == "acceptEdits"


def test_an_agent_that_only_reads_is_denied_what_may_change_something_even_without_permissions() -> None:
    child = ChildPermissions(engine("bypassPermissions"), read_only=True)
    assert [decided(child, name) for name in CALLS] == [Behavior.DENY, Behavior.DENY, Behavior.ALLOW]
    assert [name for name in CALLS if child.visible(name)] == ["Bash", "Read"]
    denied = ChildPermissions(engine("bypassPermissions", deny=("Read",)), read_only=True)
    assert decided(denied, "Read") is Behavior.DENY
