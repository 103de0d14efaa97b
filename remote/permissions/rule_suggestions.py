"""The permission updates that a question suggests: the first must be narrow, "allow for this session" adds it."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.tool_traits import BASH, EDIT, READ

from .paths import PathScope, is_too_wide
from .rules import CommandPattern, Rule, parse_rule

_MAX_COMMAND = 500
_MAX_RULES = 5


def add_rules(rules: Sequence[Rule]) -> list[Json]:
    """Return one update for all of the rules, or none if they are too many to read before agreeing."""
    unique = list(dict.fromkeys(rules))
    if not unique or len(unique) > _MAX_RULES:
        return []
    listed = [{"toolName": r.tool, **({} if r.content is None else {"ruleContent": r.content})} for r in unique]
    return [{"type": "addRules", "rules": listed, "behavior": "allow", "destination": "session"}]


def accept_edits() -> Json:
    return {"type": "setMode", "mode": "acceptEdits", "destination": "session"}


def exact_rule(text: str) -> Rule | None:
    """Return the rule for exactly this text, if a rule can express that."""
    text = text.strip()
    if not text or len(text) > _MAX_COMMAND or "\n" in text or not CommandPattern(text).is_exact:
        return None
    return Rule(BASH.name, text)


def directory_rule(tool: str, real: str, home: str) -> Rule | None:
    """Return the rule for all in a directory, or in that of a file; if it is too wide, for the file alone, or None."""
    directory = _directory(real)
    if not is_too_wide(directory, home):
        return file_rule(tool, directory, "/**")
    return file_rule(tool, real) if real != directory else None


def file_rule(tool: str, real: str, below: str = "") -> Rule | None:
    """Return the rule for a real path, or for what is `below` it; None for a path that no rule can hold."""
    if re.search(r"[*?\[\]()\n,]", real):
        return None
    try:
        return parse_rule(f"{tool}(/{real}{below})")
    except ValueError:
        return None


def _directory(real: str) -> str:
    return real if os.path.isdir(real) else os.path.dirname(real)


def for_path(writes: bool, real: str, places: PathScope, accepts_edits: bool) -> list[Json]:
    """Return updates for a file tool. The first is enough by itself."""
    if writes and places.holds(real):
        return [accept_edits()]
    rule = directory_rule(EDIT.name if writes else READ.name, real, places.home)
    updates: list[Json] = []
    if writes and not is_too_wide(_directory(real), places.home):
        updates = [{"type": "addDirectories", "directories": [_directory(real)], "destination": "session"}]
    return updates if rule is None or (accepts_edits and updates) else [*add_rules([rule]), *updates]
