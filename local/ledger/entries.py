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
    which the last one began. `estimated` are the calls whose providers have not told all of their tokens."""

    group: str
    calls: int
    failed: int
    input_tokens: int
    cache_write_tokens: int
    cache_read_tokens: int
    output_tokens: int
    usd: float
    last: float
    estimated: int = 0


@dataclass(frozen=True)
class AuditEntry:
    """Something that this machine has seen of a session. `at` is the Unix time. `kind`:

    - `prompt`: what the person, or the program in their place, said; `asked`: the newest user text of a request;
      `also`: another text of a request that no model has written, such as a system prompt.
    - `wanted`: a tool call in an answer of a model; `there`: one that the provider runs itself; `decided`: what was
      answered here when the host asked about it; `result`: what the host sent to the model as its result.
    - `unseen`: results of calls that were not seen here, because another client drove or the ledger is younger;
      `tampering`: a result of a call that no model made.
    - `unchecked`: a request that was too large to look at, or a part of one; `unrecorded`: bodies are not kept
      from here on; `revoked`: the person has ended all model calls.
    """

    kind: str
    at: float
    call: str = ""
    tool_use: str = ""
    name: str = ""
    text: str = ""
    host: str = ""
