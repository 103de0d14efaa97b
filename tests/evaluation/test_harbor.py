"""ccb as an agent of Harbor: it works in the container from outside, and Harbor reads ccb's tasks."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from evaluation.task_sets import own_tasks
from tests.support.model.fake_model import API_KEY, FakeModel
from tests.support.model.model_script import uses
from tests.support.person.laptop import Laptop

ROOT = Path(__file__).resolve().parents[2]
HARBOR = "harbor==0.26.0"

# What Harbor does with an agent: it makes one, sets it up in an environment, and lets it run. The environment is this
# machine, on which a stand-in for docker runs the command of `docker exec -i ID …`.
DRIVER = """
import asyncio, json, os, subprocess, sys
from pathlib import Path
from types import SimpleNamespace
from harbor.agents.factory import AgentFactory
from harbor.models.agent.context import AgentContext

class Environment:
    default_user = None
    async def exec(self, command):
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
        return SimpleNamespace(stdout=done.stdout, stderr=done.stderr, return_code=done.returncode)

async def main():
    logs, command, engine = sys.argv[1:]
    context = AgentContext()
    agent = AgentFactory.create_agent_from_import_path(
        "ccb_harbor:Ccb", logs_dir=Path(logs), model_name="anthropic/sonnet", command=command, engine=engine
    )
    await agent.setup(Environment())
    await agent.run("Write greeting.txt.", Environment(), context)
    print(json.dumps({"name": agent.name(), "version": agent.version(), **context.model_dump()}))

asyncio.run(main())
"""
ENGINE = """#!/bin/sh
[ "$1 $2 $3 $4 $5" = "exec -i -e IS_SANDBOX=1 $(cat /etc/hostname)" ] || exit 9
shift 5
exec env -i IS_SANDBOX=1 HOME='{home}' PATH="$PATH" "$@"
"""
READER = """
import sys
from pathlib import Path
from harbor.models.task.task import Task
for folder in sorted(Path(sys.argv[1]).iterdir()):
    task = Task(folder)
    print(task.config.agent.timeout_sec, task.paths.test_path.name, task.instruction[:20])
"""
# As much of Harbor as the adapter uses, for Pythons that Harbor is not made for.
STUB = {
    "agents/base.py": """
class BaseAgent:
    def __init__(self, logs_dir, model_name=None, **kwargs):
        self.logs_dir, self.model_name = logs_dir, model_name
""",
    "environments/base.py": "class BaseEnvironment: pass\n",
    "agents/factory.py": """
from ccb_harbor import Ccb
class AgentFactory:
    @staticmethod
    def create_agent_from_import_path(path, **kwargs):
        return Ccb(**kwargs)
""",
    "models/agent/context.py": """
from dataclasses import asdict, dataclass
@dataclass
class ModelUsage:
    n_input_tokens: int = 0
    n_cache_tokens: int = 0
    n_output_tokens: int = 0
    cost_usd: float | None = None
@dataclass
class AgentContext(ModelUsage):
    model_usage: dict | None = None
    metadata: dict | None = None
    def model_dump(self):
        return asdict(self)
""",
}


@pytest.fixture
def stub(tmp_path: Path) -> Path:
    """A Python that has the stub of Harbor."""
    for name, text in STUB.items():
        path = tmp_path / "stub" / "harbor" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{tmp_path}/stub:$PYTHONPATH" exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return python


@pytest.fixture(scope="module")
def harbor() -> Path:
    """A Python that has Harbor, which takes minutes to install for the first time."""
    pythons = [*Path("/usr/bin").glob("python3.1[2-9]"), *Path.home().glob(".pyenv/versions/3.1[2-9]*/bin/python")]
    if not pythons:
        pytest.skip("Harbor needs Python 3.12")
    venv = ROOT / ".make" / "harbor"
    if not (venv / "installed").exists():
        subprocess.run([pythons[0], "-m", "venv", "--clear", venv], check=True)
        subprocess.run([venv / "bin" / "python", "-m", "pip", "install", "--quiet", HARBOR], check=True)
        (venv / "installed").touch()
    return venv / "bin" / "python"


async def _works_from_outside(python: Path, laptop: Laptop, model: FakeModel, project: Path) -> None:
    engine, logs = project.parent / "docker", project.parent / "logs"
    engine.write_text(ENGINE.format(home=project.parent))
    engine.chmod(0o755)
    logs.mkdir()
    look = uses("Bash", command="echo hello > greeting.txt; env")
    model.add(look, {"text": "It is written.", "usage": {"cache_read_input_tokens": 1000, "output_tokens": 5}})
    ccb = f"env PYTHONPATH={laptop.env['PYTHONPATH']} {sys.executable} -m ccb"
    offline = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt"}
    process = await asyncio.create_subprocess_exec(
        python, "-c", DRIVER, logs, ccb, engine, cwd=project,
        env={**laptop.env, **offline, "PYTHONPATH": str(ROOT / "evaluation")}, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, _ = await process.communicate()
    told = json.loads(out)
    assert (project / "greeting.txt").read_text() == "hello\n"
    assert API_KEY not in model.requests[-1].tool_result_text
    assert told["name"] == "ccb" and "ccb" in told["version"]
    assert told["n_cache_tokens"] == 1000 < told["n_input_tokens"] and told["cost_usd"] > 0
    assert list(told["model_usage"]) == ["claude-sonnet-4-5"]
    assert (told["metadata"]["subtype"], told["metadata"]["num_turns"]) == ("success", 2)


@pytest.mark.thorough
@pytest.mark.programs
async def test_ccb_works_in_the_container_and_its_key_stays_outside(
    stub: Path, laptop: Laptop, fake_model: FakeModel, project: Path
) -> None:
    await _works_from_outside(stub, laptop, fake_model, project)


@pytest.mark.programs
@pytest.mark.thorough
@pytest.mark.timeout(900)
async def test_harbor_itself_runs_ccb(harbor: Path, laptop: Laptop, fake_model: FakeModel, project: Path) -> None:
    await _works_from_outside(harbor, laptop, fake_model, project)


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_harbor_reads_every_task(harbor: Path, tmp_path: Path) -> None:
    for task in own_tasks():
        task.write(tmp_path / task.name)
    done = subprocess.run([harbor, "-c", READER, tmp_path], capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) == 30 and done.stdout.count("1200.0 test.sh ") == 30
