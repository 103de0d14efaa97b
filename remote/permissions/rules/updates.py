"""Permission updates as clients send them, parsed strictly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ccb.tunnel.wire.dataclass import dataclass

from ..decision import Behavior
from .rules import Rule, parse_rule

_RULE_KINDS = ("addRules", "replaceRules", "removeRules")
_DIRECTORY_KINDS = ("addDirectories", "removeDirectories")
_MAX_ITEMS = 200


class UpdateError(ValueError):
    """The update is not one of the known shapes."""


@dataclass(frozen=True)
class PermissionUpdate:
    """A valid update. Fields that its kind does not use are empty."""

    kind: str
    destination: str = "session"
    behavior: Behavior = Behavior.ASK
    rules: tuple[Rule, ...] = ()
    mode: str = ""
    directories: tuple[str, ...] = ()


def read_update(update: Mapping[str, Any]) -> PermissionUpdate:
    """Parse an update. Raise UpdateError or RuleError if it is invalid."""
    if not isinstance(update, Mapping):
        raise UpdateError("a permission update is not an object")
    kind, destination = update.get("type"), update.get("destination", "session")
    if not isinstance(kind, str) or not isinstance(destination, str):
        raise UpdateError("a permission update has no type")
    if kind == "setMode":
        return PermissionUpdate(kind, destination, mode=str(update.get("mode", "")))
    if kind in _RULE_KINDS:
        try:
            behavior = Behavior(update.get("behavior"))
        except ValueError:
            raise UpdateError(f"{kind}: behavior must be allow, ask or deny") from None
        rules = tuple(_read_rule(kind, item) for item in _list(kind, "rules", update))
        return PermissionUpdate(kind, destination, behavior, rules)
    if kind in _DIRECTORY_KINDS:
        found = _list(kind, "directories", update)
        if not all(isinstance(item, str) and item for item in found):
            raise UpdateError(f"{kind}: directories must be a list of paths")
        return PermissionUpdate(kind, destination, directories=tuple(found))
    raise UpdateError(f"unknown permission update {kind!r}")


def _list(kind: str, key: str, update: Mapping[str, Any]) -> list[Any]:
    found = update.get(key)
    if not isinstance(found, list) or len(found) > _MAX_ITEMS:
        raise UpdateError(f"{kind}: {key} must be a list of at most {_MAX_ITEMS}")
    return found


def _read_rule(kind: str, item: Any) -> Rule:
    tool = item.get("toolName") if isinstance(item, Mapping) else None
    content = item.get("ruleContent") if isinstance(item, Mapping) else None
    if not isinstance(tool, str) or not isinstance(content, (str, type(None))):
        raise UpdateError(f"{kind}: a rule needs toolName, and ruleContent as a text")
    return parse_rule(tool if content is None else f"{tool}({content})")
