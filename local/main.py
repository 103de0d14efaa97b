"""The command `ccb`: nothing heavy is imported before the arguments are parsed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import shutil
import sys
from collections.abc import Coroutine, Mapping, Sequence
from importlib import import_module
from typing import Any

import ccb
from ccb.tunnel.errors import CcbError, UsageError
from ccb.tunnel.heavy_imports import collection_paused, take_short_turns

from .command_line.arguments import Arguments
from .command_line.exit_codes import ExitCode, error_lines
from .command_line.parser import parse_arguments
from .command_line.subcommands import guide_page, help_text, manual_page
from .command_line.transport_choice import private_texts
from .config.log import logging_to_file, state_dir
from .first_run import set_up
from .terminal import console
from .terminal.console import say
from .terminal.signals import ended_by_signals

log = logging.getLogger(__name__)
_RUNNERS = {
    "acp": "acp.acp_agent:run_acp",
    "auth": "commands.auth:run_auth",
    "config": "commands.config:run_config",
    "models": "commands.models:run_models",
    "usage": "commands.usage:run_usage",
    "proxy": "commands.usage:run_proxy",
    "proxy serve": "fleet.fleet_commands:serve_fleets",
    "audit": "commands.usage:run_audit",
    "mcp": "commands.mcp_command:run_mcp",
    "completion": "commands.completion_scripts:print_script",
    "upgrade": "commands.upgrade:run_upgrade",
    "dash": "dashboard:run_dash",
    "serve": "serve.serve:run_serve",
    "schedule": "commands.schedule:run_schedule",
    "fleet": "fleet.fleet_commands:run_fleet",
    "doctor": "doctor.doctor:print_report",
    "trust": "commands.trust:run_trust",
    "ports": "commands.ports:run_ports",
    "send": "commands.send:run_send",
    "disconnect": "commands.host_commands:run_disconnect",
    "cp": "commands.cp:copy_files",
    "export": "commands.move:run_export",
    "import": "commands.move:run_import",
    "move": "commands.move:run_move",
    "shell": "commands.shell:run_shell",
}


def run(argv: Sequence[str]) -> int:
    with console.guarded_streams():
        code = _answer(argv)
    unwritable = console.flush_stdout()
    return code if code == ExitCode.HANGUP else unwritable or code  # with the window stdout is gone, too


def _answer(argv: Sequence[str]) -> int:
    try:
        arguments = parse_arguments(argv, remote=os.environ.get("CCB_REMOTE", ""))
    except CcbError as error:
        say(*error_lines(error))
        return error.exit_code
    for hint in arguments.hints:
        say(f"ccb: {hint}")
    take_short_turns()
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, most))  # credentials are in the memory of this process
    own_file = arguments.sdk.debug_file
    debug, commands = arguments.debug or own_file is not None, private_texts(arguments.connection)
    with logging_to_file(debug=debug, commands=commands, own_file=own_file) as log_file:
        if debug:
            say(f"ccb: log file {log_file}")
        try:
            attended = all(stream.isatty() for stream in (sys.stdin, sys.stderr))
            if attended and console.restore_after_kill(state_dir() / console.SCREENS):
                say("ccb: an earlier ccb was killed in this terminal, which is restored now")
            return _run(arguments)
        except CcbError as error:
            log.info("ended by an error", exc_info=error)
            say(*error_lines(error))
            return error.exit_code
        except KeyboardInterrupt:
            say("", "ccb: interrupted")
            return ExitCode.INTERRUPTED
        except console.StdoutFailed as error:
            log.info("stdout cannot be written", exc_info=error)
            return console.give_up_stdout(error)
        except (MemoryError, ImportError):  # no bugs: the last handler in `ccb.__main__` says what to do
            raise
        except Exception as error:  # a bug: it is told here
            log.error("a bug", exc_info=error)
            say(f"ccb: a bug in ccb: {type(error).__name__}", f"  The details are in {log_file}")
            say("  -> Please report it with that file. Check first that it shows nothing you want to keep private.")
            return ExitCode.INTERNAL


def run_named(arguments: Arguments, environ: Mapping[str, str] = os.environ) -> int:
    """Run a command other than a session. Only its own modules are loaded."""
    named = "proxy serve" if (arguments.command, *arguments.rest[:1]) == ("proxy", "serve") else arguments.command
    module, _, function = _RUNNERS.get(named, "commands.host_commands:run_host_command").partition(":")
    run = getattr(import_module(f".{module}", __package__), function)
    done: int | Coroutine[Any, Any, ExitCode] = run(arguments, environ)
    return done if isinstance(done, int) else asyncio.run(ended_by_signals(done))


def _help(arguments: Arguments) -> int:
    """Print the help of a command or topic, with its pages of the guide; what is longer than the screen is paged."""
    asked = arguments.command == "help" and not arguments.help
    if asked and arguments.host_command.man:
        console.print_line(*manual_page().splitlines())
        return ExitCode.OK
    topic = arguments.rest[0] if asked and arguments.rest else ""
    width, height = shutil.get_terminal_size((100, 24))
    text = help_text(min(width, 120), topic if asked else arguments.command)
    if pages := guide_page(topic):
        text = f"{text}\n{pages}" if text else pages
    if pages and text.count("\n") >= height and all(stream.isatty() for stream in (sys.stdin, sys.stdout)):
        from .terminal.editor import NoEditor, page

        with contextlib.suppress(NoEditor):
            asyncio.run(page(text, os.environ))
            return ExitCode.OK
    console.print_line(*text.splitlines())
    return ExitCode.OK


def _run(arguments: Arguments) -> int:
    if arguments.version:
        console.print_line(ccb.VERSION_ANSWER)
        return ExitCode.OK
    if arguments.help or arguments.command == "help":
        return _help(arguments)
    if arguments.command not in ("", "ssh", "attach"):
        return run_named(arguments)
    if arguments.headless:
        with collection_paused():
            from .headless.headless_run import run_headless

        return asyncio.run(run_headless(arguments))
    if arguments.screen.plain or os.environ.get("TERM", "") == "dumb":
        with collection_paused():
            from .plain.line_repl import run_plain
        set_up(arguments)
        return asyncio.run(run_plain(arguments))
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):  # the REPL draws on stderr
        raise UsageError(
            "the terminal interface needs a terminal on stdin, stdout and stderr",
            do='For a run without one: -p "what to do"; for a session as lines: --plain.',
        )
    with collection_paused():
        from .repl import run_interactive
    set_up(arguments)
    return asyncio.run(run_interactive(arguments))
