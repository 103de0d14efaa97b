"""One message of the history, as blocks or as the bytes that are sent."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any, Callable

from ccb.tunnel.wire.ndjson import to_bytes

from ...model.request import sendable as dump

Json = dict[str, Any]


CLEARED = "[Old tool result content cleared]"
"""What stands for the content of an old result that was left out."""


THINKING = ("thinking", "redacted_thinking")


class HistoryMessage:
    """One message of the history. Its encoded bytes are cached until it changes. Only the newest messages change, so
    older ones keep nothing but the bytes (`pack`), which take a fraction of the memory of their blocks. Thinking that
    the present model may not see is hidden: it is kept, and not part of what the message shows."""

    __slots__ = ("_blocks", "_encoded", "_hidden", "_origins", "role")

    def __init__(self, role: str) -> None:
        self.role = role
        self._blocks: list[Json] | None = []
        self._origins: list[int] = []
        self._hidden: frozenset[int] = frozenset()  # the ids of blocks
        self._encoded: bytes | None = None

    @property
    def packed(self) -> bool:
        """Whether the message keeps only its bytes."""
        return self._blocks is None

    @property
    def blocks(self) -> list[Json]:
        """The content blocks. Do not change them."""
        if self._blocks is None:
            blocks: list[Json] = json.loads(self.encoded())["content"]
            return blocks
        if not self._hidden:
            return self._blocks
        return [block for block in self._blocks if id(block) not in self._hidden]

    @property
    def origins(self) -> list[int]:
        """For each block, the number of the answer it belongs to; 0 in user messages, and where the answer can no
        longer be withdrawn."""
        if self._blocks is None:
            return [0] * len(self.blocks)
        return [origin for block, origin in zip(self._blocks, self._origins) if id(block) not in self._hidden]

    def pack(self) -> None:
        """Keep only the encoded bytes, unless blocks are hidden."""
        if not self._hidden:
            self.encoded()
            self._blocks, self._origins = None, []

    def show(self, may_see: Callable[[Json], bool]) -> None:
        """Hide the thinking for which `may_see(block)` is false, and show what was hidden before."""
        if self._blocks is None and b'thinking"' not in self.encoded():
            return
        blocks, origins = self._all()
        hidden = frozenset(id(b) for b in blocks if b.get("type") in THINKING and not may_see(b))
        if hidden != self._hidden:
            self._blocks, self._origins, self._hidden, self._encoded = blocks, origins, hidden, None

    def take_over(self, other: HistoryMessage) -> None:
        """Append the blocks of another message, with those that are hidden."""
        (blocks, origins), (more, from_where) = self._all(), other._all()
        self._blocks, self._origins, self._encoded = [*blocks, *more], [*origins, *from_where], None
        self._hidden |= other._hidden

    def _all(self) -> tuple[list[Json], list[int]]:
        """Return all blocks and their origins, also of those that are hidden."""
        return (self.blocks, self.origins) if self._blocks is None else (self._blocks, self._origins)

    def put(self, block: Json, origin: int = 0, at: int | None = None) -> None:
        """Insert a block at index `at`, or at the end."""
        blocks, origins = self._all()
        where = len(blocks) if at is None else at
        blocks.insert(where, block)
        origins.insert(where, origin)
        self._blocks, self._origins, self._encoded = blocks, origins, None

    def keep(self, wanted: Callable[[Json, int], bool]) -> None:
        """Drop the blocks for which `wanted(block, origin)` is false."""
        blocks, origins = self._all()
        kept = [(b, o) for b, o in zip(blocks, origins) if wanted(b, o)]
        if len(kept) != len(blocks):
            self._blocks = [b for b, _ in kept]
            self._origins = [o for _, o in kept]
            self._hidden &= {id(b) for b in self._blocks}
            self._encoded = None

    def clear_results(self, tool_use_ids: Collection[str]) -> None:
        """Leave out the contents of these results."""
        packed, blocks = self.packed, self.blocks
        if not any(block.get("tool_use_id") in tool_use_ids for block in blocks):
            return
        origins = self.origins
        self._blocks = [{**b, "content": CLEARED} if b.get("tool_use_id") in tool_use_ids else b for b in blocks]
        self._origins, self._encoded = origins, None
        if packed:
            self.pack()

    def begins_with(self, kind: str) -> bool:
        """Return whether the first block is of this type."""
        if self._blocks is None:
            return self.encoded().startswith(to_bytes(f'{{"role":"{self.role}","content":[{{"type":"{kind}"'))
        shown = self.blocks
        return bool(shown) and shown[0].get("type") == kind

    def api(self) -> Json:
        """Return the message as an object of the Messages API."""
        return {"role": self.role, "content": self.blocks}

    def encoded(self) -> bytes:
        """Return the JSON bytes of the message."""
        if self._encoded is None:
            self._encoded = to_bytes(dump(self.api()))
        return self._encoded

    def encoded_with_cache_mark(self) -> bytes:
        """Return the bytes with a cache_control mark on the last block. The history itself gets no mark."""
        *first, last = self.blocks
        marked = {**last, "cache_control": {"type": "ephemeral"}}
        return to_bytes(dump({"role": self.role, "content": [*first, marked]}))
