"""The answer of the permission engine for one tool call."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Behavior(Enum):
    """What happens to the call."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


@dataclass(frozen=True)
class Decision:
    """`reason` is one sentence for the person or the model; `reason_type` is `rule`, `mode`, `workingDir`,
    `subcommandResults` or `other` (the public protocol's words). `suggestions` are permission updates in the public
    shape, the first one being what "allow for this session" would add."""

    behavior: Behavior
    reason: str
    reason_type: str = "other"
    blocked_path: str = ""
    suggestions: list[dict[str, Any]] = field(default_factory=list)
