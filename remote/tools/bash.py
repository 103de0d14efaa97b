"""Bash."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ccb.tunnel.wire import tool_traits
from ccb.tunnel.wire.spelling import spelled

from ..permissions.matchers import LEAVE_SANDBOX
from ..sandbox.cage_rules import CageRules
from ..sandbox.cage_server import CageUnavailable
from ..sandbox.stops import stopped
from ..system.deadline import in_thread
from ..system.host import is_under, nearest_directory
from ..system.process import Process
from ..system.regular_files import NotAFile, open_regular
from .background_shells import MAX_RUNNING, ShellStart
from .input_schema import flag, object_of, text
from .output import MAX_OUTPUT_CHARS, Output, clean
from .tool_contract import Json, Tool, ToolContext, ToolDeclaration, ToolRefused, ToolResult

DEFAULT_TIMEOUT = 120_000  # in milliseconds
MAX_TIMEOUT = 600_000  # in milliseconds

_MAX_COMMAND = 100_000  # bytes: what the kernel accepts as one argument, less what ccb adds
_PROGRESS_EVERY = 0.1  # seconds
_ROOM = 200  # characters for a note about the output
_PATH_CHARS = 4096  # of the directory in such a note
_TAIL_LINES = 20
_TAIL_BYTES = 4096
_MAX_STRUCTURED = 40_000  # characters; more than the model gets

_HOW_TO_READ = "TaskOutput (or BashOutput) gives its output, TaskStop (or KillShell) ends it."
_HOW_TO_ASK = f"To ask the user to run it without the sandbox, call Bash again with {LEAVE_SANDBOX}: true."
_SET_ASIDE = "set aside by the sandbox, because it may act outside of the sandbox later"
_TO_KEEP = f"If it is needed, ask the user: call Bash with the command that moves it back and {LEAVE_SANDBOX}: true."
_NO_TERMINAL = (
    r"(?im)/dev/tty\b|\bnot a (?:tty|terminal)\b|\bnot (?:from )?a terminal|non-TTY|TTY device|terminal is required"
    r"|no tty present|run from a terminal|connected to a terminal|[Oo]pen(?:ing)? terminal|Inappropriate ioctl"
    r"|terminal prompts disabled|could not read (?:Username|Password)|password is required|no askpass"
    r"|No pinentry|EOF when reading a line|end of file on stdin|Host key verification failed"
    r"|Permission denied \([^)]*(?:publickey|password|keyboard)|failed tty get|empty commit message"
    r"|[\[(]y(?:es)?/no?[\])]|^[\w\[\]@'. -]{0,40}(?:password|pass ?phrase)(?: for [^\n:]*)?:|[:?>)\]] \Z|[?:]\Z"
)
"""What programs print when they want to ask somebody, at last an open question. Compiled only when a command fails."""

_HOW_TO_ANSWER = (
    "There is no terminal, and nobody can be asked here. Give the answer beforehand (an option such as -y or -m, a "
    "file, stdin), or ask the user to run this in a terminal of their own."
)
_SLEEP = re.compile(r"\s*sleep\b")  # the model waits on purpose
_ASIDE_SHOWN = 5
_ASIDE_CHARS = 200

_BASH_SCHEMA = object_of(
    {
        "command": text("The command to run", 1),
        "timeout": {
            "type": "number",
            "exclusiveMinimum": 0,
            "description": f"Optional timeout in milliseconds (at most {MAX_TIMEOUT})",
        },
        "description": text("What the command does, in 5 to 10 words"),
        "run_in_background": flag("True to go on without waiting for the command", default=False),
        LEAVE_SANDBOX: flag("True to ask the user to run the command without the sandbox", default=False),
    },
    "command",
)

_BASH_DESCRIPTION = (
    "Runs a bash command on the machine the session is on. The working directory stays from one command to the next; "
    "shell variables and functions do not. There is no terminal and no input.\n"
    f"- timeout is in milliseconds: {DEFAULT_TIMEOUT} by default, {MAX_TIMEOUT} at most. A command that takes "
    "longer is stopped.\n"
    f"- Output over {MAX_OUTPUT_CHARS} characters goes to a file: you get its head, its tail and the path.\n"
    f"- With run_in_background the command goes on while you do other things. {_HOW_TO_READ}\n"
    "- Use the Read, Edit, Write, Grep, Glob and LS tools rather than cat, sed, echo, grep, find and ls.\n"
    "- Commands that are not approved one by one run in a sandbox. If a result says 'stopped by the sandbox' and the "
    f"command is needed, call again with {LEAVE_SANDBOX}: true; the user is asked. Never set it at the first try.\n"
    "- Quote paths that contain spaces. Join commands that depend on each other with &&."
)


class Bash(Tool):
    """Runs a command. The next one starts where this one ended, if that is in the session's directories."""

    declaration = ToolDeclaration(tool_traits.BASH, _BASH_DESCRIPTION, _BASH_SCHEMA, MAX_OUTPUT_CHARS + _PATH_CHARS)

    def is_read_only(self, tool_input: Json) -> bool:
        from ..permissions.shell.read_only import changes_directory, is_read_only_command  # imports much

        command = tool_input["command"]
        if tool_input.get("run_in_background") or tool_input.get(LEAVE_SANDBOX):
            return False
        return is_read_only_command(command) and not changes_directory(command)

    def validate(self, tool_input: Json, context: ToolContext) -> str | None:
        command = tool_input["command"]
        if not command.strip():
            return "The command is empty."
        if "\0" in command:
            return "The command contains a NUL character."
        try:
            size = len(command.encode("utf-8"))
        except UnicodeEncodeError:
            return "The command contains a lone surrogate, which UTF-8 cannot write."
        if size > _MAX_COMMAND:
            return f"The command has {size:,} bytes, more than {_MAX_COMMAND:,}: write it to a file and run that."
        if tool_input.get("timeout", 0) > MAX_TIMEOUT:
            return f"timeout is at most {MAX_TIMEOUT} milliseconds; use run_in_background for longer commands."
        return None

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        call, does = context.call, str(tool_input.get("description") or "")
        start = ShellStart(tool_input["command"], does, call.tool_use_id, call.agent_id, call.cage)
        if tool_input.get("run_in_background"):
            return await _start_in_background(start, context)
        return await _Foreground(start, context).run((tool_input.get("timeout") or DEFAULT_TIMEOUT) / 1000)


