"""The readers of each dialect without a network: bytes in, Anthropic events out."""

from __future__ import annotations

from collections.abc import Iterable

from ccb.tunnel.providers.dialect import ModelTarget, StreamReader
from ccb.tunnel.providers.model_traits import traits_of
from ccb.tunnel.providers.openai_chat import chat_call
from ccb.tunnel.providers.openai_responses import responses_call
from ccb.tunnel.providers.provider_kinds import KINDS
from ccb.tunnel.providers.translating_provider import StreamTranslator

from .adapters import MODELS


def reader_of(flavour: str) -> StreamReader:
    name, _, model = MODELS[flavour].partition("/")
    kind = KINDS["openai" if flavour in ("openai", "responses") else flavour]
    target = ModelTarget(name, model, MODELS[flavour], traits_of(model, kind.traits, {}, {}))
    asked = {"messages": [{"role": "user", "content": "hi"}]}
    call = responses_call(asked, target) if flavour == "responses" else chat_call(kind.rules, asked, target)
    return call.reader


def translated(flavour: str, parts: Iterable[bytes], reader: StreamReader | None = None) -> bytes:
    translator = StreamTranslator(reader or reader_of(flavour))
    made = []
    for part in parts:
        made.append(translator.feed(part))
        if translator.answer.over:
            return b"".join(made)
    return b"".join([*made, translator.end()])
