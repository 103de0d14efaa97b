"""What ignore files leave out of a search, as ripgrep tells it. ripgrep before 14 obeys `.rgignore` in spite of its
options."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:  # each import is felt: the program starts anew for every search
    import subprocess

_IGNORED = re.compile(rb"ignoring (?:\./)?(.+?): Ignore\(IgnoreMatch\(Gitignore\(Glob \{ from: Some\(\"(.*?)\"\)")


class Narrowing:
    """Lists in a process of its own, beside the search, what ripgrep leaves out below a directory. A search that knows
    the names of its files needs that: it would tell of every other file."""

    def __init__(self, root: str, listing: list[str]) -> None:
        """`listing` is the command that lists all files of the directory. Raise OSError if it cannot be started."""
        import subprocess

        self._process: subprocess.Popen[bytes] = subprocess.Popen(
            [*listing, "--debug"],
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def end(self, seconds: float) -> bytes:
        """Return what the listing told. What is not known after the time does not count."""
        import subprocess

        try:
            _, told = self._process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            _, told = self._process.communicate()
        return told


def left_out(told: bytes) -> tuple[set[str], bool]:
    """Return the entries that .gitignore leaves out, and whether another file left out something, as a command told
    that had the option `--debug`."""
    ignored: set[str] = set()
    is_foreign = False
    for path, source in _IGNORED.findall(told):
        if source.endswith(b".gitignore"):
            ignored.add(path.decode("utf-8", "replace"))
        else:
            is_foreign = True
    return ignored, is_foreign
