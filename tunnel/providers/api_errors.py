"""Errors in the shape of the Messages API."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from .json_fields import Json, dump, object_in, objects_in, text_in


class Refusal(Exception):
    """An answer that is an error in the shape of the Messages API. A `kind` that starts with `laptop_` says that no
    provider has answered, so the status was chosen by the proxy."""

    def __init__(self, status: int, message: str, *, kind: str = "", headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind or _BY_STATUS.get(status, "api_error")
        self.headers = dict(headers or {})

    def body(self) -> bytes:
        error = {"type": self.kind, "message": self.message}
        return dump({"type": "error", "error": error}).encode("utf-8", "replace")


NO_RETRY = {"x-should-retry": "false"}
_MAX_TEXT = 1_000
_BY_STATUS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    422: "invalid_request_error",
    429: "rate_limit_error",
    500: "api_error",
    502: "overloaded_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_STATUS = {"overloaded_error": 529, "billing_error": 402, "invalid_request_error": 400, "rate_limit_error": 429}
_BY_CODE = {
    "insufficient_quota": "billing_error",
    "credit_balance_exhausted": "billing_error",
    "billing_hard_limit_reached": "billing_error",
    "rate_limit_exceeded": "rate_limit_error",
    "slow_down": "rate_limit_error",
    "resource_exhausted": "rate_limit_error",
    "server_is_overloaded": "overloaded_error",
    "unavailable": "overloaded_error",
    "server_error": "api_error",
    "invalid_api_key": "authentication_error",
    "model_not_found": "not_found_error",
    "invalid_prompt": "invalid_request_error",
    "invalid_request_error": "invalid_request_error",
    "invalid_image": "invalid_request_error",
    "content_filter": "invalid_request_error",
}
_TOO_LONG = re.compile(
    r"maximum context length|context_length_exceeded|exceeds the maximum number of tokens allowed"
    r"|exceeds the available context size|exceed_context_size_error|maximum prompt length is"
    r"|input is too long for requested model|exceeds the context window|prompt is too long",
    re.IGNORECASE,
)
_NUMBERS = re.compile(r"\d[\d,]{2,}")
_SECRET = re.compile(r"\b(?:sk|pk|xai|gsk|AIza|key|Bearer)[-_ ][-_A-Za-z0-9*.]{6,}|\bAIza[-_A-Za-z0-9]{10,}")
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ms|h|m|s)")
_WAIT_IN_TEXT = re.compile(r"(?:try again|retry) in (?:about )?((?:\d+(?:\.\d+)?(?:ms|h|m|s)\s*)+)", re.IGNORECASE)
_LIMITS = ("requests", "tokens")


def read_error(status: int, headers: Sequence[tuple[str, str]], body: bytes, provider: str) -> Refusal:
    """Return the error that an answer with an error status stands for."""
    text = body.decode("utf-8", "replace")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data = " ".join(text.split())[:300]
    named = {name.lower(): value for name, value in headers}
    return error_of(data, status, named, provider)


def error_of(data: object, status: int, headers: Mapping[str, str], provider: str) -> Refusal:
    """Return the error that an object of a provider says."""
    fields = _fields(data)
    message = _message(data, fields)
    codes = [found.lower() for name in ("code", "type", "status") if (found := text_in(fields, name))]
    given = str(fields.get("code"))
    if status == 500 and given in map(str, _BY_STATUS):
        status = int(given)  # OpenRouter: the status of the provider behind it
    kind = _kind(codes, status)
    if any(map(_TOO_LONG.search, (message, *codes))):  # what makes the worker compact the conversation
        numbers = sorted(int(each.replace(",", "")) for each in _NUMBERS.findall(message))
        said = f"{numbers[-1]} tokens > {numbers[0]} maximum" if len(numbers) >= 2 else message
        return Refusal(400, f"prompt is too long: {said}", headers=NO_RETRY)
    if kind in ("authentication_error", "permission_error"):  # such a text may repeat a part of the key
        message = "the credential is refused, or what it is used for"
    code = _STATUS.get(kind) or (status if status >= 400 else 500)
    text, given = f"{provider}: {message}", headers.get("x-should-retry", "")
    if kind == "billing_error":
        return Refusal(code, text, kind=kind, headers=NO_RETRY)
    advice = {"x-should-retry": given} if given in ("true", "false") else {}
    if (wait := _wait(headers, fields, message)) is not None:
        advice["retry-after"] = f"{wait:g}"
    return Refusal(code, text, kind=kind, headers=advice)


def _kind(codes: list[str], status: int) -> str:
    kind = next((_BY_CODE[code] for code in codes if code in _BY_CODE), _BY_STATUS.get(status, ""))
    kind = kind or ("invalid_request_error" if 400 <= status < 500 else "api_error")
    if kind == "invalid_request_error" and status in (401, 403, 404, 413):
        return _BY_STATUS[status]
    return kind


def _fields(data: object) -> Json:
    """Return the object with the details. Gemini wraps it in a list, xAI has it flat with a text as `error`."""
    if isinstance(data, list) and data:
        data = data[0]
    if not isinstance(data, dict):
        return {}
    return object_in(object_in(data, "response"), "error") or object_in(data, "error") or data


def _message(data: object, fields: Json) -> str:
    text = fields.get("message") or fields.get("error") or fields.get("detail")
    if not isinstance(text, str):
        text = dump(text) if text else data if isinstance(data, str) else ""
    if raw := text_in(object_in(fields, "metadata"), "raw"):  # what the provider behind OpenRouter has said
        text = f"{text}: {raw}"
    return _SECRET.sub("…", text or "no explanation given")[:_MAX_TEXT]


def _wait(headers: Mapping[str, str], fields: Json, message: str) -> float | None:
    milliseconds, seconds = headers.get("retry-after-ms", ""), headers.get("retry-after", "")
    if re.fullmatch(r"\d+(\.\d+)?", milliseconds):
        return float(milliseconds) / 1000
    if re.fullmatch(r"\d+(\.\d+)?", seconds):
        return float(seconds)
    for each in objects_in(fields, "details"):
        if delay := text_in(each, "retryDelay"):
            return _seconds(delay)
    over = [limit for limit in _LIMITS if headers.get(f"x-ratelimit-remaining-{limit}") == "0"]
    resets = [_seconds(headers.get(f"x-ratelimit-reset-{limit}", "")) for limit in over]
    waits = [each for each in resets if each is not None]
    if waits:
        return max(waits)
    found = _WAIT_IN_TEXT.search(message)
    return _seconds(found[1]) if found else None


def _seconds(text: str) -> float | None:
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    factor = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}
    parts = _DURATION.findall(text)
    return sum(float(number) * factor[unit] for number, unit in parts) if parts else None
