"""The settings of a provider of models: `providers` in the settings file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field, fields
from typing import Any, ClassVar, Literal

from ccb.tunnel.errors import ConfigError
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.settings_text import line_of

Kind = Literal[
    "anthropic",
    "openai",
    "azure",
    "gemini",
    "grok",
    "deepseek",
    "openrouter",
    "ollama",
    "vllm",
    "llamacpp",
    "bedrock",
    "vertex",
    "foundry",
    "compatible",
    "anthropic-compatible",
]
Dialect = Literal["anthropic", "chat", "responses"]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]

_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,39}")
_SECRET = re.compile(r"api_?-?key$|token$|secret|password|^key$", re.IGNORECASE)
_PLACE = r"^[a-z0-9][a-z0-9.:-]{0,62}$"
_PROJECT = r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,62}$"
_PYDANTIC = {"strict": True}


@dataclass(frozen=True)
class ModelSettings:
    """What the person says of one model. It outranks what ccb knows."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = _PYDANTIC

    contextWindow: int | None = field(default=None, metadata={"gt": 0})
    maxOutput: int | None = field(default=None, metadata={"gt": 0})
    tools: bool | None = None
    images: bool | None = None
    documents: bool | None = None
    thinking: bool | None = None
    efforts: list[Effort] | None = None
    sampling: bool | None = None
    inputPrice: float | None = field(default=None, metadata={"ge": 0})
    outputPrice: float | None = field(default=None, metadata={"ge": 0})
    cacheReadPrice: float | None = field(default=None, metadata={"ge": 0})


@dataclass(frozen=True)
class ProviderSettings:
    """One provider. `kind` is the name of the provider if it is not set; `dialect` replaces that of its kind. The key
    comes from the variable `keyVariable`, or from the command `keyHelper`; `keyHeader` replaces the header that carries
    it. In a cloud, `region`, `project` and `profile` say where and as whom."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = _PYDANTIC

    kind: Kind | None = None
    dialect: Dialect | None = None
    baseUrl: str | None = field(default=None, metadata={"min_length": 1})
    keyVariable: str | None = field(default=None, metadata={"min_length": 1})
    keyHelper: str | None = field(default=None, metadata={"min_length": 1})
    keyHeader: Literal["authorization", "api-key", "x-api-key"] | None = None
    region: str | None = field(default=None, metadata={"pattern": _PLACE})
    project: str | None = field(default=None, metadata={"pattern": _PROJECT})
    profile: str | None = field(default=None, metadata={"min_length": 1})
    models: dict[str, ModelSettings] = field(default_factory=dict)


def split_provider(path: str, text: str, name: str, given: object) -> tuple[object, list[str]]:
    """Return the known part of the settings of a provider, and the other keys. Raise ConfigError for a name that no
    model can have in front of it, and for a key that would hold a secret."""
    where = f"{path}, line {line_of(text, ('providers', name))}: providers.{name}"
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{where}: this cannot be the name of a provider", do="Use small letters and digits.")
    if not isinstance(given, dict):
        return given, []
    known, others = _split(given, ProviderSettings, f"providers.{name}")
    secret = next((each for each in given if _SECRET.search(each)), None)
    if secret is not None:
        raise ConfigError(
            f"{where}.{secret}: settings must not hold a secret",
            do="Name the variable that holds the key in keyVariable, or a command that prints it in keyHelper.",
        )
    models = known.get("models")
    if isinstance(models, dict):
        known["models"] = {}
        for model, facts in models.items():
            known["models"][model] = facts
            if isinstance(facts, dict):
                known["models"][model], more = _split(facts, ModelSettings, f"providers.{name}.models.{model}")
                others += more
    return known, others


def _split(given: Mapping[str, Any], kind: type, place: str) -> tuple[dict[str, Any], list[str]]:
    names = {each.name for each in fields(kind)}
    others = [f"{place}.{each}" for each in given if each not in names]
    return {each: value for each, value in given.items() if each in names}, others
