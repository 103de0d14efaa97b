"""Find the model credential: in the environment, from a helper command, or among the stored accounts, in this order.

If ANTHROPIC_API_KEY and ANTHROPIC_AUTH_TOKEN are both set, both headers are sent, as the official clients do. A
helper's output goes into both headers as well. A stored account belongs to one provider host and is sent to no other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ccb.tunnel.proxy.providers.credential import Credential, CredentialSource, FixedCredential

from .helper import HELPER, HelperCredential
from .key_text import OAUTH_BETA, checked, checked_workspace, is_login_token

if TYPE_CHECKING:
    from ..config.settings import Settings
    from .stored import StoredCredentials

API_KEY_VARIABLE = "ANTHROPIC_API_KEY"
TOKEN_VARIABLE = "ANTHROPIC_AUTH_TOKEN"  # noqa: S105  # the name of a variable
WORKSPACE_VARIABLE = "ANTHROPIC_WORKSPACE_ID"
ANTHROPIC = "anthropic"


def credential_source(
    environ: Mapping[str, str], settings: Settings, host: str, stored: StoredCredentials
) -> CredentialSource:
    """Return the first configured source of Anthropic's credential, for the provider at `host`. Nothing is run or
    unlocked before `get`.

    Raises CredentialError if a variable holds something that cannot be a credential.
    """
    workspace = workspace_for(environ, settings)
    from_environ = environ_credential(environ, workspace)
    if from_environ is not None:
        return FixedCredential(from_environ)
    if settings.apiKeyHelper:
        keep_s = settings.credentials.helperSeconds
        return HelperCredential(settings.apiKeyHelper, environ, keep_s=keep_s, workspace=workspace)
    return stored.of(ANTHROPIC, host)


def environ_credential(environ: Mapping[str, str], workspace: str = "") -> Credential | None:
    """Return the credential in the environment variables, or None. Raises CredentialError if a value cannot be a
    credential."""
    key, token = environ.get(API_KEY_VARIABLE, "").strip(), environ.get(TOKEN_VARIABLE, "").strip()
    if not key and not token:
        return None
    source = API_KEY_VARIABLE if key else TOKEN_VARIABLE
    api_key = checked(key, API_KEY_VARIABLE) if key else None
    bearer = checked(token, TOKEN_VARIABLE) if token else None
    if is_login_token(bearer or api_key):
        return Credential(source, bearer=bearer or api_key, workspace=workspace, betas=(OAUTH_BETA,))
    return Credential(source, api_key=api_key, bearer=bearer, workspace=workspace)


def workspace_for(environ: Mapping[str, str], settings: Settings) -> str:
    """Return Anthropic's workspace for a credential that is not stored, "" for the usual one. Raise ConfigError."""
    variable = environ.get(WORKSPACE_VARIABLE, "").strip()
    if variable:
        return checked_workspace(variable, WORKSPACE_VARIABLE)
    return checked_workspace(settings.credentials.workspace or "", "credentials.workspace of the settings")


def api_key_source(source: str) -> str:
    """Return the `apiKeySource` of system/init. The public protocol has names for two sources and calls all others
    `none`."""
    return source if source in (API_KEY_VARIABLE, HELPER) else "none"
