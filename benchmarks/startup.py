"""How soon ccb is there on one machine: `ccb -p` from start to exit against the reference CLI, what an older Python on
the host costs, and the CPU of `ccb --version` (limit 100 ms), `ccb --help` and completion against a bare interpreter.

The reference CLI is the one on PATH, else the one that the wheel of its SDK brings (`make .make/reference-cli`).
"""

from __future__ import annotations

import asyncio
import glob
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.ratio import PeerMissing, bound, compare, in_turn, single, versus
from benchmarks.session_run import run_ccb
from tests.support.model.fake_model import API_KEY, FakeModel

from ccb.deploy.bootstrap import launch
from ccb.deploy.bundle import load
from ccb.local.commands.completion_scripts import ASK
from ccb.tunnel.link.link import Link
from ccb.tunnel.transports.command_transport import LocalTransport

RUNS = 15
EXIT_S = 0.05


async def _print_mode(top: Path, model: FakeModel) -> None:
    """Measure `-p` of both programs with the same prompt and the same model."""
    claude = reference_cli()
    exits: list[float] = []

    async def ours() -> float:
        model.add({"text": "ok"})
        run = await run_ccb([], model, top / "home", log=False)
        exits.append(run.end_s - run.result_s)
        return run.end_s

    async def reference() -> float:
        model.add({"text": "ok"})
        env = {
            "PATH": os.environ["PATH"], "HOME": str(top / "reference"), "ANTHROPIC_API_KEY": API_KEY,
            "ANTHROPIC_BASE_URL": model.url, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }  # fmt: skip
        (top / "reference").mkdir(exist_ok=True)
        argv = [claude, "-p", "go", "--output-format", "stream-json", "--verbose"]
        start = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, env=env
        )
        assert await process.wait() == 0
        return time.monotonic() - start

    taken, peer = await in_turn(ours, reference)
    compare("local -p, start to exit", taken, "reference CLI", peer, 0.8)
    bound("local: result to the end of the process", exits[1:], EXIT_S)


def reference_cli() -> str:
    """Return the program of the reference CLI. Raise PeerMissing."""
    bundled = Path(__file__).parents[1] / ".make/reference-cli/claude_agent_sdk/_bundled/claude"
    found = shutil.which("claude") or shutil.which(bundled)
    if found is None:
        raise PeerMissing("the reference CLI is not on PATH: `make .make/reference-cli` brings it")
    return found


async def _hello_of_pythons(top: Path, model: FakeModel) -> None:
    """Measure from the command line to hello on two Pythons, once a session has run with each."""
    pythons = [_python("3.9"), _python("3.11")]
    if None in pythons:
        raise PeerMissing("Python 3.9 and 3.11 are not both installed here")
    home = top / "host"
    home.mkdir()

    async def hello(python: str) -> float:
        transport = LocalTransport({"PATH": os.environ["PATH"], "HOME": str(home)}, python)
        parameters = {"session": str(uuid.uuid4()), "create": True, "grace_s": 0.2}
        start = time.monotonic()
        launched = await launch(transport, parameters, load())
        async with Link(launched.pipe, launched.rest, host="host") as link:
            await link.hello()
            took = time.monotonic() - start
        await transport.close()
        return took

    for python in pythons:
        model.add({"text": "ok"})
        way = f"env HOME={home} PATH={Path(str(python)).parent}:{os.environ['PATH']} sh -c"
        await run_ccb(["ssh", "host:~", "--transport", way], model, top / "home", log=False)
    async with asyncio.timeout(20):
        while len(list(home.rglob("*.code"))) < len(pythons):  # the daemons of these sessions write them at their end
            await asyncio.sleep(0.01)
    old, new = await in_turn(*[lambda python=python: hello(str(python)) for python in pythons])
    compare("hello of a host's Python 3.9", old, "Python 3.11", new, 1.2)


def _python(version: str) -> str | None:
    """Return an interpreter of this version: no shim of a version manager, which would take most of the time."""
    root = os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv")
    found = glob.glob(f"{root}/versions/{version}.*/bin/python3")
    return found[-1] if found else shutil.which(f"python{version}")


def _cpu_ms(argv: Sequence[str], env: Mapping[str, str] | None = None) -> float:
    """Return the user and system time of a child process, the median of RUNS."""
    taken = []
    for _ in range(RUNS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(argv, check=True, capture_output=True, env=env)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000)
    return statistics.median(taken)


def _cpu() -> None:
    bare = _cpu_ms([sys.executable, "-c", "pass"])
    for flag, limit in (("--version", 100.0), ("--help", None)):
        taken = _cpu_ms([sys.executable, "-m", "ccb", flag])
        versus(f"CPU of ccb {flag}", taken, "python -c pass", bare, None, unit="ms")
        single("the same, alone", taken, limit, unit="ms")


def _completion(home: Path) -> None:
    """Measure Tab against a bare interpreter that reads the same files."""
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh/config").write_text("".join(f"Host web-{number}\n  User ann\n" for number in range(200)))
    models, sessions = home / ".cache/ccb/models", home / ".local/state/ccb/sessions"
    models.mkdir(parents=True)
    listed = [{"id": f"maker/model-{number}", "title": "A model"} for number in range(300)]
    (models / "openrouter.json").write_text(json.dumps({"models": listed}))
    for number in range(100):
        (sessions / str(number)).mkdir(parents=True)
        (sessions / str(number) / "journal.jsonl").write_text("{}\n")
        (sessions / str(number) / "summary.json").write_text('{"cwd": "/srv/app", "prompt": "fix it"}')
    reads = "import json, os; [json.load(open(each)) for each in {}]"
    summaries = f"[f'{sessions}/{{each}}/summary.json' for each in os.listdir('{sessions}')]"
    rows = {"hosts": "pass", "models": reads.format(f"['{models}/openrouter.json']"), "ids": reads.format(summaries)}
    env = {"HOME": str(home), "PATH": os.environ["PATH"]}
    for kind, read in rows.items():
        bare = _cpu_ms([sys.executable, "-S", "-c", read], env)
        what = "python -S -c pass" if read == "pass" else "python -S that reads them"
        versus(f"CPU of completion: {kind}", _cpu_ms([*ASK, kind, ""], env), what, bare, 1.5, unit="ms")


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="ccb-bench-", ignore_cleanup_errors=True) as name:
        async with FakeModel() as model:
            await _print_mode(Path(name), model)
            await _hello_of_pythons(Path(name), model)
        _cpu()
        _completion(Path(name) / "completion")
