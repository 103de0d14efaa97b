"""A secret that cannot be printed, logged or pickled by accident, and is compared in constant time."""

from __future__ import annotations

import hmac
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
        """Return whether the value is `other`. The comparison takes constant time."""
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