def _shell(context: ToolContext) -> str:
    return context.host.which("bash") or context.host.which("sh") or "/bin/sh"


def _directory(context: ToolContext) -> tuple[str, str]:
    """Return the directory in which the next command runs, and a note for the model if it is another one than it should
    be, because that is gone. The disk may not answer: call this in a thread."""
    there = nearest_directory(context.shells.directory(context.host, context.roots))
    wanted, context.shells.lost = context.shells.lost or context.shells.cwd, ""
    if there == wanted:
        return there, ""
    why = "cannot be entered" if os.path.isdir(wanted) else "is no directory any more"
    return there, f"{spelled(wanted)} {why}: the command ran in {spelled(there)}"


async def _start_in_background(start: ShellStart, context: ToolContext) -> ToolResult:
    if context.shells.running >= MAX_RUNNING:
        raise ToolRefused(f"{MAX_RUNNING} background commands run already. End one with TaskStop or KillShell first.")
    cwd, moved = await in_thread(_directory, context)
    output = Output(context.spill, "background", to_file=True)
    try:
        process = await context.host.start(
            [_shell(context), "-c", start.command], cwd, output.add, context.login.variables, cage=start.cage
        )
    except OSError as error:
        output.close()
        raise _not_started(error) from None
    task = context.shells.add(start, process, output).task
    text = f"Command running in background with ID: {task.id}. You are told when it ends. {_HOW_TO_READ}"
    if output.path:
        text += f" Output is also written to: {output.path}"
    return ToolResult(_joined(text, moved), structured=_structured("", backgroundTaskId=task.id))


