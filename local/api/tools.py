"""Tools that run in this program: `@ccb.tool`. They are an MCP server inside the client of the session."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast, overload

from pydantic import TypeAdapter, ValidationError

import ccb
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.messages import as_dict, as_text

_PROTOCOL = "2025-06-18"
_NO_METHOD = -32601
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
            return _result(f"The input does not fit: {problems}", failed=True)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the tool of the program raises
            return _result(f"{type(error).__name__}: {error}", failed=True)


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(*, name: str = "", description: str = "") -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None, /, *, name: str = "", description: str = ""
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a function, async or plain; a plain one runs in a thread. Its docstring is the description. It
    returns text, or what JSON can hold."""

    def made(function: Callable[..., Any]) -> Tool:
        adapter: TypeAdapter[Any] = TypeAdapter(cast(Any, function))
        about = description or inspect.getdoc(function) or ""
        return Tool(name or function.__name__, about, adapter.json_schema(), function, adapter)

    return made if function is None else made(function)


class ToolServer:
    """Answers the JSON-RPC of the worker for the tools of a program. Raises TypeError for what is no tool."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        for each in tools:
            if not isinstance(each, Tool):
                raise TypeError(f"{each!r} is no tool: put @ccb.tool above the function")
        self._tools = {each.name: each for each in tools}

    async def reply(self, message: Json) -> Json:
        answer: Json = {"jsonrpc": "2.0", "id": message.get("id")}
        params, method = as_dict(message.get("params")), message.get("method")
        if method == "initialize":
            about = {"name": "ccb", "version": ccb.__version__}
            version = as_text(params.get("protocolVersion")) or _PROTOCOL
            answer["result"] = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
        elif method == "tools/list":
            listed = [(each.name, each.description, each.schema) for each in self._tools.values()]
            keys = ("name", "description", "inputSchema")
            answer["result"] = {"tools": [dict(zip(keys, each, strict=True)) for each in listed]}
        elif method == "tools/call":
            found = self._tools.get(as_text(params.get("name")))
            missing = _result("There is no such tool.", failed=True)
            answer["result"] = missing if found is None else await found.reply(as_dict(params.get("arguments")))
        elif method == "ping" or "id" not in message:
            answer["result"] = {}
        else:
            answer["error"] = {"code": _NO_METHOD, "message": "there is no such method"}
        return answer


def _result(value: object, *, failed: bool = False) -> Json:
    text = value if isinstance(value, str) else _ANYTHING.dump_json(value).decode()
    return {"content": [{"type": "text", "text": text}], "isError": failed}
