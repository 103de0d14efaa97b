"""A real MCP server made with the official package: `python -m tests.support.mcp_server [LOG]` on stdio.

With a LOG file, every call of a tool writes a line there.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

server = MCPServer("notes", instructions="Notes of the laptop.")


def note(text: str) -> None:
    if len(sys.argv) > 1:
        with Path(sys.argv[1]).open("a", encoding="utf-8") as file:
            file.write(text + "\n")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    note(f"add {a} {b}")
    return a + b


@server.tool()
def token() -> str:
    """Say which token this server has."""
    note("token")
    return f"the token has {len(os.environ.get('NOTES_TOKEN', ''))} letters"


@server.tool()
def leave() -> str:
    """End this server at once."""
    os._exit(3)


@server.tool()
async def count(to: int, context: Context) -> str:
    """Count, and say how far it is. It goes on when there is a file `go` beside LOG."""
    for number in range(1, to + 1):
        note(f"count {number}")
        await context.report_progress(number, to, f"counted to {number}")
    while len(sys.argv) > 1 and not Path(sys.argv[1]).with_name("go").exists():
        await asyncio.sleep(0.02)
    note("counted")
    return "counted"


class Nothing(BaseModel):
    """A form that is only confirmed."""


@server.tool()
async def clear(context: Context) -> str:
    """Ask the person whether the notes may go."""
    return f"the answer is {(await context.elicit('Throw all notes away?', Nothing)).action}"


@server.tool("list.all")
def list_dotted() -> str:
    """List all notes."""
    return "by its name with a dot"


@server.tool("list_all")
def list_plain() -> str:
    """List the names of all notes."""
    return "by its name without a dot"


@server.resource("notes://today")
def today() -> str:
    """The note of today."""
    return "buy milk"


@server.prompt()
def review(what: str) -> str:
    """Review something."""
    return f"Please review {what}."


@server.tool()
async def grow(context: Context) -> str:
    """Offer one more tool."""

    def late() -> str:
        """A tool that came later."""
        return "late"

    server.add_tool(late)
    await context.session.send_tool_list_changed()
    return "grown"


if __name__ == "__main__":
    server.run("stdio")
