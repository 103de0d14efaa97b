"""What the permission engine decides on one tool call."""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from typing import Any

from ccb.tunnel.wire.dataclass import dataclass

from ..sandbox.rules import CageRules


class Behavior(Enum):
    """What a rule demands for a call, and what the engine decides about it."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


@dataclass(frozen=True)
class Decision:
    """`reason` is one sentence for the person or the model; `reason_type` is `rule`, `mode`, `workingDir`, `hook`,
    `subcommandResults` or `other`, as in the public protocol. `suggestions` are permission updates in its shape; the
    first one is what "allow for this session" adds. `cage` is the cage in which the call runs if it is allowed, or if
    the person grants it; None for no cage. `pinned` is the real path that was decided on, if something may change
    where a path leads before the call uses it; "" otherwise."""

    behavior: Behavior
    reason: str
    reason_type: str = "other"
    blocked_path: str = ""
    suggestions: list[dict[str, Any]] = field(default_factory=list)
    cage: CageRules | None = None
    pinned: str = ""
