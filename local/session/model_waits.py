"""What a person is told while a model does not answer: why it is asked again, and when."""

from __future__ import annotations

from ccb.tunnel.plain_text import one_line
from ccb.tunnel.wire.messages import SystemMessage, as_number, as_text

_MAX_QUOTED = 500
_WHY = {
    "rate_limit": "Too many requests to the model",
    "overloaded": "The model is overloaded",
    "server_error": "The model's server failed",
}


def retry_text(note: SystemMessage, *, waits: bool = True) -> str:
    """Return why the model is asked again (`api_retry`), and when, if that is still to come (`waits`)."""
    name, message = as_text(note.body.get("error")), as_text(note.body.get("message"))
    code, most = as_number(note.body.get("error_status")), note.body.get("max_retries")
    if not code and message:  # what the worker or the auth proxy says itself
        said = one_line(message)[:_MAX_QUOTED]
        why = said[:1].upper() + said[1:]
    elif name in _WHY:
        why = _WHY[name]
    elif name and name != "unknown":
        why = f"The model did not answer ({one_line(name).replace('_', ' ')})"
    else:  # without a status there was no answer at all, as when the laptop was away
        why = "The model did not answer" if code else "The model's answer did not arrive"
    status = f" (HTTP {code:.0f})" if code else ""
    delay = as_number(note.body.get("retry_delay_ms")) / 1000 if waits else 0
    when = f" in {delay:.0f} s" if delay >= 1 else ""
    last = "last " if note.attempt == most else ""
    return f"{why}{status}; {last}try {note.attempt} of {as_number(most):.0f}{when}"


def silence_text(note: SystemMessage) -> str:
    """Return a sentence about a `model_silent`: it is asked again unless it goes on. "" if it has gone on."""
    if not isinstance(note.body.get("retry_in_ms"), int | float):
        return ""
    silent, left = (as_number(note.body.get(name)) / 1000 for name in ("silent_ms", "retry_in_ms"))
    return f"The model has said nothing for {silent:.0f} s; it is asked again in {left:.0f} s"
