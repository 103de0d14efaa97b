"""Why the model is asked again, in words."""

from __future__ import annotations

from ccb.tunnel.plain_text import one_line

from .messages import SystemNote

_MOST_SAID = 500
_WHY = {
    "rate_limit": "Too many requests to the model",
    "overloaded": "The model is overloaded",
    "server_error": "The model's server failed",
}


def retry_text(note: SystemNote) -> str:
    """What failed, and when it is tried again."""
    name = note.error if note.error not in (None, "unknown") else ""
    if (note.api_error_type or "").startswith("laptop_") and note.message:  # the auth proxy's own answer
        said = one_line(note.message)[:_MOST_SAID]
        why = said[:1].upper() + said[1:]
    elif name in _WHY:
        why = _WHY[name]
    elif name:
        why = f"The model did not answer ({one_line(name).replace('_', ' ')})"
    else:  # without a status there was no answer at all, as when the laptop was away
        why = "The model did not answer" if note.error_status else "The model's answer did not arrive"
    status = f" (HTTP {note.error_status})" if note.error_status else ""
    delay = (note.retry_delay_ms or 0) / 1000
    when = f" in {delay:.0f} s" if delay >= 1 else ""
    return f"{why}{status}; try {note.attempt} of {note.max_retries}{when}"
