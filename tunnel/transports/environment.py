"""The environment of child processes: they inherit no credential for the model."""

from __future__ import annotations

from collections.abc import Mapping

SECRET_VARIABLES = (
    *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_CUSTOM_HEADERS"),
    *("OPENAI_API_KEY", "AZURE_OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "XAI_API_KEY", "DEEPSEEK_API_KEY"),
    *("OPENROUTER_API_KEY", "OLLAMA_API_KEY", "VLLM_API_KEY", "LLAMA_API_KEY", "AWS_BEARER_TOKEN_BEDROCK"),
    *("ANTHROPIC_FOUNDRY_API_KEY",),
)
"""Variables that no child of ccb may inherit: the tools of a local worker would see them, and ssh might send them."""


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """Return `environ` as a child of ccb inherits it."""
    return {name: value for name, value in environ.items() if name not in SECRET_VARIABLES}
