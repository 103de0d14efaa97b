"""Permission rules that a slash command brings for its turn."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ..permissions.engine import PermissionEngine
from ..permissions.rules.rules import parse_rules

_log = logging.getLogger(__name__)


@contextmanager
def granted(permissions: PermissionEngine, rules: Sequence[str]) -> Iterator[None]:
    """Let the rules of a command hold during its turn. A rule that cannot be read does not count."""
    known: list[str] = []
    for rule in rules:
        try:
            parse_rules([rule])
        except ValueError as error:
            _log.warning("a rule of a command is left out: %s", error)
        else:
            known.append(rule)
    if known:
        permissions.grant_for_turn(known)
    try:
        yield
    finally:
        if known:
            permissions.grant_for_turn(())
