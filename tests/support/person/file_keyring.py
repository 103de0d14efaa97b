"""A keyring backend in a file, chosen with PYTHON_KEYRING_BACKEND=tests.support.person.file_keyring.FileKeyring."""

from __future__ import annotations

import json
import os
from pathlib import Path

from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked, PasswordDeleteError


class FileKeyring(KeyringBackend):
    """Keeps passwords in the file named by TEST_KEYRING_FILE; locked while that file holds `locked`."""

    priority = -1  # below that of the backend that only fails: keyring never chooses this one by itself

    def __init__(self, path: Path | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._path = path or Path(os.environ["TEST_KEYRING_FILE"])

    def get_password(self, service: str, username: str) -> str | None:
        return self._load().get(f"{service}/{username}")

    def set_password(self, service: str, username: str, password: str) -> None:
        self._save({**self._load(), f"{service}/{username}": password})

    def delete_password(self, service: str, username: str) -> None:
        known = self._load()
        if known.pop(f"{service}/{username}", None) is None:
            raise PasswordDeleteError("not found")
        self._save(known)

    def _load(self) -> dict[str, str]:
        if not self._path.exists():
            return {}
        text = self._path.read_text(encoding="utf-8")
        if text == "locked":
            raise KeyringLocked("the collection is locked")
        return dict(json.loads(text))

    def _save(self, known: dict[str, str]) -> None:
        self._path.write_text(json.dumps(known), encoding="utf-8")
