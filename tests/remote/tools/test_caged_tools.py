"""Tools whose commands run in a real cage: what the model is told of a stop, and what works as without a cage."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.remote.tools.test_bash import in_background
from tests.remote.tools_kit import Toolbox, open_toolbox, write

from ccb.remote.sandbox.cage_rules import workspace_rules
from ccb.remote.sandbox.cage_server import CageServer
from ccb.remote.system.host import Host
from ccb.remote.system.process import Process
from ccb.remote.tools.output import OutputFiles
from ccb.remote.tools.tool_contract import CallContext

_HOW = "To ask the user to run it without the sandbox, call Bash again with dangerouslyDisableSandbox: true."


@pytest.fixture
async def box(tmp_path: Path) -> AsyncIterator[Toolbox]:
    """A session whose commands run in the read-only cage."""
    async with open_toolbox(tmp_path) as toolbox:
        if not toolbox.context.host.cages().mechanism:
            pytest.skip(toolbox.context.host.cages().why)
        cage = toolbox.context.cages.read_only([str(toolbox.root)])
        toolbox.context = toolbox.context.for_call(CallContext(cage=cage))
        yield toolbox


async def test_what_the_cage_stops_is_one_line_with_the_way_to_ask_also_in_the_background(box: Toolbox) -> None:
    said = await box.error("Bash", command="echo x > made")
    assert not (box.root / "made").exists()
    assert said.splitlines()[-2].startswith("stopped by the sandbox: ") and "made" in said.splitlines()[-2]
    assert said.splitlines()[-1] == _HOW
    assert await box.text("Bash", command="echo fine") == "fine"
    await (await in_background(box, "echo before; echo x > made")).process.wait()
    said = await box.text("BashOutput", bash_id="bash_1")
    assert not (box.root / "made").exists()
    assert "stopped by the sandbox: " in said and said.splitlines()[-1] == _HOW


async def test_the_next_command_starts_where_a_caged_one_has_gone(box: Toolbox) -> None:
    (box.root / "sub").mkdir()
    await box.text("Bash", command="cd sub")
    assert await box.text("Bash", command="pwd") == str(box.root / "sub")
    assert [name for name in os.listdir(box.outputs) if name.startswith(".")] == [], "the report is removed"


async def test_where_no_file_can_be_made_the_directory_stays_and_the_model_is_told(box: Toolbox) -> None:
    (box.root / "sub").mkdir()
    box.context = replace(box.context, spill=OutputFiles(f"{box.write('file')}/outputs"))
    assert "Shell cwd stays" in await box.text("Bash", command="cd sub")
    assert await box.text("Bash", command="pwd") == str(box.root)


async def test_what_a_command_may_not_leave_behind_is_told_once(box: Toolbox) -> None:
    if not box.context.host.cages().workspace:
        pytest.skip(box.context.host.cages().why)
    box.context = box.context.for_call(CallContext(cage=workspace_rules([str(box.root)], os.environ, "/nowhere")))
    said = await box.text("Bash", command="mkdir d && echo x >d/.envrc")
    assert "set aside by the sandbox" in said and "d/.envrc is now .envrc.stopped-by-ccb" in said
    assert "dangerouslyDisableSandbox" in said.splitlines()[-1]
    await (await in_background(box, "for at in 1 2 3 4 5 6 7; do git init -q d/$at; done")).process.wait()
    said = await box.text("BashOutput", bash_id="bash_1")
    assert "d/1/.git is now .git.stopped-by-ccb" in said and "and 9 more" in said
    assert "set aside" not in await box.text("BashOutput", bash_id="bash_1")
    assert "set aside" not in await box.text("Bash", command="mkdir e")


async def test_a_cage_that_cannot_be_made_runs_nothing(box: Toolbox) -> None:
    cage = workspace_rules([str(box.root)], os.environ, "/nowhere")  # needs Landlock, which this host has not
    with contextlib.closing(Host(cages=CageServer(most_abi=0))) as host:
        box.context = replace(box.context, host=host, call=CallContext(cage=cage))
        for more in ({}, {"run_in_background": True}):
            said = await box.error("Bash", command=f"touch {box.root}/made", **more)
            assert "could not be started" in said and said.splitlines()[-1] == _HOW
    assert not (box.root / "made").exists()


@pytest.mark.parametrize("call", [{"name": "Grep", "pattern": "needle"}, {"name": "Glob", "pattern": "*.txt"}])
async def test_searches_run_in_that_cage(box: Toolbox, call: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    box.write("a.txt", "needle\n")
    start, cages = box.context.host.start, []

    async def noted(*arguments: Any, **more: Any) -> Process:
        cages.append(more["cage"])
        return await start(*arguments, **more)

    monkeypatch.setattr(box.context.host, "start", noted)
    box.context = box.context.for_call(CallContext())
    name = call.pop("name")
    assert "a.txt" in await box.text(name, **call)
    outer = box.root.parent / "outer"
    write(outer / "b.txt", "needle\n")
    assert "b.txt" in await box.text(name, **call, path=str(outer)), "a granted directory outside is read as well"
    assert len(cages) == 2 and all(cage is not None and not cage.write for cage in cages)


async def test_a_caged_search_starts_no_new_python(box: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    box.write("a.txt", "needle\n")
    monkeypatch.setattr(sys, "executable", "/no/such/python")  # the zygote runs
    assert await box.text("Grep", pattern="needle") == "Found 1 file\na.txt"
    assert await box.text("Glob", pattern="*.txt") == str(box.root / "a.txt")
    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: "iso8859-1")
    assert "could not be started" in await box.error("Grep", pattern="needle"), "the zygote reads names in UTF-8"
