"""The refusal that the host sends to a client that it gives no session. Imported before hello."""

from __future__ import annotations


class HostRefusal(Exception):
    """The host does not do what the client asks for. `code` is in `worker_refusals`, `data` the evidence for it."""

    def __init__(self, code: str, message: str, data: dict[str, object]) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


def unusable(what: str, error: OSError) -> HostRefusal:
    text = ": ".join(str(part) for part in (what, error.filename, error.strerror) if part)
    return HostRefusal("no_storage", text, {"file": error.filename})


def no_session(wanted: str, near: list[str]) -> HostRefusal:
    """Return the refusal for an id prefix `wanted` that matches none or several sessions, as listed in `near`."""
    text = "several sessions start with %s" if near else "there is no session %s on this host"
    return HostRefusal("no_session", text % wanted[:64], {"near": near[:8]})


def bug_refusal(what: str, error: Exception) -> HostRefusal:
    """Return the refusal for an unexpected exception, with its text and the places in the code that it passed."""
    import traceback  # which takes long, and only a bug needs it

    steps = traceback.extract_tb(error.__traceback__)
    places = ["%s:%d" % (step.filename.rpartition("/")[2], step.lineno or 0) for step in steps]
    data: dict[str, object] = {"bug": "%s: %s" % (type(error).__name__, error), "passed": " ".join(places[-8:])}
    return HostRefusal("internal", "%s: a bug in the worker" % what, data)
