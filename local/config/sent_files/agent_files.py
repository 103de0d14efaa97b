"""The person's own definitions of sub-agents: Markdown files on the laptop, which go to the host as text."""

from __future__ import annotations

import json
import logging
from pathlib import Path

from .own_files import why_kept

log = logging.getLogger(__name__)

_MAX_FILES = 100
_MAX_BYTES = 64 * 1024
"""The most bytes of all files together; they travel in one frame with the other options of a session."""


def own_agents(home: Path | None = None) -> dict[str, str]:
    """Return the text of each file in `~/.claude/agents` by its path. What cannot be read or is too much is left out,
    with a line in the log."""
    top = (home or Path.home()) / ".claude" / "agents"
    found: dict[str, str] = {}
    size = 0
    for path in sorted(top.rglob("*.md")) if top.is_dir() else ():
        why = why_kept(path, top / path.relative_to(top).parts[0])
        if why:
            log.warning("%s stays on the laptop: %s", path, why)
            continue
        try:
            text = path.read_text(encoding="utf-8-sig") if path.is_file() else ""
        except (OSError, UnicodeDecodeError) as error:
            log.warning("%s: %s", path, error)
            continue
        size += len(json.dumps(text))
        if len(found) >= _MAX_FILES or size > _MAX_BYTES:
            log.warning("%s: too many or too long; %s and later files are left out", top, path.name)
            break
        if text:
            found[str(path)] = text
    return found
