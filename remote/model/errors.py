"""What can go wrong with a model call, in one shape."""

from __future__ import annotations

from enum import Enum

_STATUS_OF_TYPE = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}


class Retry(Enum):
    """What the answer itself says about trying again (`x-should-retry`, or our own certainty)."""

    BY_STATUS = "by_status"
    YES = "yes"
    NO = "no"


OF_THE_LAPTOP = "laptop_"
"""Error types that start so are the auth proxy's own: no provider has answered, and the status of the answer means nothing."""


class ModelError(Exception):
    """A model call that failed. `status` is the HTTP status, or the one an `error` event in the stream stands for, or None
    when there was no answer (link, cut, silence). `retry_after` is in seconds. `unanswered`: after minutes of silence."""

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        error_type: str = "",
        retry_after: float | None = None,
        retry: Retry = Retry.BY_STATUS,
        request_id: str = "",
        unanswered: bool = False,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.error_type = error_type
        self.retry_after = retry_after
        self.retry = retry
        self.request_id = request_id
        self.unanswered = unanswered

    @property
    def kind(self) -> str:
        """The public protocol's word for it (`error` of assistant messages and of api_retry)."""
        status = self.status
        if status in (401, 403):
            return "authentication_failed"
        if status == 402:
            return "billing_error"
        if status == 404:
            return "model_not_found"
        if status == 429:
            return "rate_limit"
        if status == 529:
            return "overloaded"
        if status in (400, 413, 422):
            return "invalid_request"
        if status is not None and status >= 500:
            return "server_error"
        return "unknown"

    @property
    def prompt_too_long(self) -> bool:
        return self.status == 413 or (self.status == 400 and "prompt is too long" in self.message.lower())

    def prose(self, model: str) -> str:
        """What the person reads: what happened and one thing to do."""
        if self.prompt_too_long:
            return f"API Error: the conversation is too long for {model} ({self.message}). Start a new session."
        if self.status is None:
            return f"API Error: {self.message}"
        text = f"API Error: {self.status} {self.message}"
        if self.status in (401, 403):
            return f"{text} · check the credential on your laptop with `ccb auth status`"
        if self.status == 404:
            return f"{text} · the model {model} may not exist or not be open to you; choose another with --model"
        return text


def status_of(error_type: str) -> int:
    """The HTTP status that an `error` event in the stream stands for; 500 for a type we do not know."""
    return _STATUS_OF_TYPE.get(error_type, 500)
