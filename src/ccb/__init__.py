"""ccb: a coding agent that lives on the remote machine, its terminal and its secrets on the laptop."""

__version__ = "0.1.0"

VERSION_ANSWER = f"2.1.329 (Claude Code compatible: ccb {__version__})"
"""The answer to `ccb --version`. The official clients read the number at its start: it is
`tunnel.wire.session_options.CLAUDE_CODE_VERSION`, which cannot be imported here."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ccb.local.api import sync as sync
    from ccb.local.api.events import Answer as Answer
    from ccb.local.api.events import Connection as Connection
    from ccb.local.api.events import Event as Event
    from ccb.local.api.events import Message as Message
    from ccb.local.api.events import Notice as Notice
    from ccb.local.api.events import Other as Other
    from ccb.local.api.events import Task as Task
    from ccb.local.api.events import Text as Text
    from ccb.local.api.events import Thinking as Thinking
    from ccb.local.api.events import ToolCall as ToolCall
    from ccb.local.api.events import ToolOutput as ToolOutput
    from ccb.local.api.events import ToolResult as ToolResult
    from ccb.local.api.events import TurnFailed as TurnFailed
    from ccb.local.api.host import Completed as Completed
    from ccb.local.api.host import Host as Host
    from ccb.local.api.host import SessionInfo as SessionInfo
    from ccb.local.api.host import connect as connect
    from ccb.local.api.questions import Allow as Allow
    from ccb.local.api.questions import Approval as Approval
    from ccb.local.api.questions import Deny as Deny
    from ccb.local.api.questions import Form as Form
    from ccb.local.api.questions import Question as Question
    from ccb.local.api.session import Prompt as Prompt
    from ccb.local.api.session import Session as Session
    from ccb.local.api.tools import Tool as Tool
    from ccb.local.api.tools import tool as tool
    from ccb.tunnel import errors as errors
    from ccb.tunnel.errors import CcbError as CcbError
    from ccb.tunnel.plain_text import neutralise as printable

# What the version promises: docs/guide/python-api.md.
# fmt: off
__all__ = [
    "Allow", "Answer", "Approval", "CcbError", "Completed", "Connection", "Deny", "Event", "Form", "Host",
    "Message", "Notice", "Other", "Prompt", "Question", "Session", "SessionInfo", "Task", "Text", "Thinking",
    "Tool", "ToolCall", "ToolOutput", "ToolResult", "TurnFailed", "__version__", "connect", "errors", "printable",
    "sync", "tool",
]
# fmt: on

_API = {
    "errors": "tunnel",
    "CcbError": "tunnel.errors",
    "printable": "tunnel.plain_text",
    "sync": "local.api",
    **dict.fromkeys(("Completed", "Host", "SessionInfo", "connect"), "local.api.host"),
    **dict.fromkeys(("Allow", "Approval", "Deny", "Form", "Question"), "local.api.questions"),
    **dict.fromkeys(("Prompt", "Session"), "local.api.session"),
    **dict.fromkeys(("Tool", "tool"), "local.api.tools"),
}
"""The module of each name of the API; of the others it is that of the events."""


def __getattr__(name: str) -> object:
    """Load a name of the API when it is first used: the command `ccb` starts without them."""
    if name not in __all__:
        raise AttributeError(f"module 'ccb' has no attribute {name!r}")
    from importlib import import_module

    home = f"ccb.{_API.get(name, 'local.api.events')}"
    if name in ("errors", "sync"):
        return import_module(f"{home}.{name}")
    return getattr(import_module(home), "neutralise" if name == "printable" else name)


def __dir__() -> list[str]:
    return [*__all__]
