"""What goes into the ledger beside the report of a call, and what is read from it."""

from __future__ import annotations

from ccb.tunnel.wire.dataclass import dataclass


@dataclass(frozen=True)
class CallPlace:
    """What a call was made for: the session, its host and its directory there."""

    session: str = ""
    host: str = ""
    directory: str = ""


@dataclass(frozen=True)
class Spent:
    """What some calls have cost, in dollars, and their tokens of all kinds together."""

    usd: float = 0.0
    tokens: int = 0


@dataclass(frozen=True)
class UsageSum:
    """The calls of one group: tokens by kind, dollars, and how many of the calls failed. `last` is the Unix time at
    which the last one began."""

    group: str
    calls: int
    failed: int
    input_tokens: int
    cache_write_tokens: int
    cache_read_tokens: int
    output_tokens: int
    usd: float
    last: float
