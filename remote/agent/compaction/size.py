"""The size of a conversation: the last count of the model, plus an estimate of what came after it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ccb.tunnel.wire.models import context_tokens

from ...model.tokens import block_tokens

Json = dict[str, Any]


class ContextSize:
    """`counted` is the size of the last request and its answer, with system prompt and tools; 0 if the provider counts
    nothing. `estimated` is the size of all messages, as far as it can be estimated."""

    def __init__(self) -> None:
        self.counted = 0
        self.estimated = 0
        self._since = 0  # estimate of what the count does not cover
        self._during = 0  # of that, what came since the present answer began
        self._answer = ""

    def tokens(self, prefix: int) -> int:
        """Return the size of the next request. `prefix` is the estimate for system prompt and tools."""
        return self.counted + self._since if self.counted else prefix + self.estimated

    def sent(self, block: Json) -> None:
        """A block joins a user message."""
        self._grow(block)
        self._during += block_tokens(block)

    def answered(self, message_id: str, block: Json) -> None:
        """A block joins the answer `message_id`."""
        if message_id != self._answer:
            self._answer, self._during = message_id, 0
        self._grow(block)

    def ended(self, usage: Mapping[str, Any]) -> None:
        """An answer is complete. Results of its first tools may already be there: they are not in the count."""
        self.counted = context_tokens(usage)
        self._since, self._during, self._answer = self._during, 0, ""

    def cleared(self, saved: int) -> None:
        """Contents of so many tokens were left out."""
        self.counted, self.estimated = max(0, self.counted - saved), max(0, self.estimated - saved)

    def restarted(self, prefix: int) -> None:
        """The conversation is empty again; system prompt and tools take `prefix`."""
        self.counted, self.estimated, self._since, self._during = prefix, 0, 0, 0

    def _grow(self, block: Json) -> None:
        tokens = block_tokens(block)
        self.estimated += tokens
        self._since += tokens
