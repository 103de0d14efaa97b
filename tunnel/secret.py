"""A secret that cannot be printed, and environments for child processes without secrets."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import NoReturn, final


@final
class Secret:
    """Holds one credential or nonce. Every textual form is `Secret(…)`; only `reveal()` returns the value."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the value. Call it only where the secret is put on the wire."""
        return self._value

    def matches(self, other: str) -> bool:
        return hmac.compare_digest(self._value.encode("utf-8", "replace"), other.encode("utf-8", "replace"))

    def __bool__(self) -> bool:
        return bool(self._value)

    def __repr__(self) -> str:
        return "Secret(…)"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return "Secret(…)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self.matches(other._value)

    __hash__ = None  # type: ignore[assignment]  # a secret must not be a dictionary key

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret cannot be pickled or copied")


SECRET_VARIABLES = (
    *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_CUSTOM_HEADERS"),
    *("OPENAI_API_KEY", "AZURE_OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "XAI_API_KEY", "DEEPSEEK_API_KEY"),
    *("OPENROUTER_API_KEY", "OLLAMA_API_KEY", "VLLM_API_KEY", "LLAMA_API_KEY", "AWS_BEARER_TOKEN_BEDROCK"),
    *("ANTHROPIC_FOUNDRY_API_KEY", "OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"),
    *("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "OTEL_EXPORTER_OTLP_LOGS_HEADERS"),
)
"""Variables that no child of ccb may inherit: the tools of a local worker would see them, and ssh might send them."""


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name not in SECRET_VARIABLES}
