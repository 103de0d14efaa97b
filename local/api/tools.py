"""Tools that run in this program: `@ccb.tool`. They are an MCP server inside the client of the session."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError

from ccb.tunnel.wire.frames import Json

from ..mcp.tool_server import server_reply, tool_result

_ANYTHING: TypeAdapter[Any] = TypeAdapter(Any)


@dataclass(frozen=True)
class Tool:
    """A function that the model may call. `schema` comes from its annotations."""

    name: str
    description: str
    schema: Json = field(repr=False)
    function: Callable[..., Any] = field(repr=False)
    _adapter: TypeAdapter[Any] = field(repr=False)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    async def reply(self, given: Json) -> Json:
        """Return the result of a call. What the function raises is for the model to read."""
        try:
            if inspect.iscoroutinefunction(self.function):
                return _result(await self._adapter.validate_python(given))
            return _result(await asyncio.to_thread(self._adapter.validate_python, given))
        except ValidationError as error:
            problems = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
            return tool_result(f"The input does not fit: {problems}", failed=True)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the tool of the program raises
            return tool_result(f"{type(error).__name__}: {error}", failed=True)


def tool(function: Callable[..., Any], /) -> Tool:
    """Make a tool of a function, async or plain; a plain one runs in a thread. Its docstring is the description. It
    returns text, or what JSON can hold."""
    adapter: TypeAdapter[Any] = TypeAdapter(cast(Any, function))
    return Tool(function.__name__, inspect.getdoc(function) or "", adapter.json_schema(), function, adapter)


def tools_by_name(tools: Sequence[Tool]) -> dict[str, Tool]:
    """Raises TypeError for what is no tool."""
    for each in tools:
        if not isinstance(each, Tool):
            raise TypeError(f"{each!r} is no tool: put @ccb.tool above the function")
    return {each.name: each for each in tools}


async def tools_reply(tools: Mapping[str, Tool], message: Json) -> Json:
    """Answer the worker for the tools of a program."""
    about = ((name, each.description, each.schema) for name, each in tools.items())
    listed = [{"name": name, "description": text, "inputSchema": schema} for name, text, schema in about]
    return await server_reply(message, "ccb", listed, lambda name, given: tools[name].reply(given))


def _result(value: object) -> Json:
    return tool_result(value if isinstance(value, str) else _ANYTHING.dump_json(value).decode())
