"""The examples of docs/guide/sdk.md run as they are printed, but for the host."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from tests.conformance.official_sdks import PLACE, ROOT, calls, program_ccb
from tests.support.person.laptop import Here, Laptop

pytestmark = pytest.mark.visited


def example(language: str) -> str:
    page = (ROOT / "docs" / "guide" / "sdk.md").read_text(encoding="utf-8")
    found = re.search(rf"```{language}\n(.*?)```", page, re.DOTALL)
    assert found is not None
    return found.group(1).replace('"devbox:/srv/app"', '""')


async def run(argv: list[str], laptop: Laptop, project: Path) -> str:
    path = f"{project.parent}:{laptop.env['PATH']}"
    env = {name: value for name, value in laptop.env.items() if name != "PYTHONPATH"}
    program_ccb(project.parent)
    process = await asyncio.create_subprocess_exec(
        *argv, env={**env, "PATH": path}, cwd=project, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


async def test_the_python_example_runs(here: Here) -> None:
    here.model.add(calls(("mcp__tickets__ticket", {"number": 7})), {"text": "It is in nightly.sh."})
    script = here.project / "example.py"
    script.write_text(example("python"))
    said = await run([str(PLACE / "python" / "bin" / "python"), str(script)], here.laptop, here.project)
    assert "the nightly job fails" in here.model.requests[1].tool_result_text
    assert "It is in nightly.sh." in said and "ResultMessage(subtype='success'" in said


@pytest.mark.thorough
async def test_the_npm_example_runs(here: Here) -> None:
    here.model.add(calls(("Bash", {"command": "rm -rf /"})), calls(("StructuredOutput", {"files": ["test_login.py"]})))
    script = here.project / "example.mjs"
    script.write_text(example("js"))
    (here.project / "node_modules").symlink_to(PLACE / "npm" / "node_modules")
    said = await run(["node", str(script)], here.laptop, here.project)
    assert "no commands today" in here.model.requests[1].tool_result_text
    assert said.split() == ["success", "{", "files:", "[", "'test_login.py'", "]", "}"]
