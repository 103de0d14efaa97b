"""Lists the Markdown files of a `.claude` directory. Those who load them and the question about trust use the same
list, so that nothing counts that the person was not shown."""

from __future__ import annotations

import os
from collections.abc import Iterator

_MAX_NAMES = 2000


def markdown_below(top: str) -> Iterator[str]:
    """Yield the files of agents or commands below a directory, in order. Links to directories are not followed."""
    count = 0
    for here, directories, names in os.walk(top):
        directories.sort()
        for name in sorted(names):
            count += 1
            if count > _MAX_NAMES:
                return
            if name.endswith(".md"):
                yield os.path.join(here, name)


def skills_in(top: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the file of each skill in a directory, in order. The directory of a skill may be a link."""
    try:
        names = sorted(os.listdir(top))[:_MAX_NAMES]
    except OSError:
        return
    for name in names:
        path = os.path.join(top, name, "SKILL.md")
        if os.path.lexists(path):
            yield name, path
