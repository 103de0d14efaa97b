"""A single question to a model, outside of any conversation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any, Callable

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.ndjson import dump, to_bytes

from .attempt import CallSettings
from .call import ModelCall, Retrying
from .retry import RetryPolicy
from .stream import BlockDone, MessageHead

Json = dict[str, Any]


@dataclass(frozen=True)
class ModelQuestion:
    """`tools` are server tools, which the provider runs itself. `model` is "" for the agent's own."""

    text: str
    system: str
    model: str = ""
    max_tokens: int = 4_000
    tools: Sequence[Json] = ()


@dataclass(frozen=True)
class ModelReply:
    """The content blocks of the answer, and what it used."""

    blocks: list[Json] = field(default_factory=list)
    model: str = ""
    usage: Json = field(default_factory=dict)

    @property
    def text(self) -> str:
        return "".join(str(block.get("text", "")) for block in self.blocks if block.get("type") == "text")


class ReplyListener:
    """Collects the blocks of the answer that counts."""

    def __init__(self) -> None:
        self.blocks: list[Json] = []

    @property
    def text(self) -> str:
        return ModelReply(self.blocks).text

    def event(self, event: Json) -> None:
        """Nobody watches this answer."""

    def block(self, head: MessageHead, done: BlockDone, request_id: str) -> None:
        self.blocks.append(done.block)

    def withdrawn(self, message_id: str) -> None:
        self.blocks.clear()

    def silence(self, silent: float | None, left: float) -> None:
        """Nobody is told."""

    def retrying(self, retry: Retrying) -> None:
        """Nobody is told."""


async def ask(
    settings_of: Callable[[list[bytes]], CallSettings], max_retries: int, question: ModelQuestion
) -> ModelReply:
    """Ask the question and return the whole answer. Raise ModelError."""
    body: Json = {
        "model": question.model,
        "max_tokens": question.max_tokens,
        "system": question.system,
        "messages": [{"role": "user", "content": question.text}],
        "stream": True,
    }
    if question.tools:
        body["tools"] = list(question.tools)
    listener = ReplyListener()
    call = ModelCall(settings_of([to_bytes(dump(body))]), listener, RetryPolicy(max_retries))
    end = await call.run()
    return ModelReply(listener.blocks, end.head.model or question.model, end.usage)
