"""What `ccb fleet run` and `ccb fleet submit` make of the command line: the tasks of a new fleet."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from ccb.tunnel.errors import CcbError, ExitCode, UsageError

from ..command_line.arguments import Arguments, Group
from ..command_line.option_values import shortened
from ..command_line.target import HOME, parse_target
from ..command_line.transport_choice import option_words
from ..headless.stdin_input import read_prompt
from ..terminal.console import print_line, say
from .fleet_hosts import FleetPlace, fleet_places
from .fleet_run import task_arguments
from .kubernetes import kubernetes_engine, kubernetes_site
from .manifest import FleetFolder, FleetTask, Manifest, new_fleet
from .site_engine import SiteEngine
from .slurm import slurm_engine

_JOBS = 50
_STDIN = 0


async def fleet_of_hosts(arguments: Arguments, environ: Mapping[str, str], words: Sequence[str]) -> FleetFolder:
    """Write the manifest of a new fleet. Raises CcbError."""
    places = await fleet_places(words, arguments.fleet.inventories, arguments.fleet.limit, environ)
    prompt = await read_prompt(arguments.prompt, _STDIN, say=say)
    return await _made(arguments, environ, _of_places(places, prompt), "", {})


async def submit_fleet(arguments: Arguments, environ: Mapping[str, str]) -> ExitCode:
    """Write the manifest of a new fleet, and hand its tasks to the site. Raises CcbError."""
    fleet = arguments.fleet
    if (fleet.slurm is None) == (fleet.kubernetes is None):
        do = "Write ccb fleet submit --slurm LOGIN:/PATH …, or --kubernetes CONTEXT --job FILE --path /PATH …"
        raise UsageError("ccb fleet submit needs an engine", do=do)
    if (fleet.prompts is None) == (arguments.prompt is None):
        raise UsageError("ccb fleet submit needs one of -p and --prompts", do="Write --prompts FILE, a task a line.")
    if fleet.prompts is not None:
        lines = await asyncio.to_thread(_read_prompts, fleet.prompts)
    else:
        lines = [PromptLine(prompt=await read_prompt(arguments.prompt, _STDIN, say=say))]
    if not lines:
        raise UsageError(f"{fleet.prompts} has no tasks", do="Write a task a line.")
    if fleet.slurm is not None:
        engine, place, site = "slurm", fleet.slurm, {"options": " ".join((fleet.sbatch or "").split())}
    else:
        engine, place = "kubernetes", f"kubernetes:{fleet.path or HOME}"
        site = (await kubernetes_site(fleet, environ)).model_dump()
    folder = await _made(arguments, environ, _of_lines(lines, place), engine, site)
    print_line(f"The fleet {folder.name} is submitted; tasks: {len(lines)}.")
    say(f"ccb: its model calls wait for this machine. Run: ccb fleet collect {folder.name} (or ccb proxy serve)")
    return ExitCode.OK


def own_options(arguments: Arguments) -> tuple[str, ...]:
    """Return the words of the command line that are for each session. The budget is for all together."""
    own = replace(arguments, sdk=replace(arguments.sdk, max_budget_usd=None))
    return tuple(option_words(own, Group.CONNECTION, Group.AGENT, Group.PERMISSIONS, Group.SDK))


async def _made(
    arguments: Arguments, environ: Mapping[str, str], tasks: Iterable[FleetTask], engine: str, site: dict[str, Any]
) -> FleetFolder:
    """Make the folder, and hand the tasks to the site if there is one. What it refuses leaves nothing. Raises
    CcbError."""
    manifest = Manifest(
        name=arguments.fleet.name or time.strftime("%m%d-%H%M%S"),
        options=own_options(arguments),
        tasks=tuple(tasks),
        jobs=arguments.fleet.jobs or _JOBS,
        budget_usd=arguments.sdk.max_budget_usd,
        host_usd=arguments.fleet.host_usd,
        engine=engine,
        site=site,
    )
    for task in manifest.tasks:
        task_arguments(manifest, task)  # what is wrong with the command line is told before anything begins
    if not engine:
        return new_fleet(environ, manifest)
    async with open_engine(manifest, environ) as at_site:
        folder = new_fleet(environ, manifest)
        try:
            folder.hand_in(manifest, range(len(manifest.tasks)))
            await at_site.submit(1, manifest.tasks)
        except CcbError:
            try:
                await at_site.cancel(1)
                shutil.rmtree(folder.path)
            except CcbError:
                say(f"ccb: perhaps the site has the tasks. `ccb fleet collect {folder.name}` goes on with them.")
            raise
    return folder


def open_engine(manifest: Manifest, environ: Mapping[str, str]) -> AbstractAsyncContextManager[SiteEngine]:
    """Raises CcbError when it is entered."""
    return (slurm_engine if manifest.engine == "slurm" else kubernetes_engine)(manifest, environ)


def _of_places(places: Sequence[FleetPlace], prompt: str) -> Iterator[FleetTask]:
    """Yield the tasks. One that shares its host with others is called by its place."""
    of_host = Counter(each.host for each in places)
    for index, each in enumerate(places):
        name = each.host if of_host[each.host] == 1 else each.place
        yield FleetTask(index=index, host=name, place=each.place, prompt=prompt, options=each.options)


class PromptLine(BaseModel, extra="forbid", frozen=True):
    """A line of --prompts. `directory` is below that of --slurm or --path, or absolute."""

    prompt: str = Field(min_length=1)
    directory: str = ""
    settings: dict[str, Any] = {}


def _of_lines(lines: Sequence[PromptLine], place: str) -> Iterator[FleetTask]:
    """Yield the tasks. `place` is that of the login node and the directory from which lines count."""
    target = parse_target(place)
    if target.port is not None:
        raise UsageError("--slurm takes no port", do="Give it with -P.")
    login, top = place.removesuffix(target.path or "").rstrip(":"), target.path or HOME
    for index, line in enumerate(lines):
        directory = line.directory if line.directory.startswith(("/", "~")) else f"{top}/{line.directory}".rstrip("/")
        name, where = f"task {index} {line.directory}".rstrip(), f"{login}:{directory}"
        options = (f"--settings={json.dumps(line.settings)}",) if line.settings else ()
        yield FleetTask(index=index, host=name, place=where, prompt=line.prompt, options=options)


def _read_prompts(file: str) -> list[PromptLine]:
    """Raises UsageError."""
    try:
        texts = Path(file).expanduser().read_text(encoding="utf-8").splitlines()
        return [PromptLine.model_validate_json(each) for each in texts if each.strip()]
    except (OSError, ValueError, RuntimeError) as error:
        do = 'A line is {"prompt": "…", "directory": "…", "settings": {…}}; only the prompt is needed.'
        raise UsageError(f"--prompts {shortened(file)} cannot be read", evidence=str(error), do=do) from None
