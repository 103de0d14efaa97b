"""Facts about a host that its login shell can report without any Python, for `ccb doctor`."""

from __future__ import annotations

from dataclasses import field

from ccb.tunnel.wire.dataclass import dataclass

_SHOWN_NOISE = 600

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
class Heard:
    """The output of a host while the worker was started, even if the start failed. It is not neutralised.

    `facts` and `pythons` (`path version`) are reported by the shell. `noise` counts the bytes that a login shell
    printed beside them; `noise_text` is their start.
    """

    facts: dict[str, str] = field(default_factory=dict)
    pythons: list[str] = field(default_factory=list)
    noise: int = 0
    noise_text: bytes = b""

    def word(self, line: str) -> None:
        """Take a line that followed the marker."""
        kind, _, rest = line.partition(" ")
        if kind == "python":
            self.pythons.append(rest)
        elif kind == "probe":
            name, _, value = rest.partition(" ")
            self.facts[name] = value

    def skipped(self, data: bytes) -> None:
        """Take bytes that were printed beside marked lines."""
        self.noise += len(data)
        self.noise_text += data[: max(0, _SHOWN_NOISE - len(self.noise_text))]


def probe_script(marker: str, candidates: str) -> str:
    """Return POSIX sh that prints `\\n<marker> probe <name> <value>` for each fact, and a line for each Python.

    It contains no `'` and no line feed.
    """
    facts = "; ".join(f"t {name} {value}" for name, value in _FACTS)
    return f'M={marker}; t() {{ printf "\\n%s probe %s\\n" $M "$*"; }}; {facts}; {python_lines(marker, candidates)}'


_TELL = "import sys;sys.stdout.write(sys.executable+chr(32)+sys.version.split()[0])"


def python_lines(marker: str, candidates: str) -> str:
    """Return POSIX sh that prints `\\n<marker> python <path> <version>` for each candidate that is a Python."""
    return (
        f"for P in {candidates} python2; do "
        f'V=$("$P" -E -c "{_TELL}" </dev/null 2>/dev/null) && printf "\\n%s python %s\\n" {marker} "$V"; '
        f"done; "
    )
