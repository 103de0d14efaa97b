"""`make eval`: let ccb try tasks, and count what it solves. See docs/guide/evaluation.md."""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import tempfile
from collections.abc import Iterable, Sequence
from fnmatch import fnmatch
from pathlib import Path

from evaluation.attempts import AgentSettings, Evaluation
from evaluation.results import ResultsFile, comparison, read_results, table
from evaluation.task_sets import Task, TaskSource, human_eval, own_tasks, read_task

from ccb.local.terminal.console import print_line, say
from ccb.tunnel.errors import CcbError

# Nobody answers questions. Commands run in a cage, in which they write to the repository only, and not to its `.git`.
_OPTIONS = "permission_mode=acceptEdits sandbox=workspace 'allowed_tools=Bash(git *)'"
_CACHE = Path(".make/evaluation")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m evaluation", description="Let ccb try tasks; count what it solves."
    )
    add = parser.add_argument
    add("--model", help="the model to evaluate, as for ccb --model")
    add("--set", default="ccb", metavar="NAME", help="ccb, human-eval, or a folder that --write has made")
    add("--tasks", default="*", metavar="NAMES", help="these tasks only: names or patterns, with commas")
    add("--host", action="append", default=[], metavar="HOST", help="work there, not here; may be repeated")
    add("--jobs", type=int, default=2, metavar="N", help="attempts at a time on each machine (default: 2)")
    add("--repeat", type=int, default=1, metavar="N", help="attempts at each task (default: 1)")
    add("--budget", type=float, metavar="USD", help="what all attempts in the file may cost together")
    add("--options", default=_OPTIONS, help="as ccb.connect names them, with blanks between (default: %(default)s)")
    add("--out", type=Path, metavar="FILE", help="results, a JSON object a line; what is in it is not repeated")
    add("--compare", type=Path, nargs=2, metavar="FILE", help="compare two files of results, task by task")
    add("--write", type=Path, metavar="FOLDER", help="write the tasks in Harbor's layout, and end")
    return parser


def main(words: Sequence[str] | None = None) -> int:
    parser = _parser()
    chosen = parser.parse_args(words)
    try:
        if chosen.compare:
            print_line(*comparison(*map(read_results, chosen.compare)).splitlines())
            return 0
        if chosen.write:
            print_line(f"{len(_write(_sources(chosen.set), chosen.write))} tasks are in {chosen.write}")
            return 0
        if not chosen.model:
            parser.error("which model? --model NAME, with make: MODEL=NAME")
        return _evaluate(chosen)
    except (CcbError, OSError, TypeError, ValueError) as error:
        say(f"evaluation: {error}")
        return 2
    except KeyboardInterrupt:
        return 130


def _evaluate(chosen: argparse.Namespace) -> int:
    settings = AgentSettings(chosen.model, chosen.options)
    hosts = chosen.host or [""]
    for host in hosts:
        settings.connect(host, "~")  # raises for what is no option
    out = chosen.out or Path(re.sub(r"[^\w.-]+", "-", f"eval-{chosen.set}-{chosen.model}.jsonl"))
    results = ResultsFile(out, settings.model, settings.options)
    with tempfile.TemporaryDirectory(prefix="ccb-evaluation-") as folder:
        tasks = _tasks(chosen.set, chosen.tasks.split(","), Path(folder))
        attempts = [(task, number) for number in range(1, chosen.repeat + 1) for task in tasks]
        pending = [(task, number) for task, number in attempts if (task.name, number) not in results.done]
        evaluation = Evaluation(pending, settings, results, chosen.budget, print_line)
        asyncio.run(evaluation.run(hosts, chosen.jobs))
    if results.rows:
        print_line(*table(results.rows).splitlines())
    left = {(task.name, number) for task, number in attempts} - results.done
    if left:
        say(f"{len(left)} attempts have no score: not made, or a provider failed. The same command makes them.")
    return bool(left)


def _tasks(name: str, patterns: Sequence[str], folder: Path) -> list[Task]:
    """The tasks of a set that match; they are written into `folder` if they are in no folder yet."""
    if name in ("ccb", "human-eval"):
        tasks = _write(_sources(name), folder)
    else:
        tasks = [read_task(path.parent) for path in sorted(Path(name).glob("*/task.toml"))]
    found = [task for task in tasks if any(fnmatch(task.name, each) for each in patterns)]
    if not found:
        raise ValueError(f"no task of {name} is called {', '.join(patterns)}")
    return found


def _sources(name: str) -> Iterable[TaskSource]:
    if name != "human-eval":
        return own_tasks()
    _CACHE.mkdir(parents=True, exist_ok=True)
    return human_eval(_CACHE)


def _write(sources: Iterable[TaskSource], folder: Path) -> list[Task]:
    tasks = []
    for source in sources:
        source.write(folder / source.name)
        tasks.append(read_task(folder / source.name))
    return tasks


if __name__ == "__main__":
    sys.exit(main())
