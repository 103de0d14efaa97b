"""What can be a credential: a text that fits into a header."""

from __future__ import annotations

import re

from ccb.tunnel.errors import ConfigError, CredentialError
from ccb.tunnel.secret import Secret

from .command import MAX_SECRET

_LOGIN = "Run `ccb auth login`, or export ANTHROPIC_API_KEY."
OAUTH_BETA = "oauth-2025-04-20"
"""Anthropic's API takes the tokens of a login only with this beta."""

_LOGIN_TOKEN = "sk-ant-oat"  # noqa: S105  # how one begins
_WORKSPACE = re.compile(r"[A-Za-z0-9_-]{1,100}")


def checked(text: str, origin: str) -> Secret:
    """Return `text` as a credential. Raises CredentialError, without showing the text, if it cannot be sent in a
    header."""
    text = text.strip()
    if not text:
        raise CredentialError(f"{origin} gave no credential: it is empty.", do=_LOGIN)
    if len(text) > MAX_SECRET or not re.fullmatch(r"[\x21-\x7e]+", text):
        raise CredentialError(
            f"What {origin} gave cannot be a credential: "
            "it has spaces, line breaks or special characters, or is too long.",
            do=f"Check {origin}: it must be the key alone.",
        )
    return Secret(text)


def is_login_token(secret: Secret | None) -> bool:
    """Return whether this is a token of a login at Anthropic (`claude setup-token`), wherever the person has put it.
    The API takes one as a bearer token only, and only with a beta."""
    return secret is not None and secret.reveal().startswith(_LOGIN_TOKEN)


def checked_workspace(text: str, origin: str) -> str:
    """Return the name of a workspace. Raise ConfigError."""
    if text and not _WORKSPACE.fullmatch(text):
        raise ConfigError(f"{origin} is no workspace: it must be letters, digits, '-' and '_'", do=f"Correct {origin}.")
    return text
