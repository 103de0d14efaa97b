"""Entry point of the command `ccb`. Answers `--version` before anything else is imported."""

from __future__ import annotations

import os
import sys

from ccb import __version__


def main() -> int:
    """Run the command line and return a code of `ccb.local.command_line.exit_codes.ExitCode`."""
    try:
        _open_standard_streams()
        if sys.argv[1:] in (["--version"], ["-v"]):
            return _version()
        from ccb.local.main import run

        return run(sys.argv[1:])
    except KeyboardInterrupt:  # during the imports
        return 130


def _version() -> int:
    sys.stdout.write(f"{__version__} (ccb)\n")
    try:
        sys.stdout.flush()
    except OSError:
        from ccb.local.terminal.console import flush_stdout

        return flush_stdout() or 0
    return 0


def _open_standard_streams() -> None:
    """Open the standard streams that the caller closed (`>&-`).

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
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - for the whole run


if __name__ == "__main__":
    sys.exit(main())
