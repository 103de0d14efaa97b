"""Files that rules hide stay hidden from searches over directories above them, and from commands that read them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from tests.remote.tools_kit import Toolbox, open_toolbox
from tests.support.worker.cages import sandbox
from tests.support.worker.permission_desk import Desk, Named, bash

from ccb.remote.agent.agent_config import AgentConfig
from ccb.remote.agent.tool_call import ParsedCall
from ccb.remote.agent.tool_pipeline import decide
from ccb.remote.context.system_prompt import SessionPrompt
from ccb.remote.permissions.engine import LaunchRules, PermissionEngine
from ccb.remote.permissions.rules import Behavior
from ccb.remote.tools.tool_contract import CallContext
from ccb.remote.tools.toolset import Toolset

ALLOW, ASK = Behavior.ALLOW, Behavior.ASK


@pytest.fixture
async def box(tmp_path: Path) -> AsyncIterator[Toolbox]:
    async with open_toolbox(tmp_path) as toolbox:
        toolbox.write("src/a.py", "needle\n", age=10)
        toolbox.write("secrets/deep/key", "needle\n", age=20)
        toolbox.write("src/.env", "needle\n", age=30)
        yield toolbox


def engine_of(box: Toolbox, *denied: str) -> PermissionEngine:
    launch = LaunchRules(sandbox(), disallowed=denied)
    return PermissionEngine(launch, cwd=str(box.root), home="/nowhere", is_root=False)


async def searched(box: Toolbox, rules: str, name: str, **tool_input: Any) -> str:
    engine = engine_of(box, rules)
    context = box.context.for_call(CallContext(left_out=tuple(engine.left_out(name))))
    result = await box.tools[name].call(tool_input, context)
    assert isinstance(result.content, str)
    return result.content


@pytest.mark.parametrize("tools", ["rg", "grep", ""])
@pytest.mark.parametrize("mode", ["files_with_matches", "content", "count"])
@pytest.mark.quick_rows(3)
async def test_grep_leaves_out_what_is_denied(
    box: Toolbox, mode: str, tools: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    which = box.context.host.which
    monkeypatch.setattr(box.context.host, "which", lambda name: which(name) if name == tools else None)
    absolute = f"Read(/{box.root}/secrets) Read(*/.e*)"
    for rules in ("Read(secrets/**) Read(.env)", "Grep(SECRETS) Grep(**/.env)", absolute):
        text = await searched(box, rules, "Grep", pattern="needle", output_mode=mode)
        assert "src/a.py" in text and "left out" in text
        assert "secrets" not in text and ".env" not in text
    text = await searched(box, "Edit(secrets/**)", "Grep", pattern="needle", output_mode=mode)
    assert "secrets/deep/key" in text
    assert ".env" not in text and "left out" in text  # it usually holds secrets


async def test_a_linked_directory_is_kept_under_both_its_names(box: Toolbox) -> None:
    os.symlink(box.root / "secrets", box.root / "way")
    for rules in ("Read(secrets/**)", "Read(way/deep)"):
        for path in ("way", str(box.root / "secrets"), "src/../secrets"):
            assert "key" not in await searched(box, rules, "Grep", pattern="needle", path=path)


async def test_glob_leaves_them_out_as_well(box: Toolbox) -> None:
    text = await searched(box, "Read(secrets/**)", "Glob", pattern="**/*")
    assert "a.py" in text and "left out" in text and "key" not in text


async def test_a_search_starts_where_the_permission_looked(box: Toolbox) -> None:
    """`link/../..` is where the link leads, not a name that is shortened."""
    box.write("../beside/found", "needle\n")
    box.write("one/two/x")
    box.write("beside/mine", "needle\n")
    os.symlink(box.root / "one" / "two", box.root / "link")
    path = str(box.root / "link/../../beside")
    assert engine_of(box).decide(Named("Grep"), {"pattern": "needle", "path": path}).behavior is ALLOW
    assert "beside/mine" in await box.text("Grep", pattern="needle", path=path)
    assert "mine" in await box.text("Glob", pattern="*", path=path)


async def test_a_directory_that_is_gone_is_not_where_paths_are_looked_up(box: Toolbox) -> None:
    """The next command runs in the session's directory, where `../..` is another place."""
    box.write("../outside", "needle\n")
    config = AgentConfig(cast(SessionPrompt, None), Toolset(()), engine_of(box), box.context)
    call = ParsedCall("t1", box.tools["Bash"], {"command": "cat ../outside"})
    await box.text("Bash", command="mkdir -p one; cd one")
    assert decide(config, call, can_ask=False).behavior is ALLOW
    await box.text("Bash", command="rmdir ../one")
    assert decide(config, call, can_ask=False).behavior is ASK


@pytest.mark.parametrize("mode", ["default", "bypassPermissions"])
def test_a_denied_file_by_way_of_a_process_is_not_let_through(tmp_path: Path, mode: str) -> None:
    desk = Desk(tmp_path)
    engine = desk.engine(mode, disallowed="Read(secrets/**)")
    for command in (f"tac //proc/./self/root{desk.cwd}/secrets/key", "cat /proc/self/root/../cwd/secrets/key"):
        assert bash(engine, command).behavior is not ALLOW, command
