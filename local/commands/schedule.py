"""`ccb schedule`: let the scheduler of this machine run ccb on a host, and show, run and remove such timers."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ccb.tunnel.errors import UsageError

from ..command_line.arguments import Arguments, HostCommandOptions
from ..command_line.exit_codes import ExitCode
from ..command_line.parser import parse_arguments
from ..config.log import state_dir
from ..config.settings_file import replace_file
from ..terminal.console import print_line
from .session_table import aligned
from .timers import scheduler_here

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_MARK = "# Written by `ccb schedule`: "
_PLACES = ("PATH", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME")
"""Variables that go along: programs and files of ccb are to be found where they are now."""


def run_schedule(arguments: Arguments, environ: Mapping[str, str]) -> int:
    action, name = arguments.rest[0], next(iter(arguments.rest[1:]), "")
    scheduler, directory = scheduler_here(environ), state_dir(environ) / "schedule"
    known = {path.stem: path for path in sorted(directory.glob("*.sh"))}
    script, on = directory / f"{name}.sh", arguments.host_command.on or ""
    timer, log = scheduler(script, on), shlex.quote(str(script.with_suffix(".log")))
    if action == "list":
        rows = [(path.stem, *_written_in(path)) for path in known.values()]
        print_line(*(aligned([("NAME", "ON", "COMMAND"), *rows], 0) if rows else ["Nothing is scheduled."]))
        return ExitCode.OK
    if action == "add":
        if name in known:
            raise UsageError(f"{name} is scheduled already", do=f"Remove it first: ccb schedule remove {name}")
        replace_file(script, _script(name, log, _checked(name, arguments), arguments.host_command, environ))
        try:
            timer.add()
        except (UsageError, OSError):
            script.unlink()
            raise
        print_line(f"Scheduled {name} ({on}). What it prints: cat {log}")
        print_line(f"Try it as the timer runs it, without the variables of your shell: ccb schedule run {name}")
        return ExitCode.OK
    if name not in known:
        raise UsageError(f"nothing is scheduled as {name!r}", do="`ccb schedule list` shows what is.")
    if action == "run":
        code = subprocess.call(timer.start)
        print_line(f"{name} ended with code {code}. What it prints: cat {log}")
        return ExitCode.OK if code == 0 else ExitCode.AGENT_FAILED
    timer.remove()
    script.unlink()
    print_line(f"Removed {name}.")
    return ExitCode.OK


def _checked(name: str, arguments: Arguments) -> Sequence[str]:
    """Return the words with which ccb is to be run. Raise UsageError for what cannot run without a person."""
    words = arguments.rest[2:]
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no name of a schedule", do="Use small letters, digits and '-', at most 40.")
    if not arguments.host_command.on:
        raise UsageError("ccb schedule add needs --on", do="Write --on 'Mon..Fri 06:30' (systemd) or '30 6 * * 1-5'.")
    asked = parse_arguments(words)
    if asked.command != "ssh" or not asked.streams.print or not (asked.prompt or "").strip():
        do = f"Write: ccb schedule add {name} --on … -- ssh HOST:/PATH -p 'PROMPT' --max-budget-usd N"
        raise UsageError("only a run on a host with -p and a prompt can be scheduled", do=do)
    if asked.sdk.max_budget_usd is None:
        raise UsageError("a run that nobody watches needs --max-budget-usd", do="Add it behind the prompt.")
    return words


def _script(name: str, log: str, words: Sequence[str], options: HostCommandOptions, environ: Mapping[str, str]) -> str:
    """Return the script that runs ccb as it would run here and now. Raise UsageError."""
    ccb = [sys.executable, "-P", "-m", "ccb", *words]  # -P: no modules of the directory
    places = " ".join(f"{each}={shlex.quote(environ[each])}" for each in _PLACES if environ.get(each))
    lines = [_MARK + json.dumps([options.on, shlex.join(["ccb", *words])]), f"exec >>{log} 2>&1", f"export {places}"]
    lines.append(f"cd {shlex.quote(str(Path.cwd()))} && {shlex.join(ccb)} </dev/null")
    if options.notify:
        lines.append(f"export CCB_SCHEDULE={name} CCB_EXIT_CODE=$?")
        lines.append(f"/bin/sh -c {shlex.quote(options.notify)}")
        lines.append("exit $CCB_EXIT_CODE")
    return "\n".join([*lines, ""])


def _written_in(script: Path) -> tuple[str, str]:
    """Return when a script is run, and the command in it."""
    on, command = json.loads(script.read_text(encoding="utf-8").partition("\n")[0].removeprefix(_MARK))
    return str(on), str(command)
