"""`ccb fleet` and `ccb proxy serve`."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace

from ccb.tunnel.errors import CcbError, ExitCode, UsageError
from ccb.tunnel.plain_text import HostText
from ccb.tunnel.tasks import cancelled
from ccb.tunnel.transports.login_prompts import NobodyToAsk

from ..command_line.arguments import Arguments
from ..command_line.option_values import shortened
from ..commands.host_commands import run_host_command
from ..config.policy import ledger_folder
from ..ledger.call_ledger import Spent, read_ledger
from ..terminal.console import print_line, say
from ..terminal.signals import Interrupts
from ..terminal.stdio import in_thread
from . import fleet_view as view
from .fleet_run import WAITS, FleetRun, TaskRow, allow_files, rows_of, task_arguments
from .kubernetes import kubernetes_engine
from .manifest import FleetFolder, FleetTask, Manifest, fleets, the_fleet
from .new_fleets import fleet_of_hosts, open_engine, own_options, submit_fleet
from .site_engine import SiteState

_LOOK_S = 3.0  # between two searches for new fleets
_RETRY_S = 60.0  # until a fleet is tried again whose site or collector refuses
_MAX_SAID = 60


async def run_fleet(arguments: Arguments, environ: Mapping[str, str]) -> ExitCode:
    """Raises CcbError."""
    action, *words = arguments.rest
    fleet = arguments.fleet
    if action == "submit":
        return await submit_fleet(arguments, environ)
    if action == "run" and not fleet.resume_failed:
        return await _run(await fleet_of_hosts(arguments, environ, words), arguments, environ)
    if action == "run" and (len(words) > 1 or fleet.inventories or fleet.name or arguments.prompt is not None):
        raise UsageError(
            "--resume-failed goes on with the hosts and the prompt of a fleet",
            do="Write ccb fleet run --resume-failed NAME.",
        )
    folder = the_fleet(environ, words[0] if words else None)
    if action == "logs":
        return await _logs(folder, words[1:], environ)
    if action == "status":
        return await _status(folder, arguments, environ)
    if action == "stop":
        return await _stop(folder, environ)
    if action == "collect" and (pid := folder.driver()):
        say(f"ccb: process {pid} runs the fleet {folder.name}; this one waits for its end")
        await folder.until_left()
    return await _run(folder, arguments, environ)


@asynccontextmanager
async def _driving(
    folder: FleetFolder, environ: Mapping[str, str], arguments: Arguments, table: view.FleetTable | None = None
) -> AsyncIterator[FleetRun]:
    """Yield what runs a fleet, logged in at its site if it has one. What the command line says is added to its options
    and limits. Without a table, each task that ends is printed as a line of JSON. Raises CcbError."""
    with folder.driven():
        manifest = folder.manifest()
        changes = {
            "options": (*manifest.options, *own_options(arguments)),
            "jobs": arguments.fleet.jobs or manifest.jobs,
            "budget_usd": arguments.sdk.max_budget_usd or manifest.budget_usd,
            "host_usd": arguments.fleet.host_usd or manifest.host_usd,
        }
        folder.write_manifest(manifest := manifest.model_copy(update=changes))
        allow_files(manifest.jobs)
        ended = table.ended if table else lambda row: print_line(json.dumps(view.task_json(folder.name, row)))
        prompts = NobodyToAsk(tell=table.tell if table else lambda sentence: say(f"ccb: {sentence}"))
        async with open_engine(manifest, environ) if manifest.engine else nullcontext() as engine:
            yield FleetRun(folder, manifest, prompts, environ, ended, engine)


async def _run(folder: FleetFolder, arguments: Arguments, environ: Mapping[str, str]) -> ExitCode:
    """Run what is left of a fleet, and print what came of it. The first Ctrl+C ends it in order."""
    has_terminal = sys.stdout.isatty() and sys.stderr.isatty() and not arguments.host_command.json
    table = view.FleetTable() if has_terminal else None
    async with _driving(folder, environ, arguments, table) as run:
        with Interrupts() as interrupts:
            working = asyncio.create_task(run.run(failed=arguments.fleet.resume_failed), name="fleet")
            showing = [asyncio.create_task(table.show(run), name="table of a fleet")] if table else []
            interrupts.first.add_done_callback(lambda _: run.stop())
            interrupts.second.add_done_callback(lambda _: working.cancel())
            try:
                await asyncio.wait({working})
            finally:
                await cancelled(*showing, working)
            if not working.cancelled():
                working.result()
            if table:
                view.print_answers(run.rows)
                say("", view.totals(run.rows, run.manifest, run.usd))
            else:
                print_line(json.dumps(view.summary_json(folder.name, run.rows, run.usd)))
            view.say_end(run)
            return interrupts.first.result() if interrupts.first.done() else view.exit_code(run)


async def _status(folder: FleetFolder, arguments: Arguments, environ: Mapping[str, str]) -> ExitCode:
    manifest, pid = folder.manifest(), folder.driver()
    rows = rows_of(folder, manifest, f"{WAITS} or works" if pid else WAITS)
    if manifest.engine:
        await _show_states(manifest, rows, environ)
    if arguments.host_command.json:
        print_line(*(json.dumps(view.task_json(folder.name, row)) for row in rows))
        return ExitCode.OK
    print_line(*map(view.row_line, rows))
    ledger, nothing = ledger_folder(environ), Spent()
    spent = await in_thread(lambda: read_ledger(ledger, lambda ledger: ledger.spent(fleet=manifest.id), nothing))
    print_line(f"{view.totals(rows, manifest, spent.usd)}.{f' ccb with process {pid} runs it.' if pid else ''}")
    return ExitCode.OK


async def _show_states(manifest: Manifest, rows: Sequence[TaskRow], environ: Mapping[str, str]) -> None:
    """Let the rows of a fleet tell what the site says of its tasks."""
    try:
        async with open_engine(manifest, environ) as engine:
            found = await engine.tasks(manifest.places)
    except CcbError as error:
        say(f"ccb: {error.what}")
        return
    for row in rows:
        if (task := found.get(row.task.index)) is not None:
            said = HostText(task.said).line(_MAX_SAID)
            row.doing = said if task.state is SiteState.RUNNING else f"{WAITS} {said}".rstrip()


async def _logs(folder: FleetFolder, words: Sequence[str], environ: Mapping[str, str]) -> ExitCode:
    manifest, wanted = folder.manifest(), words[0] if words else ""
    found = [each for each in manifest.tasks if wanted in ("", each.host, each.place, str(each.index))]
    if not found:
        raise UsageError(f"no task of {folder.name} is on {shortened(wanted)}", do=f"ccb fleet status {folder.name}")
    code = ExitCode.OK
    for task in found:
        if len(found) > 1:
            print_line("", f"== {task.index} {task.host}")
        code = max(code, await _logs_of(manifest, task, environ))
    return code


async def _logs_of(manifest: Manifest, task: FleetTask, environ: Mapping[str, str]) -> ExitCode:
    arguments = task_arguments(manifest, task)
    command = replace(arguments, command="logs", session=replace(arguments.session, resume=task.session))
    try:
        if manifest.engine == "kubernetes":
            async with kubernetes_engine(manifest, environ) as engine:
                state = (await engine.tasks(manifest.places)).get(task.index)
                command = replace(command, connection=engine.way_to(task.index, state))
        return await run_host_command(command, environ)
    except CcbError as error:
        say(f"ccb: {task.host}: {error.what}")
        return error.exit_code


async def _stop(folder: FleetFolder, environ: Mapping[str, str]) -> ExitCode:
    """Let the ccb that runs the fleet end it, and end what a site runs. Raises CcbError."""
    engine_name = folder.manifest().engine
    if not engine_name and not folder.driver():
        do = "What a ccb that died has left ends with its turn; `ccb stop HOST` ends it now."
        raise UsageError(f"nobody runs the fleet {folder.name}", do=do)
    folder.stop_mark.touch()
    await folder.until_left()
    if engine_name:
        with folder.driven():
            manifest = folder.manifest()
            async with open_engine(manifest, environ) as engine:
                await engine.cancel(len(manifest.submissions))
    print_line(f"The fleet {folder.name} is stopped. Go on: ccb fleet run --resume-failed {folder.name}")
    return ExitCode.OK


async def serve_fleets(arguments: Arguments, environ: Mapping[str, str]) -> ExitCode:
    """Hold the credential for all submitted fleets that there are and come, until this is ended."""
    served: set[str] = set()
    async with asyncio.TaskGroup() as group:
        while True:
            for folder in fleets(environ):
                if folder.name not in served:
                    group.create_task(_serve(folder, environ), name=f"fleet {folder.name}")
                served.add(folder.name)
            await asyncio.sleep(_LOOK_S)


async def _serve(folder: FleetFolder, environ: Mapping[str, str]) -> None:
    """Collect a fleet of a site, again after it was stopped or the site was away, until it has ended."""
    while folder.path.exists():
        try:
            manifest = folder.manifest()
            if not manifest.engine or len(folder.results()) == len(manifest.tasks):
                return
            if not folder.stop_mark.exists() and not folder.driver():
                async with _driving(folder, environ, Arguments()) as run:
                    await run.run(failed=False)
                    view.say_end(run)
                    if not run.stopping:
                        return
        except CcbError as error:
            say(f"ccb: {folder.name}: {error.what}")
        await asyncio.sleep(_RETRY_S)
