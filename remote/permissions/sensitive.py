"""Files that usually hold secrets: reading or changing one asks, unless a rule allows it.

This is about files that a call names. It is no wall: a program that runs without a question reads what it wants in its
cage.
"""

from __future__ import annotations

import os
import re
from fnmatch import fnmatchcase

from ..system.host import is_under

NAMES = (
    *(".env", ".env.local", ".env.*.local", ".env.dev*", ".env.prod*", ".env.stag*", "*.env"),
    *("*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx"),
    *("id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "*_rsa", "*_ed25519"),
    *(".netrc", ".pgpass", ".my.cnf", ".git-credentials", ".pypirc", ".htpasswd", ".vault-token"),
    *("credentials", "credentials.json", "client_secret*.json", "service-account*.json", "service_account*.json"),
    *("secrets.json", "secrets.toml", "secrets.yml", "secrets.yaml"),
)
_HOME_PLACES = (".ssh", ".aws", ".gnupg", ".kube", ".docker/config.json", ".config/gcloud", ".azure")
_MAY_NAME_ONE = re.compile(
    r"env|pem|key|p12|pfx|jks|kdbx|rsa|dsa|ed25519|netrc|pgpass|my\.cnf|cred|pypirc|htpasswd|token|secret"
    r"|account|\.ssh|\.aws|gnupg|kube|docker|gcloud|azure|[*?\[$`]",
    re.IGNORECASE,
)


def is_sensitive(real: str, home: str) -> bool:
    """Return whether the file of this real path usually holds secrets."""
    name = os.path.basename(real).casefold()
    if any(fnmatchcase(name, pattern) for pattern in NAMES):
        return True
    return any(is_under(real, os.path.realpath(os.path.join(home, place))) for place in _HOME_PLACES)


def may_name_one(command: str) -> bool:
    """Return False only for a command line that names no sensitive file. It is quick."""
    return _MAY_NAME_ONE.search(command) is not None


def sensitive_patterns() -> list[str]:
    """Return the sensitive files as patterns of path rules."""
    return [*NAMES, *(f"~/{place}/**" for place in _HOME_PLACES)]
