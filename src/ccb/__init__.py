"""ccb: a coding agent that lives on the remote machine, its terminal and its secrets on the laptop."""

__version__ = "0.1.0"

VERSION_ANSWER = f"2.1.329 (Claude Code compatible: ccb {__version__})"
"""The answer to `ccb --version`. The official clients read the number at its start: it is
`tunnel.wire.session_options.CLAUDE_CODE_VERSION`, which cannot be imported here."""

# What the version promises: docs/guide/python-api.md.
# fmt: off
__all__ = [
    "Allow", "Answer", "Approval", "CcbError", "Completed", "Connection", "Deny", "Event", "Form", "Host",
    "Message", "Notice", "Other", "Prompt", "Question", "Session", "SessionInfo", "Task", "Text", "Thinking",
    "Tool", "ToolCall", "ToolOutput", "ToolResult", "TurnFailed", "__version__", "connect", "errors", "printable",
    "sync", "tool",
]
# fmt: on


def __getattr__(name: str) -> object:
    """Load a name of the Python API. The command starts without them, and the worker has none. Their types are in
    `__init__.pyi`."""
    if name not in __all__:
        raise AttributeError(f"module 'ccb' has no attribute {name!r}")
    from importlib import import_module

    return import_module("ccb.local.api").public(name)


def __dir__() -> list[str]:
    return [*__all__]
