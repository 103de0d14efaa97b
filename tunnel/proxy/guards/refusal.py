"""The answer that the auth proxy gives itself, instead of a provider."""

from __future__ import annotations

import json
from collections.abc import Mapping

_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    529: "overloaded_error",
}


class Refusal(Exception):
    """An answer of the proxy itself: an error in the shape of the Messages API.

    `message` reaches the worker. `kind` is the error type. A type that starts with `laptop_` says that no provider has
    answered, so the status was chosen by the proxy.
    """

    def __init__(self, status: int, message: str, *, kind: str = "", headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind or _ERROR_TYPES.get(status, "api_error")
        self.headers = dict(headers or {})

    def body(self) -> bytes:
        """Return the JSON text of the answer."""
        return json.dumps({"type": "error", "error": {"type": self.kind, "message": self.message}}).encode()