class _Foreground:
    """Runs one foreground command until it ends, times out, is cancelled or goes on in the background."""

    def __init__(self, start: ShellStart, context: ToolContext) -> None:
        self._start = start
        self._context = context
        self._moves = asyncio.Event()
        self._by_itself = False
        self._output = Output(context.spill, "bash")
        self._started = time.monotonic()
        self._cwd = self._elsewhere = ""  # where it runs, and a note if that is another directory than it should be

    async def run(self, timeout: float) -> ToolResult:
        context, command = self._context, self._start.command
        report, cage = context.spill.scratch(), self._start.cage
        if cage is not None and report:
            cage = replace(cage, write=(*cage.write, report))
        context.shells.foreground.add(self._moves)  # from now on, the person may move it to the background
        process: Process | None = None
        try:
            self._cwd, self._elsewhere = await in_thread(_directory, context)
            is_astray = self._cwd != context.shells.cwd
            argv = _arguments(_shell(context), command, report)
            process = await context.host.start(argv, self._cwd, self._output.add, context.login.variables, cage=cage)
        except OSError as error:
            raise _not_started(error) from None
        finally:
            if process is None:
                context.shells.foreground.discard(self._moves)
                _taken(report)
                self._output.close()
        ended = goes_on = interrupted = False
        moved = ""
        try:
            ended = await self._watch(process, timeout)
            goes_on = not ended and self._moves.is_set()
        except asyncio.CancelledError:
            interrupted = True
            raise
        finally:
            if not goes_on:
                try:
                    if not ended:
                        await process.stop()
                finally:
                    if interrupted:
                        context.call.stopped(self._output.text(MAX_OUTPUT_CHARS - _ROOM))
                    self._output.close()
                    moved = _taken(report)
        if goes_on:
            return self._go_on(process, report)
        if not ended:
            return self._timed_out(timeout, aside_note(process))
        left = context.shells.left(process, self._start)
        news = "" if context.call.agent_id else await context.directory.news()
        if news:
            context.call.remind("root", news)
        code, narrowed = process.returncode or 0, await in_thread(narrowing_note, command, self._cwd, context.roots)
        stop = stop_note(self._start.cage, self._end, code, self._cwd, command)
        where = self._move(moved, is_astray, has_report=bool(report))
        notes = (where, stop, narrowed, aside_note(process), self._asked(code), left)
        return self._result(code, _joined(self._elsewhere, *notes))

    @property
    def _end(self) -> str:
        return self._output.last(_TAIL_LINES, _TAIL_BYTES)

    def _asked(self, code: int) -> str:
        """Return how the model is to go on if a command that failed seems to have asked somebody, else ""."""
        return _HOW_TO_ANSWER if code and re.search(_NO_TERMINAL, self._end) else ""

    def _go_on(self, process: Process, report: str) -> ToolResult:
        output = self._output
        output.keep()
        shell = self._context.shells.add(self._start, process, output, lambda: _taken(report))
        shell.position = output.total
        why = f"It takes longer than {self._context.shells.background_after:g} s, so it" if self._by_itself else "It"
        note = f"{why} goes on in the background with ID: {shell.task.id}. You are told when it ends. {_HOW_TO_READ}"
        if output.path:
            note += f" All its output is in {output.path}"
        note = _joined(note, self._elsewhere)
        text = output.text(MAX_OUTPUT_CHARS - len(note) - _ROOM).rstrip("\n")
        by = "assistantAutoBackgrounded" if self._by_itself else "backgroundedByUser"
        structured = {**_structured(text, backgroundTaskId=shell.task.id), by: True}
        return ToolResult(f"{note}\nOutput so far:\n{text}" if text else note, structured=structured)

    async def _watch(self, process: Process, timeout: float) -> bool:
        """Wait for the process, and report its output meanwhile. Return whether the process ended before it was out of
        time, or was to go on in the background."""
        waiter = asyncio.ensure_future(process.wait())
        shells, report, shown = self._context.shells, self._context.call.progress, 0
        budget = None if _SLEEP.match(self._start.command) else shells.background_after
        try:
            while not waiter.done():
                spent = time.monotonic() - self._started
                left = timeout - spent
                if budget is not None and spent >= budget:
                    self._by_itself = True
                    self._moves.set()
                if self._moves.is_set() and shells.running >= MAX_RUNNING:
                    budget = None
                    self._moves.clear()
                if self._moves.is_set() or left <= 0:
                    return False
                await asyncio.wait({waiter}, timeout=min(left, _PROGRESS_EVERY))
                if not waiter.done() and self._output.total != shown:  # else the result follows, and says all of it
                    shown = self._output.total
                    spent = round(time.monotonic() - self._started, 3)
                    report({"output": self._end, "total_bytes": shown, "elapsed_seconds": spent})
            return True
        finally:
            shells.foreground.discard(self._moves)
            waiter.cancel()
            await asyncio.wait({waiter})

    def _move(self, directory: str, is_astray: bool, *, has_report: bool) -> str:
        """Let the next command start where this one ended. Return a note if that is outside of the session."""
        from ..permissions.shell.read_only import changes_directory  # imports much

        host, shells, cwd = self._context.host, self._context.shells, self._context.cwd
        if not has_report and changes_directory(self._start.command):
            return f"Shell cwd stays {spelled(shells.cwd)}: this host has no place to note where a command ends"
        if is_astray or not directory or directory in (shells.cwd, host.real_path(shells.cwd)):
            return ""
        if any(is_under(directory, host.real_path(root)) for root in self._context.roots):
            shells.cwd = directory
            return ""
        shells.cwd = cwd
        return f"Shell cwd was reset to {spelled(cwd)}"

    def _timed_out(self, timeout: float, aside: str) -> ToolResult:
        ended = f"Command timed out after {timeout:g} s and was stopped, with all it had started."
        note = _joined(ended, self._elsewhere, aside, self._asked(-1))
        text = self._output.text(MAX_OUTPUT_CHARS - len(note) - 1)
        structured = _structured(text, interrupted=True, path=self._output.path)
        return ToolResult(f"{note}\n{text}".rstrip("\n"), is_error=True, structured=structured)

    def _result(self, code: int, note: str) -> ToolResult:
        text = self._output.text(MAX_OUTPUT_CHARS - _ROOM).rstrip("\n")
        structured = _structured(text, path=self._output.path, stderr=note)
        if code:
            exit_text = f"Exit code {code}" if code > 0 else f"Exit code {128 - code} (killed by signal {-code})"
            text = f"{exit_text}\n{text}" if text else exit_text
        elif not text.strip():
            text = "(Bash completed with no output)"
        return ToolResult(f"{text}\n{note}" if note else text, is_error=code != 0, structured=structured)


