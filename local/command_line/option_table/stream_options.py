"""The options that say how a session shows itself: on the terminal, or on stdin and stdout."""

from __future__ import annotations

from ..option_values import read_permission_tool
from .declaration import Group, Option, OptionKind

OUTPUT_FORMATS = ("text", "json", "stream-json")
INPUT_FORMATS = ("text", "stream-json")

_FLAG, _VALUE = OptionKind.FLAG, OptionKind.VALUE

SCREEN_OPTIONS = (
    Option(
        ("--plain",), Group.SCREEN, "plain", _FLAG,
        "Show the session as lines, without a full screen: for screen readers, simple terminals and logs.",
    ),
    Option(
        ("--no-mouse",), Group.SCREEN, "no_mouse", _FLAG,
        "Leave the mouse to the terminal: it selects and scrolls as for any program.",
    ),
)  # fmt: skip

STREAM_OPTIONS = (
    Option(
        ("--print", "-p"), Group.STREAMS, "print", _FLAG,
        "Print the answer and exit, without the terminal interface.",
    ),
    Option(
        ("--output-format",), Group.STREAMS, "output_format", _VALUE,
        "Write text (default), json (one result) or stream-json (every message as a line) to stdout.",
        "format", OUTPUT_FORMATS,
    ),
    Option(
        ("--input-format",), Group.STREAMS, "input_format", _VALUE,
        "Read text (default) or stream-json (one message a line) from stdin.", "format", INPUT_FORMATS,
    ),
    Option(
        ("--verbose",), Group.STREAMS, "verbose", _FLAG,
        "With json: print all messages instead of the result alone; stream-json requires it.",
    ),
    Option(
        ("--include-partial-messages",), Group.STREAMS, "include_partial_messages", _FLAG,
        "With stream-json: also print the raw events of the model's stream as they arrive.",
    ),
    Option(
        ("--replay-user-messages",), Group.STREAMS, "replay_user_messages", _FLAG,
        "With stream-json in and out: print each user message again when the agent takes it.",
    ),
    Option(
        ("--permission-prompt-tool",), Group.STREAMS, "permission_prompt_tool", _VALUE,
        "Let this decide what would ask a person: stdio (with stream-json in and out, questions on stdout and answers "
        "on stdin), or a tool of an MCP server (mcp__SERVER__TOOL).", "how", read=read_permission_tool,
    ),
)  # fmt: skip
