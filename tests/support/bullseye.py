"""`make bullseye`: the main job on a whole Debian 11 host, whose Python is 3.9 and which has neither git nor ripgrep.

Needs root: the host is made once by debootstrap in /srv/ccb-bullseye, and a real sshd logs in to it with ChrootDirectory.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.support.fake_model import API_KEY, FakeModel
from tests.support.sshd import sshd

HOST = Path("/srv/ccb-bullseye")
MIRROR = "http://deb.debian.org/debian"


def _make_host() -> None:
    if (HOST / "usr/bin/python3").exists():
        return
    if shutil.which("debootstrap") is None:
        subprocess.run(["apt-get", "install", "-y", "-qq", "debootstrap"], check=True)
    subprocess.run(["debootstrap", "--variant=minbase", "--include=python3", "bullseye", str(HOST), MIRROR], check=True)


def _tool(name: str, **tool_input: Any) -> dict[str, Any]:
    return {"type": "tool_use", "name": name, "input": tool_input}


async def _run() -> int:
    project = HOST / "srv" / "app"
    shutil.rmtree(project, ignore_errors=True)
    shutil.rmtree(HOST / "root" / ".cache", ignore_errors=True)
    project.mkdir(parents=True)
    (project / "a.txt").write_text("hello\n", encoding="utf-8")
    path = "/srv/app/a.txt"
    script: list[dict[str, Any]] = [
        {"blocks": [_tool("Bash", command="python3 -V"), _tool("Read", file_path=path)]},
        {
            "blocks": [_tool("Edit", file_path=path, old_string="hello", new_string="bye")],
            "when": {"tool_result_contains": "3.9"},
        },
        {"blocks": [_tool("Grep", pattern="b.e", output_mode="content"), _tool("Glob", pattern="**/*")]},
        {"text": "done", "when": {"tool_result_contains": "a.txt"}},
    ]
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        async with sshd(top / "sshd", [f"ChrootDirectory {HOST}"]) as server, FakeModel(script) as model:
            env = {
                "PATH": os.environ["PATH"], "HOME": name, "PYTHONPATH": os.pathsep.join(sys.path),
                "ANTHROPIC_API_KEY": API_KEY, "ANTHROPIC_BASE_URL": model.url,
            }  # fmt: skip
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "ccb", "ssh", "root@127.0.0.1:/srv/app", *server.client_options(), "-p", "go",
                "--allowedTools", "Bash", "--permission-mode", "acceptEdits", env=env,
            )  # fmt: skip
            code = await process.wait()
    changed = (project / "a.txt").read_text(encoding="utf-8") == "bye\n"
    sys.stdout.write(
        f"Debian 11, Python 3.9: exit code {code}, the file is {'changed' if changed else 'NOT changed'}\n"
    )
    return code if changed else 1


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit("make bullseye needs root: debootstrap and ChrootDirectory do")
    _make_host()
    sys.exit(asyncio.run(_run()))
