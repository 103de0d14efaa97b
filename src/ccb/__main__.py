"""Entry point of the command `ccb`, and its last handler: no exception reaches the person as a traceback.

Answers `--version` before anything else is imported.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress

from ccb import VERSION_ANSWER

_BUG = 70  # ExitCode.INTERNAL, which may be impossible to import here
_INTERRUPTED = 130
_SHOWN = 300  # characters of an exception's text


def entry_point() -> None:
    """Run the command line, and end the process at once with its exit code.

    Taking the interpreter down takes 150 ms after a session. Nothing is left to do for it: `main` has closed what it
    opened and written its logs and stdout.
    """
    code = main()
    try:
        sys.stderr.flush()
    except OSError:
        code = code or 1
    os._exit(code)


def main() -> int:
    """Run the command line and return a code of `ccb.local.command_line.exit_codes.ExitCode`. Raises SystemExit
    only."""
    try:
        _open_standard_streams()
        if sys.argv[1:] in (["--version"], ["-v"]):
            return _version()
        _keep_tracebacks_off_the_terminal()
        from ccb.tunnel.heavy_imports import collection_paused

        with collection_paused():
            from ccb.local.main import run

        return run(sys.argv[1:])
    except KeyboardInterrupt:  # during the imports
        return _INTERRUPTED
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001 - the last handler
        return _report(error)
    finally:
        _let_interrupts_end_quietly()


def _version() -> int:
    sys.stdout.write(f"{VERSION_ANSWER}\n")  # noqa: TID251 - before anything is imported
    try:
        sys.stdout.flush()
    except OSError:
        from ccb.local.terminal.console import flush_stdout

        return flush_stdout() or 0
    return 0


class _Stderr(io.TextIOWrapper):
    """A stderr whose failures change nothing: a full disk or a closed pipe there must not end the run."""

    def write(self, text: str) -> int:
        with suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            super().flush()


def _open_standard_streams() -> None:
    """Open the standard streams that the caller closed (`>&-`), and let none of them fail because of a character.

    Otherwise a file or connection of ours would get the number of such a stream, and its output. Reading from an opened
    stdin gives the end, writing to stdout fails as if nobody read it, stderr goes nowhere.
    """
    for number, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, mode)  # the lowest free number
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            os.set_inheritable(number, True)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - for the whole run
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - for the whole run
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    for number, stream in ((0, sys.stdin), (1, sys.stdout)):
        if not os.get_blocking(number):
            text = io.TextIOWrapper(_waiting(number), stream.encoding, "replace", line_buffering=os.isatty(number))
            setattr(sys, "stdout" if number else "stdin", text)
    encoding = sys.stderr.encoding if sys.stderr is not None else "utf-8"
    raw = open(2, "wb", closefd=False) if os.get_blocking(2) else _waiting(2)  # noqa: SIM115 - for the whole run
    sys.stderr = _Stderr(raw, encoding, "backslashreplace", line_buffering=True, write_through=True)
    if not os.get_blocking(2):
        interface = io.TextIOWrapper(_waiting(2), encoding, "backslashreplace", line_buffering=True)
        sys.__stderr__ = interface  # type: ignore[misc] # it is drawn there


def _waiting(number: int) -> io.BufferedReader | io.BufferedWriter:
    """Return a stream that waits where the descriptor does not: another program has made it non-blocking."""
    from ccb.local.terminal.stdio import WaitingFile

    raw = WaitingFile(number)
    return io.BufferedWriter(raw) if number else io.BufferedReader(raw)


def _keep_tracebacks_off_the_terminal() -> None:
    """Send what threads and finalizers raise to the log. The interpreter would print it, as logging prints its own
    failures."""
    import logging
    import threading

    def log(what: str, error: BaseException | None) -> None:
        with suppress(Exception):
            if logging.getLogger().handlers:
                logging.getLogger("ccb").error(what, exc_info=error)

    logging.raiseExceptions = False
    logging.lastResort = None
    threading.excepthook = lambda args: log("a thread ended with an exception", args.exc_value)
    sys.unraisablehook = lambda args: log("an exception was ignored", args.exc_value)


def _let_interrupts_end_quietly() -> None:
    """Let Ctrl+C end the program without a traceback while the interpreter ends."""
    import signal

    with suppress(ValueError):  # not the main thread
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def _report(error: BaseException) -> int:
    """Report an exception that nothing else has handled. Return the exit code."""
    with suppress(BaseException):
        sys.stderr.write(_text(error))  # noqa: TID251 - it may be that nothing can be imported
    with suppress(BaseException):
        from ccb.local.terminal.console import flush_stdout

        flush_stdout()
    return _BUG


def _text(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return "ccb: there is not enough memory\n  -> End other programs, or raise the limit (ulimit -v).\n"
    name = type(error).__name__
    shown = "".join(each if each.isprintable() else "�" for each in str(error)[:_SHOWN])
    if isinstance(error, ImportError | SyntaxError):
        return f"ccb: this installation of ccb is damaged: {name}\n  {shown}\n  -> Install ccb again.\n"
    kept = _logged(error)
    details = f"  The details are in {kept}\n" if kept else f"  {shown}{_place(error)}\n"
    return f"ccb: a bug in ccb: {name}\n{details}  -> Please report it. Check first that this shows nothing private.\n"


def _logged(error: BaseException) -> str:
    """Write the traceback to the log file. Return its path, "" if that is impossible."""
    with suppress(BaseException):
        import logging

        from ccb.local.config.log import logging_to_file

        with logging_to_file(debug=False) as path:
            logging.getLogger("ccb").error("nothing handled an exception", exc_info=error)
        return str(path) if path.exists() else ""
    return ""


def _place(error: BaseException) -> str:
    """Return where the exception was raised."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return "" if last is None else f" ({os.path.basename(last.tb_frame.f_code.co_filename)}:{last.tb_lineno})"  # noqa: PTH119


if __name__ == "__main__":
    entry_point()
