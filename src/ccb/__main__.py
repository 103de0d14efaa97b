"""Entry point of the command `ccb`. Answers `--version` before anything else is imported."""

from __future__ import annotations

import sys

from ccb import __version__


def main() -> int:
    """Run the command line; the exit code is one of `ccb.local.exit_codes.ExitCode`."""
    if sys.argv[1:] in (["--version"], ["-v"]):
        sys.stdout.write(f"{__version__} (ccb)\n")
        return 0
    from ccb.local.cli import run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
