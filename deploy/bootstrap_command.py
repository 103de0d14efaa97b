"""The command line that every login shell understands in the same way: `exec /bin/sh -c '…'` without a newline and a
single quote inside. There, POSIX sh looks for a Python and runs the stub, whose arguments are base64 or hex."""

from __future__ import annotations

import base64
import json
import shlex
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cache
from pathlib import Path

from ccb.tunnel.wire.dataclass import dataclass

from .bundle import Bundle
from .strip_source import without_prose

NO_PYTHON_STATUS = 97
TERMINAL_STATUS = 94

RUNNING = "running"  # the first word of a command line that waits for the laptop before it does anything

# A terminal instead of a pipe would echo its input, change line ends, and mix errors into the frames.
_PLAIN = f"if test -t 0; then stty raw -echo || exit {TERMINAL_STATUS}; exec 2>/dev/null; fi; "

_NAMES = [f"python3.{minor}" for minor in range(14, 8, -1)]
CANDIDATES: tuple[str, ...] = (
    "python3",
    *_NAMES,
    "/usr/bin/python3",
    "/usr/local/bin/python3",
    "/usr/libexec/platform-python",
    "/opt/conda/bin/python3",
    "/opt/homebrew/bin/python3",
    "/opt/*/bin/python3",
    '"$HOME"/.local/bin/python3',
    '"$HOME"/miniconda3/bin/python3',
    '"$HOME"/anaconda3/bin/python3',
    '"$HOME"/miniforge3/bin/python3',
    '"$HOME"/.pyenv/versions/*/bin/python3',
    "/usr/local/bin/python3.*",
    "/usr/bin/python3.*",
    "python",
)  # names on PATH and absolute paths, in the order they are tried. A pattern without a match fails like a missing file

_CHECK = "import sys,zlib;sys.exit(sys.version_info<(3,9))"
_NEW_ENOUGH = "*/python3.9|*/python3.1[0-9]"  # their name tells their version; a shim or a wrapper is checked first

_RUN = (
    "import sys,zlib,base64;s=zlib.decompress(base64.b64decode(sys.argv.pop(1)));"
    "exec(compile(s,sys.argv[1],sys.argv.pop(5)))"
)

_TELL = "import sys;sys.stdout.write(sys.executable+chr(32)+sys.version.split()[0])"
SHOWN_NOISE = 600

_FACTS = (
    ("system", "$(uname -srm 2>&1)"),
    ("user", "$(id -un 2>/dev/null) $(id -u)"),
    ("shell", '"$SHELL"'),
    ("home", '"$HOME"'),
    ("path", '"$PATH"'),
    ("locale", '"${LC_ALL:-${LC_CTYPE:-$LANG}}"'),
    ("umask", "$(umask)"),
    ("nofile", "$(ulimit -n)"),
    ("writable", '$(for D in "$HOME" /tmp; do [ -w "$D" ] && echo "$D"; done)'),
)


@dataclass
class ProbeAnswers:
    """What a host said while the worker was started, not neutralised. `facts` and `pythons` (`path version`) are of the
    shell, `noise` counts the bytes beside them, and `noise_text` is their start."""

    facts: dict[str, str] = field(default_factory=dict)
    pythons: list[str] = field(default_factory=list)
    noise: int = 0
    noise_text: bytes = b""

    def word(self, line: str) -> None:
        kind, _, rest = line.partition(" ")
        if kind == "python":
            self.pythons.append(rest)
        elif kind == "probe":
            name, _, value = rest.partition(" ")
            self.facts[name] = value

    def skipped(self, data: bytes) -> None:
        self.noise += len(data)
        self.noise_text += data[: max(0, SHOWN_NOISE - len(self.noise_text))]


@cache
def _stub() -> str:
    """Return the stub as it travels: without comments and empty lines, compressed, in base64."""
    source = Path(__file__).with_name("stub.py").read_text(encoding="utf-8")
    lines = [line for line in without_prose(source).splitlines() if line]
    return base64.b64encode(zlib.compress("\n".join(lines).encode(), 9)).decode()


def bootstrap_command(
    marker: str,
    bundle: Bundle,
    params: Mapping[str, object],
    candidates: Sequence[str] = CANDIDATES,
    *,
    probe: bool = False,
    python: str = "",
) -> str:
    """Return the command line. `marker` is random hex; `params` (JSON) hold nothing secret. `python` is used without a
    search. With `wait` in `params` it first says RUNNING. Without a Python >= 3.9 it prints the others and exits with
    NO_PYTHON_STATUS; on a terminal that it cannot make transparent, with TERMINAL_STATUS."""
    stub = _stub_words(marker, bundle, encoded_parameters(params))
    return _command(marker, stub, candidates, wait=bool(params.get("wait")), probe=probe, python=python)


def job_command(bundle: Bundle) -> str:
    """Return the command line with which a job becomes the daemon of its session. The variable CCB_TASK has its encoded
    parameters, with `wait`; on stdin are a newline and the bundle as it is uploaded."""
    return _command("ccb", _stub_words("ccb", bundle, "$CCB_TASK"), CANDIDATES, wait=False)


def encoded_parameters(params: Mapping[str, object]) -> str:
    return base64.b64encode(json.dumps(params).encode()).decode()


def _stub_words(marker: str, bundle: Bundle, encoded: str) -> str:
    return f'-I -S -u -c "{_RUN}" {_stub()} {marker} {bundle.sha256} {len(bundle.data)} {encoded} exec'


def program_command(marker: str, program: bytes, *, wait: bool, python: str = "") -> str:
    """Return the command line that runs the Python source `program`, with `marker` and `wait` or `go` as arguments."""
    packed = base64.b64encode(zlib.compress(program, 9)).decode()
    words = f'-I -S -u -c "{_RUN}" {packed} {marker} {"wait" if wait else "go"} - - exec'
    return _command(marker, words, CANDIDATES, wait=wait, python=python)


def _command(
    marker: str, stub: str, candidates: Sequence[str], *, wait: bool, probe: bool = False, python: str = ""
) -> str:
    sign = f"echo; echo {marker} {RUNNING}; " if wait else ""
    words = " ".join(candidates)
    facts = "; ".join(f"t {name} {value}" for name, value in _FACTS)
    telling = f'M={marker}; t() {{ printf "\\n%s probe %s\\n" $M "$*"; }}; {facts}; {_python_lines(marker, words)}'
    probing = telling if probe else ""
    if python:
        search = f'exec "$0" {stub}'
    else:
        search = (
            "(:); "  # a shell that cannot fork says so here, where its stderr is kept
            f"set -- {stub}; "
            f'P=$(command -v {candidates[0]}) && case $(readlink -f "$P" 2>/dev/null) in '
            f'{_NEW_ENOUGH}) exec "$P" "$@";; esac; '
            f'for P in {words}; do "$P" -I -S -c "{_CHECK}" </dev/null >/dev/null 2>&1 && exec "$P" "$@"; '
            f"done; {_python_lines(marker, words)}exit {NO_PYTHON_STATUS}"
        )
    script = f"{_PLAIN}{sign}{probing}{search}"
    assert "'" not in script and "\n" not in script
    return f"exec /bin/sh -c '{script}'" + (f" {shlex.quote(python)}" if python else "")


def _python_lines(marker: str, candidates: str) -> str:
    """Return POSIX sh that prints `\n<marker> python <path> <version>` for each candidate that is a Python."""
    return (
        f"for P in {candidates} python2; do "
        f'V=$("$P" -E -c "{_TELL}" </dev/null 2>/dev/null) && printf "\\n%s python %s\\n" {marker} "$V"; '
        f"done; "
    )