def stop_note(cage: CageRules | None, output: str, code: int, cwd: str, command: str) -> str:
    """Return the note for the model about what a cage stopped; "" if it stopped nothing. `output` is the end of the
    command's output, and `cwd` the directory in which it began."""
    line = stopped(output, code, cage, cwd, command) if cage is not None else ""
    return f"{line}\n{_HOW_TO_ASK}" if line else ""


def aside_note(process: Process) -> str:
    """Return the note for the model about files that were set aside when a command had ended, once; "" for none."""
    lines, process.notes = process.notes, []
    if not lines:
        return ""
    more = f"; and {len(lines) - _ASIDE_SHOWN:,} more" if len(lines) > _ASIDE_SHOWN else ""
    shown = "; ".join(clean(line.encode("utf-8", "replace"))[:_ASIDE_CHARS] for line in lines[:_ASIDE_SHOWN])
    return f"{_SET_ASIDE}: {shown}{more}\n{_TO_KEEP}"


def _not_started(error: OSError) -> ToolRefused:
    text = f"The command could not be started: {error}"
    return ToolRefused(f"{text}\n{_HOW_TO_ASK}" if isinstance(error, CageUnavailable) else text)


def _joined(*notes: str) -> str:
    return "\n".join(filter(None, notes))


def _structured(text: str, *, interrupted: bool = False, path: str = "", stderr: str = "", **more: str) -> Json:
    """Return the result in the shape of the public protocol: `stdout` holds both streams, `stderr` a note by ccb."""
    structured: Json = {"stdout": text[:_MAX_STRUCTURED], "stderr": stderr, "interrupted": interrupted}
    structured.update(isImage=False, noOutputExpected=False, **more)
    return {**structured, "persistedOutputPath": path} if path else structured


