"""Reads the turns, blocks and tools of a request, and estimates its size."""

from __future__ import annotations

from ..wire.dataclass import dataclass
from ..wire.model_facts import ESTIMATED
from .api_errors import NO_RETRY, Refusal
from .json_fields import Json, dump, list_in, object_in, objects_in, text_in


class Untranslatable(Refusal):
    """The request asks for something that this provider or model cannot do."""

    def __init__(self, message: str) -> None:
        super().__init__(400, message, headers=NO_RETRY)


@dataclass(frozen=True)
class RequestTurn:
    """Messages of one role that follow each other, as the Messages API reads them: one turn."""

    role: str
    blocks: list[Json]

    def of(self, *kinds: str) -> list[Json]:
        return [block for block in self.blocks if block.get("type") in kinds]


def turns(asked: Json) -> list[RequestTurn]:
    """Return the conversation. Raise Untranslatable if it is not one."""
    made: list[RequestTurn] = []
    messages = asked.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Untranslatable("messages: Field required")
    for message in messages:
        role = message.get("role") if isinstance(message, dict) else None
        if role == "system":  # in the middle of a conversation, as Claude Code has it: most APIs have no such place
            role = "user"
        if role not in ("user", "assistant"):
            raise Untranslatable("messages: a message has no role")
        blocks = blocks_of(message.get("content"))
        if made and made[-1].role == role:
            made[-1].blocks.extend(blocks)
        else:
            made.append(RequestTurn(role, blocks))
    if made[-1].role == "assistant":
        raise Untranslatable("this provider does not go on with an answer that the request begins (prefill)")
    return made


def blocks_of(content: object) -> list[Json]:
    """Return content as a list of blocks. A text is one block."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def text_of(content: object) -> str:
    return "\n\n".join(str(block.get("text") or "") for block in blocks_of(content) if block.get("type") == "text")


def is_media(block: Json) -> bool:
    """Return whether a block holds an image, or a document that is not text."""
    return block.get("type") == "image" or (block.get("type") == "document" and document_text(block) is None)


@dataclass(frozen=True)
class ContentPart:
    """What a model gets of a block: its text, or the URL of an image or of the document `name`."""

    kind: str
    content: str
    name: str = ""


def part_of(block: Json, *, images: bool, documents: bool, by_url: bool) -> ContentPart:
    """Return a block for a model that takes images, documents, and those by a URL. What it does not take is left out
    with a word, and so is a file of Anthropic's, which nobody else has."""
    if not is_media(block):
        return ContentPart("text", plain_text(block))
    source, kind = object_in(block, "source"), str(block["type"])
    url = text_in(source, "url") if source.get("type") == "url" else ""
    if source.get("type") == "base64":
        url = f"data:{source.get('media_type')};base64,{source.get('data')}"
    if url and (images if kind == "image" else documents and (by_url or url.startswith("data:"))):
        return ContentPart(kind, url, str(block.get("title") or "document.pdf"))
    shown = "an image" if kind == "image" else "a document"
    return ContentPart("text", f"({shown} is left out here: this model does not take it)")


def document_text(block: Json) -> str | None:
    source = object_in(block, "source")
    if source.get("type") == "text":
        return str(source.get("data") or "")
    if source.get("type") == "content":
        return text_of(source.get("content"))
    return None


def plain_text(block: Json) -> str:
    kind = block.get("type")
    if kind == "text":
        return str(block.get("text") or "")
    if kind == "document":
        return document_text(block) or ""
    return dump(block)


_BYTES_PER_TOKEN = 4
_MEDIA = 2_000  # tokens of an image or a document


def estimated_tokens(asked: Json) -> int:
    """Return about how many input tokens a request has: system prompt, tools and messages."""
    tokens = 0
    for block in blocks_of(asked.get("system")):
        tokens += _tokens(block)
    for tool in list_in(asked, "tools"):
        tokens += _size(dump(tool))
    for message in objects_in(asked, "messages"):
        tokens += 4 + sum(_tokens(block) for block in blocks_of(message.get("content")))
    return max(1, tokens)


def estimated_count(asked: Json) -> Json:
    return {"input_tokens": estimated_tokens(asked), ESTIMATED: True}


def _tokens(block: Json) -> int:
    kind = block.get("type")
    if kind in ("image", "document"):
        return _MEDIA
    if kind == "tool_result":
        return 10 + sum(_tokens(each) for each in blocks_of(block.get("content")))
    if kind in ("text", "thinking"):
        return _size(str(block.get(str(kind)) or ""))
    return 0 if kind == "redacted_thinking" else _size(dump(block))


def _size(text: str) -> int:
    return -(-len(text.encode("utf-8", "replace")) // _BYTES_PER_TOKEN)
