"""The error of a failed model call, with its text for the person and its name in the public protocol."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from enum import Enum

from ccb.tunnel.wire.dataclass import dataclass

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


_ABOUT_TOOL = re.compile("schema|parameters|propert|name", re.IGNORECASE)
_WHICH_TOOL = re.compile(r"(?:.*\bfunction_?[dD]eclarations|.*?\btools)[.\[](\d{1,4})\b", re.DOTALL)


class Retry(Enum):
    """Whether an error may be retried, by its `x-should-retry` header or by our own knowledge of the error."""

    BY_STATUS = "by_status"
    YES = "yes"
    NO = "no"


LAPTOP_BUDGET = "laptop_budget"
"""The error type of a call that the laptop refuses because a budget is used up."""

OF_THE_LAPTOP = "laptop_"
"""The prefix of the auth proxy's own error types: no provider has answered, so the status of the response means
nothing."""


@dataclass(eq=False)
class ModelError(Exception):
    """A model call that failed. `status` is the HTTP status, or the one that an `error` event in the stream stands for;
    None when nothing answered (lost link, cut stream, silence). `retry_after` is in seconds. `silent`: the model said
    nothing for minutes. `wrong_format`: its answer breaks the rules of the API. `cut_stream`: the answer began to
    stream and did not come to its end, as when something between the laptop and the model cannot pass on streams."""

    message: str
    status: int | None = None
    error_type: str = ""
    retry_after: float | None = None
    retry: Retry = Retry.BY_STATUS
    request_id: str = ""
    silent: bool = False
    wrong_format: bool = False
    cut_stream: bool = False

    def __str__(self) -> str:
        return self.message

    @property
    def overloaded(self) -> bool:
        return self.status == 529 and not self.error_type.startswith(OF_THE_LAPTOP)

    @property
    def kind(self) -> str:
        """The public protocol's name of the error: `error` in assistant messages and in `api_retry`."""
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
        """Whether the conversation does not fit the model."""
        return self.status == 413 or (self.status == 400 and "prompt is too long" in self.message.lower())

    def refused_tool(self, names: Sequence[str]) -> str:
        """Return which of the declared tools an API does not take, "" for none: it is named, or counted."""
        if self.status != 400 or not _ABOUT_TOOL.search(self.message):
            return ""
        named = [name for name in names if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", self.message)]
        counted = _WHICH_TOOL.match(self.message)
        number = int(counted[1]) if counted else len(names)
        return named[0] if named else names[number] if number < len(names) else ""

    def prose(self, model: str, *, answered: bool = True) -> str:
        """Return the text for the person: what happened, and one thing to do. `model` is the id of the called model.
        `answered`: the conversation holds answers, so a summary can make it shorter."""
        if self.prompt_too_long and not answered:
            what = f"API Error: the prompt is too long for {model} ({self.message})."
            return f"{what} Take it back with /rewind or begin anew with /clear, and send a shorter one."
        if self.prompt_too_long:
            return f"API Error: the conversation is too long for {model} ({self.message}). Send /compact."
        if self.status is None:
            return f"API Error: {self.message}"
        text = f"API Error: {self.status} {self.message}"
        if self.status == 429 and self.retry_after:
            again = time.strftime("%a %H:%M UTC", time.gmtime(time.time() + self.retry_after))
            return f"{text} · send it again in {self.retry_after // 60 + 1:.0f} min, after {again}"
        if self.status in (401, 403):
            return f"{text} · check the credential on your laptop with `ccb auth status`"
        if self.status == 404:
            missing = f"the model {model} may not exist or not be open to you"
            return f"{text} · {missing}; choose another with /model in the REPL, or with --model"
        return text


def status_of(error_type: str) -> int:
    """Return the HTTP status that an `error` event of this type stands for; 500 for an unknown type."""
    return _STATUS_OF_TYPE.get(error_type, 500)
