"""The frames of model calls: HTTP-shaped streams, with credit in both directions."""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar

from ..dataclass import dataclass

CHUNK = 96 * 1024
"""Largest number of bytes in one `data` frame. In base64 they take 128 KiB, well below the limit of a line."""

INITIAL_CREDIT = 1024 * 1024
"""Bytes that a sender may send on a new stream, in each direction, before the first `credit` arrives."""


@dataclass(frozen=True)
class Open:
    """W>L. Starts the HTTP-shaped stream `stream` for the model call `id`. The worker chooses the stream number, which
    is unique on the connection.

    `id` names the call for ever: when it is asked for again, the auth proxy does not repeat the call but resumes its
    response at byte `offset`. `size` is the length of the request body in bytes; its `data` frames may follow at
    once.

    To a laptop that takes deltas the worker names the body by its SHA-256, in `digest`, and the laptop keeps it. With
    `parts`, the `data` frames carry `sent` bytes, `deflated` or not: what is new in the body. `parts` says how the
    laptop makes the body of them and of an earlier one whose digest is `base` (`deltas.py`). With `primed`, they are
    compressed with the end of that one as dictionary (`compression.py`)."""

    t: ClassVar[str] = "open"
    epoch: int
    stream: int
    id: str
    nonce: str
    method: str
    path: str
    headers: dict[str, str]
    size: int
    offset: int = 0
    digest: str = ""
    base: str = ""
    parts: list[int] = field(default_factory=list)
    sent: int = 0
    deflated: bool = False
    primed: bool = False


@dataclass(frozen=True)
class Head:
    """L>W. The head of the response on `stream`, before its first `data`."""

    t: ClassVar[str] = "head"
    epoch: int
    stream: int
    status: int
    headers: dict[str, str]


@dataclass(frozen=True)
class Data:
    """Both ways. Bytes of a body on `stream`, in base64, from offset `off` of that body. At most `CHUNK` bytes decoded,
    and never more than the receiver's credit."""

    t: ClassVar[str] = "data"
    epoch: int
    stream: int
    off: int
    b64: str


@dataclass(frozen=True)
class Packed(Data):
    """L>W. Bytes of a response like `Data`, compressed (`compression.py`). Only for a worker whose hello has the
    capability `packed`. Offset and credit count the bytes before that."""

    t: ClassVar[str] = "packed"


@dataclass(frozen=True)
class End:
    """Both ways. The body on `stream` in this direction is complete; when `error` is not empty, it failed. With
    `whole`, the laptop could not make the body of its parts: the worker opens the call again and sends all of it."""

    t: ClassVar[str] = "end"
    epoch: int
    stream: int
    error: str = ""
    whole: bool = False


@dataclass(frozen=True)
class Credit:
    """Both ways. The receiver of `stream` has taken `bytes` more bytes; the sender may send that many again."""

    t: ClassVar[str] = "credit"
    epoch: int
    stream: int
    bytes: int


@dataclass(frozen=True)
class Cancel:
    """W>L. The worker no longer needs `stream`: the auth proxy cancels the request to the provider."""

    t: ClassVar[str] = "cancel"
    epoch: int
    stream: int
    reason: str = ""
