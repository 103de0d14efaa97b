"""Files that usually hold secrets: reading or changing one asks, unless a rule allows it.

This is about files that a call names. It is no wall: a program that runs without a question reads what it wants in its
cage.
"""

from __future__ import annotations

import itertools
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
_HOME_PLACES = (
    *(
        ".ssh",
        ".aws",
        ".gnupg",
        ".kube",
        ".docker/config.json",
        ".config/gcloud",
        ".azure",
        ".config/gh",
        ".config/hub",
    ),
    *(".config/op", ".config/rclone", ".password-store", ".local/share/keyrings", ".terraform.d", ".npmrc"),
    *(".cargo/credentials.toml", ".claude/.credentials.json", ".mozilla", ".config/google-chrome", ".config/chromium"),
)
_SYSTEM_PLACES = ("/etc/ssh", "/etc/ssl/private", "/run/secrets", "/var/run/secrets", "/proc", "/root")
_HOMES = ("/home", "/Users", "/var/home")
_MAX_ENTRIES = 1000
_MAY_NAME_ONE = re.compile(
    r"env|pem|key|p12|pfx|jks|kdbx|rsa|dsa|ed25519|netrc|pgpass|my\.cnf|cred|pypirc|htpasswd|token|secret"
    r"|account|\.ssh|\.aws|gnupg|kube|docker|gcloud|azure|config/(?:gh|hub|op|rclone|chromium)|password-store|npmrc|terraform|mozilla|chrome|[*?\[$`]",
    re.IGNORECASE,
)


def is_sensitive(real: str, home: str) -> bool:
    """Return whether the file of this real path usually holds secrets."""
    if _is_named_so(os.path.basename(real)):
        return True
    return any(is_under(real, os.path.realpath(os.path.join(home, place))) for place in _HOME_PLACES)


def is_too_wide(directory: str, home: str) -> bool:
    """Return whether a rule for all of a directory would be about more than a person has seen: it is the root, a home
    or above one, or files with secrets are in it, or it is in a place for those."""
    if is_under(os.path.realpath(home), directory) or os.path.dirname(directory) in _HOMES or directory in _HOMES:
        return True
    if any(f"/{place}/" in f"{directory}/" for place in _HOME_PLACES):
        return True
    if any(is_under(os.path.realpath(os.path.join(home, place)), directory) for place in _HOME_PLACES):
        return True
    if any(is_under(directory, place) or is_under(place, directory) for place in _SYSTEM_PLACES):
        return True
    return _has_sensitive_file(directory)


def _has_sensitive_file(directory: str) -> bool:
    try:
        with os.scandir(directory) as found:
            return any(_is_named_so(each.name) for each in itertools.islice(found, _MAX_ENTRIES))
    except OSError:
        return False


def _is_named_so(name: str) -> bool:
    return any(fnmatchcase(name.casefold(), pattern) for pattern in NAMES)


def may_name_one(command: str) -> bool:
    """Return False only for a command line that names no sensitive file. It is quick."""
    return _MAY_NAME_ONE.search(command) is not None


def sensitive_patterns() -> list[str]:
    """Return the sensitive files as patterns of path rules."""
    return [*NAMES, *(f"~/{place}/**" for place in _HOME_PLACES)]
