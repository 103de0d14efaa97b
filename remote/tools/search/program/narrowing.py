"""What ignore files leave out of a search, as ripgrep tells it. ripgrep before 14 obeys `.rgignore` in spite of its
options."""

from __future__ import annotations

import os
import re

_IGNORED = re.compile(rb"ignoring (?:\./)?(.+?): Ignore\(IgnoreMatch\(Gitignore\(Glob \{ from: Some\(\"(.*?)\"\)")


def left_out(told: bytes) -> tuple[set[str], bool]:
    """Return the entries that .gitignore leaves out, and whether another file left out something, as a command told
    that had the option `--debug`."""
    ignored: set[str] = set()
    is_foreign = False
    for path, source in _IGNORED.findall(told):
        if source.endswith(b".gitignore"):
            ignored.add(os.fsdecode(path))
        else:
            is_foreign = True
    return ignored, is_foreign
