"""`make demo`: the main job of ccb from nothing, with no account and no configuration.

An SSH server on 127.0.0.1 with temporary keys, a scripted model, a project with a failing test; `ccb ssh` deploys its
worker there, the agent repairs the project, and what happened is printed. With `--repl` the REPL opens on the same
server; with `--real` the real model is asked, with ANTHROPIC_API_KEY.
"""

from __future__ import annotations

import argparse
import asyncio
import difflib
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.demo_project import CART, PROMPT, TEST_COMMAND, make_project, script
from tests.support.hosts.embedded_sshd import embedded_sshd
from tests.support.model.fake_model import API_KEY, FakeModel
from tests.support.model.model_script import ScriptEntry

_KEPT = ("PATH", "TERM", "COLORTERM", "LANG", "LC_ALL", "TZ", "HTTPS_PROXY", "SSL_CERT_FILE", "PYENV_VERSION")


def _say(text: str = "") -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _show(message: Mapping[str, Any]) -> None:
    kind = message.get("type")
    if kind == "system" and message.get("subtype") == "init":
        _say(f"  session {message['session_id']}, model {message['model']}, in {message['cwd']}")
    elif kind == "assistant":
        for block in message["message"]["content"]:
            if block["type"] == "text":
                _say(f"  agent   {block['text']}")
            elif block["type"] == "tool_use":
                given = block["input"]
                _say(f"  {block['name']:<7} {given.get('command') or given.get('file_path') or json.dumps(given)}")
    elif kind == "user":
        content = message["message"]["content"]
        for block in content if isinstance(content, list) else []:
            if block.get("type") == "tool_result":
                lines = (block["content"] if isinstance(block["content"], str) else "[blocks]").splitlines() or [""]
                more = f"  (+{len(lines) - 4} lines)" if len(lines) > 4 else ""
                _say("\n".join(f"          | {line}" for line in lines[:4]) + more)
    elif kind == "result":
        _say(f"  result  {message['subtype']}, {message['num_turns']} turns, {message['duration_ms']} ms")


async def _headless(argv: list[str], env: Mapping[str, str]) -> int:
    child = await asyncio.create_subprocess_exec(
        *argv, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, env=dict(env), limit=64 * 1024 * 1024
    )
    assert child.stdout is not None
    async for line in child.stdout:
        _show(json.loads(line))
    return await child.wait()


async def _repl(argv: list[str], env: Mapping[str, str]) -> int:
    child = await asyncio.create_subprocess_exec(*argv, env=dict(env))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return await child.wait()


@dataclass(frozen=True)
class DemoHost:
    """An SSH server with a project on it, and a laptop without any configuration. `port` is the server's, `command`
    runs ccb on the project, `env` is the laptop's environment."""

    port: int
    project: Path
    command: list[str]
    env: dict[str, str]


@asynccontextmanager
async def demo_host(
    make: Callable[[Path], None], replies: Callable[[Path], Sequence[ScriptEntry]], *, real: bool = False
) -> AsyncIterator[DemoHost]:
    """Serve a new project, which `make` writes, until the context ends. The model answers with `replies`; with `real`
    the real model is asked."""
    async with AsyncExitStack() as stack:
        top = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ccb-demo-")))
        host_home, laptop_home, project = top / "host", top / "laptop", top / "host" / "shop"
        laptop_home.mkdir()
        make(project)
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        host_env = {**kept, "HOME": str(host_home), "XDG_RUNTIME_DIR": str(host_home / "run")}
        (host_home / "run").mkdir(mode=0o700)
        sshd = await stack.enter_async_context(embedded_sshd(top, host_env, host_home))
        env = {**kept, "HOME": str(laptop_home), "PYTHONPATH": os.pathsep.join(sys.path)}
        if real:
            names = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL")
            env |= {name: os.environ[name] for name in names if name in os.environ}
        else:
            model = await stack.enter_async_context(FakeModel(replies(project)))
            env |= {"ANTHROPIC_API_KEY": API_KEY, "ANTHROPIC_BASE_URL": model.url}
        command = [sys.executable, "-m", "ccb", "ssh", f"127.0.0.1:{project}", *sshd.client_options()]
        yield DemoHost(sshd.port, project, command, env)


async def _run(*, repl: bool, real: bool) -> int:
    async with demo_host(make_project, script, real=real) as host:
        _say(f"An SSH server listens on 127.0.0.1:{host.port}; it has never seen ccb, has no key and no pip packages.")
        return await (_open_repl(host) if repl else _run_headless(host))


async def _open_repl(host: DemoHost) -> int:
    code = await _repl(host.command, host.env)
    if code == 0:
        _say("\nThe demo's server has ended, and the session with it; on a real host that command comes back to it.")
    return code


async def _run_headless(host: DemoHost) -> int:
    flags = ["--permission-mode", "acceptEdits", "--allowedTools", f"Bash({TEST_COMMAND})"]
    _say(f"$ ccb ssh 127.0.0.1:{host.project} -p {PROMPT!r} \\\n      {' '.join(flags)}\n")
    stream = ["--output-format", "stream-json", "--verbose"]
    code = await _headless([*host.command, "-p", PROMPT, *flags, *stream], host.env)
    after = (host.project / "cart.py").read_text(encoding="utf-8")
    changed = "".join(
        difflib.unified_diff(CART.splitlines(True), after.splitlines(True), "cart.py before", "cart.py after")
    )
    _say("\nWhat changed on the host:\n\n" + (changed or "nothing\n"))
    if code == 0 and not changed:
        return 1
    return code


def main() -> int:
    """Run the demo; the exit code of `ccb`, or 1 when it changed nothing."""
    parser = argparse.ArgumentParser(prog="make demo")
    parser.add_argument("--repl", action="store_true", help="open the REPL instead of one headless run")
    parser.add_argument("--real", action="store_true", help="ask the real model (ANTHROPIC_API_KEY)")
    chosen = parser.parse_args()
    if chosen.real and not {"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"} & os.environ.keys():
        sys.stderr.write("REAL=1 needs ANTHROPIC_API_KEY in the environment\n")
        return 2
    if shutil.which("sh") is None:
        sys.stderr.write("the demo's SSH server needs /bin/sh\n")
        return 2
    return asyncio.run(_run(repl=chosen.repl, real=chosen.real))


if __name__ == "__main__":
    sys.exit(main())
