"""The Python API: `import ccb`. docs/guide/python-api.md is its manual, and says what its version promises."""

from __future__ import annotations

from importlib import import_module

_HOMES = {
    **dict.fromkeys(("Completed", "Host", "SessionInfo", "connect"), "host"),
    **dict.fromkeys(("Allow", "Approval", "Deny", "Form", "Question"), "questions"),
    "Prompt": "prompts",
    "Session": "session",
    **dict.fromkeys(("Tool", "tool"), "tools"),
}
"""The modules of names; that of the others is `events`."""
_MODULES = {"errors": "ccb.tunnel.errors", "sync": "ccb.local.api.sync"}


def public(name: str) -> object:
    """Return what `ccb.NAME` is."""
    if name in _MODULES:
        return import_module(_MODULES[name])
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'events')}"), name)
