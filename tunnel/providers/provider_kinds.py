"""The kinds of providers that ccb knows, by the name in front of a model: `--model NAME/MODEL`."""

from __future__ import annotations

from dataclasses import field, replace
from typing import Literal

from ..wire.dataclass import dataclass
from .model_lists import ListCall
from .model_traits import ModelTraits
from .openai_chat import ChatRules

DialectName = Literal["anthropic", "chat", "responses", "bedrock", "vertex"]

ANTHROPIC = "anthropic"  # the provider of models without a provider in front of their names


@dataclass(frozen=True)
class ProviderKind:
    """One kind. `base_url` is "" if each person has their own, or the place decides; `base_variable` may set it.
    `key_variables` may hold the key, which some servers do not need. `key_header` carries it; with `api_key` it is the
    x-api-key of the Messages API. `counts`: the provider counts tokens. `traits` are of a model of which nothing is
    known. `lists` says how to ask for its models. `small_model` answers small questions."""

    name: str
    title: str
    dialect: DialectName
    base_url: str = ""
    key_variables: tuple[str, ...] = ()
    base_variable: str = ""
    needs_key: bool = True
    key_header: str = "authorization"
    api_key: bool = False
    counts: bool = False
    rules: ChatRules = field(default_factory=ChatRules)
    traits: ModelTraits = field(default_factory=ModelTraits)
    lists: ListCall = field(default_factory=ListCall)
    small_model: str = ""


_OPENAI = ChatRules(limit_field="max_completion_tokens", reasoning="effort", files=True, openai_fields=True)
_LOCAL = ModelTraits(images=True, thinking=True)
_CLAUDE = ModelTraits(documents=True, thinking=True)
_MODELS = ListCall(sdk="anthropic")
_DEPLOYMENTS = ListCall("/api/projects/{project}/deployments?api-version=v1", of_project=True)
_PROFILES = tuple(f"/inference-profiles?maxResults=1000&type={kind}" for kind in ("SYSTEM_DEFINED", "APPLICATION"))
_BEDROCK_LIST = ListCall("/foundation-models?byProvider=anthropic", more=_PROFILES)
_VERTEX_LIST = ListCall("/v1beta1/publishers/anthropic/models?pageSize=300&listAllVersions=true", strips="/v1")
_FOUNDRY_LIST = replace(_DEPLOYMENTS, path=f"{_DEPLOYMENTS.path}&modelPublisher=Anthropic")
_OLLAMA_LIST = ListCall("/api/tags", strips="/v1", details="/api/show")
_EFFORT, _CONTENT = ChatRules(reasoning="effort"), "reasoning_content"
_DEEPSEEK = ChatRules(reasoning="deepseek", thoughts_back=_CONTENT, thoughts_always=True, user_field="user_id")
_OLLAMA = ChatRules(reasoning="effort", thoughts_back="reasoning", cuts_silently=True)


def _local(name: str, title: str, port: int, key: str, rules: ChatRules, lists: ListCall | None = None) -> ProviderKind:
    """Return a server that often runs on this machine, without a key."""
    place, lists = f"http://127.0.0.1:{port}/v1", lists or ListCall()
    return ProviderKind(name, title, "chat", place, (key,), needs_key=False, rules=rules, traits=_LOCAL, lists=lists)


def _cloud(name: str, title: str, dialect: DialectName, *keys: str, lists: ListCall) -> ProviderKind:
    """Return Claude in a cloud. One with Anthropic's API takes its key in x-api-key."""
    base, api_key = f"ANTHROPIC_{name.upper()}_BASE_URL", dialect == "anthropic"
    return ProviderKind(name, title, dialect, "", keys, base, api_key=api_key, traits=_CLAUDE, lists=lists)


_KINDS = (
    ProviderKind(
        ANTHROPIC,
        "Anthropic",
        "anthropic",
        "https://api.anthropic.com",
        ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
        "ANTHROPIC_BASE_URL",
        api_key=True,
        traits=_CLAUDE,
        lists=_MODELS,
        small_model="claude-haiku-4-5",
    ),
    ProviderKind(
        "openai",
        "OpenAI",
        "responses",
        "https://api.openai.com/v1",
        ("OPENAI_API_KEY",),
        "OPENAI_BASE_URL",
        counts=True,
        rules=_OPENAI,
        traits=ModelTraits(documents=True),
        small_model="gpt-5-mini",
    ),
    ProviderKind(
        "azure",
        "Azure OpenAI",
        "responses",
        "",
        ("AZURE_OPENAI_API_KEY",),
        "AZURE_OPENAI_BASE_URL",
        key_header="api-key",
        rules=_OPENAI,
        traits=ModelTraits(documents=True),
        lists=_DEPLOYMENTS,  # it lists models, too, but what is asked for are the names of deployments
    ),
    ProviderKind(
        "gemini",
        "Gemini",
        "chat",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        rules=ChatRules(reasoning="gemini", gemini=True),
        lists=ListCall("/models?pageSize=1000", strips="/openai", key_header="x-goog-api-key"),
        small_model="gemini-2.5-flash",
    ),
    ProviderKind("grok", "Grok (xAI)", "chat", "https://api.x.ai/v1", ("XAI_API_KEY",), rules=_EFFORT),
    ProviderKind(
        "deepseek",
        "DeepSeek",
        "chat",
        "https://api.deepseek.com",
        ("DEEPSEEK_API_KEY",),
        rules=_DEEPSEEK,
        traits=ModelTraits(images=False, thinking=True),
        small_model="deepseek-chat",
    ),
    ProviderKind(
        "openrouter",
        "OpenRouter",
        "chat",
        "https://openrouter.ai/api/v1",
        ("OPENROUTER_API_KEY",),
        rules=ChatRules(reasoning="openrouter", details=True, files=True),
        traits=ModelTraits(thinking=True, efforts=("low", "medium", "high")),
    ),
    _local("ollama", "Ollama", 11434, "OLLAMA_API_KEY", _OLLAMA, _OLLAMA_LIST),
    _local("vllm", "vLLM", 8000, "VLLM_API_KEY", ChatRules(reasoning="effort", thoughts_back="reasoning")),
    _local("llamacpp", "llama.cpp", 8080, "LLAMA_API_KEY", ChatRules(thoughts_back=_CONTENT)),
    _cloud("bedrock", "Amazon Bedrock", "bedrock", "AWS_BEARER_TOKEN_BEDROCK", lists=_BEDROCK_LIST),
    _cloud("vertex", "Google Vertex AI", "vertex", lists=_VERTEX_LIST),
    _cloud("foundry", "Microsoft Foundry", "anthropic", "ANTHROPIC_FOUNDRY_API_KEY", lists=_FOUNDRY_LIST),
    ProviderKind("compatible", "an OpenAI-compatible server", "chat", needs_key=False, traits=_LOCAL),
    ProviderKind("anthropic-compatible", "an Anthropic-compatible server", "anthropic", needs_key=False, lists=_MODELS),
)
KINDS: dict[str, ProviderKind] = {kind.name: kind for kind in _KINDS}
