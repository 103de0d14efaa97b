"""The environment of what leads to a host: it inherits no credential for the model."""

from __future__ import annotations

from collections.abc import Mapping

SECRET_VARIABLES = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_CUSTOM_HEADERS")
"""Variables that no child of ccb must inherit: a worker's tools would see them, an ssh might send them."""


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """What a child of ccb inherits of `environ`."""
    return {name: value for name, value in environ.items() if name not in SECRET_VARIABLES}