def _arguments(shell: str, command: str, report: str) -> list[str]:
    """Return the argv for a command, with a trap that writes the directory it ends in to `report`. The command goes
    through `eval`, so that a syntax error shows the command and not the trap."""
    if not report:
        return [shell, "-c", command]
    quoted = shlex.quote(report).replace("'", "'\\''")  # the text of the trap is itself in single quotes
    script = f"trap 'pwd -P >|{quoted} 2>/dev/null' EXIT; eval \"set --;$1\""
    return [shell, "-c", script, os.path.basename(shell), command]


_MAX_BYTES = 65536


def _taken(report: str) -> str:
    if not report:
        return ""
    try:
        with open(report, "rb") as file:
            return os.fsdecode(file.read(_MAX_BYTES)).removesuffix("\n")
    except OSError:
        return ""
    finally:
        with contextlib.suppress(OSError):
            os.unlink(report)


_OBEYED = {"rg": (".rgignore", ".ignore"), **dict.fromkeys(("fd", "fdfind"), (".fdignore", ".ignore"))}
_OBEYED["ag"] = (".agignore", ".ignore")
_MENTIONED = re.compile(r"\b(?:rg|fd|fdfind|ag)\b")
_SHOWS_ALL = re.compile(r"\s(?:-[a-zA-Z]*u[a-zA-Z]*|--unrestricted|--no-ignore(?:-dot)?)(?!\S)")
_MAX_DIRECTORIES = 2000
_MAX_IGNORE_BYTES = 1 << 16
_SHOWN = 3


def narrowing_note(command: str, cwd: str, roots: Sequence[str]) -> str:
    """Return a note for the model about files in the session's directories `roots` that may have narrowed a search of a
    command, "" if there are none. What .gitignore leaves out is expected, and is not told."""
    told = []
    for program in dict.fromkeys([] if _SHOWS_ALL.search(command) else _MENTIONED.findall(command)):
        found = list(dict.fromkeys(_narrowing_files([cwd, *roots], _OBEYED[program])))
        if found:
            shown = ", ".join(os.path.relpath(path, cwd) for path in found[:_SHOWN])
            more = ", …" if len(found) > _SHOWN else ""
            told.append(f"({program} left out what {shown}{more} of the project names; --no-ignore shows all.)")
    return "\n".join(told)


def _narrowing_files(tops: Sequence[str], names: Sequence[str]) -> Iterator[str]:
    """Yield the files with these names that have a line which is no comment, in and below directories."""
    left = _MAX_DIRECTORIES
    for top in dict.fromkeys(map(os.path.realpath, tops)):
        for directory, directories, files in os.walk(top):
            left -= 1
            if left < 0:
                return
            directories[:] = [each for each in directories if each[0] != "." and each != "node_modules"]
            for path in (os.path.join(directory, name) for name in names if name in files):
                with contextlib.suppress(OSError, NotAFile), open_regular(path) as file:
                    lines = os.read(file, _MAX_IGNORE_BYTES).splitlines()
                    if any(line.strip() and not line.lstrip().startswith(b"#") for line in lines):
                        yield path
