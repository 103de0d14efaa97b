"""The examples of docs/guide/python-api.md run as they are printed, but for the host."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest
from tests.support.hosts.reached_host import Host
from tests.support.model.model_script import Json, uses

pytestmark = pytest.mark.visited
PAGE = Path(__file__).parents[3] / "docs" / "guide" / "python-api.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)

FINDING = {"file": "a.c", "line": 3, "problem": "read() is not checked"}
CHOICES = [{"label": each, "description": each} for each in ("in memory", "on disk")]
ASK = {"question": "Which cache?", "header": "Cache", "options": CHOICES}
DONE: Json = {"text": "Done.", "times": 0}
SCRIPTS: list[tuple[list[Json], str]] = [
    ([{"text": "By a fixture."}], r"By a fixture\.\n\$0\.\d{4}, session [0-9a-f-]{36}\n"),
    ([uses("Read", file_path="no"), DONE], r"\n\[Read .*\]\n\n\[failed: .*\]\nDone\.\n\$0\.\d{4}\n"),
    ([uses("Bash", command="true"), {"text": "Done.", "when": {"user_contains": "as they are"}}, DONE], r"Done\.\n"),
    ([uses("StructuredOutput", findings=[FINDING])], r"a\.c:3: read\(\) is not checked\n"),
    (
        [uses("Bash", command="git push x"), {"text": "Kept.", "when": {"tool_result_contains": "for people"}}],
        r"Kept\.\n",
    ),
    (
        [uses("AskUserQuestion", questions=[ASK]), {"text": "Made.", "when": {"tool_result_contains": "in memory"}}],
        r"Which cache\?\n0 in memory\n1 on disk\nMade\.\n",
    ),
    (
        [uses("mcp__program__ticket", number=7), {"text": "The clock.", "when": {"tool_result_contains": "nightly"}}],
        r"The clock\.\n",
    ),
    ([DONE], r"List the open TODOs: Done\.\n.*\n.*: Done\.\n"),
    ([{"text": "Yes."}, {"text": "42.", "when": {"user_contains": "Which number"}}], r"42\.\n"),
    ([], r"0 2\n\[server\]\nTrue\n"),
    ([{"status": 400, "error": "invalid_request_error"}], r"it stopped after \$0\.00: AGENT_FAILED\n"),
    ([DONE], r"Done\.\nDone\.\n"),
]
"""For each example, in the order of the page: what the model says, and what it prints."""


def test_every_example_is_run() -> None:
    assert len(EXAMPLES) == len(SCRIPTS) >= 10


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize("number", range(len(SCRIPTS)))
async def test_the_example_runs(host: Host, number: int, tmp_path: Path) -> None:
    replies, prints = SCRIPTS[number]
    host.model.add(*replies)
    host.put("app", None)
    options = [f"UserKnownHostsFile={host.server.known_hosts}", "IdentitiesOnly=yes"]
    way = f"port={host.server.port}, identity_file={str(host.server.identity)!r}, ssh_options={options!r}"
    script = tmp_path / "example.py"
    script.write_text(EXAMPLES[number].replace('"devbox:/srv/app"', f'"{host.login}:~/app", {way}'), encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(script), env={**os.environ, **host.laptop.env}, cwd=tmp_path,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    assert re.fullmatch(prints, out.decode()), (out.decode(), err.decode())
    assert (process.returncode, err) == (0, b"")
