"""A tool of an MCP server as a tool of an agent."""

from __future__ import annotations

import asyncio
import base64
import json
import time

from ccb.tunnel.wire.mcp_messages import SAY_LIMIT_S, tool_name
from ccb.tunnel.wire.prompt_content import image_trouble, image_type
from ccb.tunnel.wire.tool_traits import Effect, RunsOn, ToolTraits

from ..tools.output import MAX_OUTPUT_CHARS, OutputFiles
from ..tools.tool_contract import Tool, ToolContext, ToolResult, declared
from .mcp_client import ELSEWHERE_S, Json, McpClient, McpError, ServerTool

_MAX_DESCRIPTION = 4000
_MAX_IMAGES = 512 * 1024
"""Characters of all images of a result together. The official clients read no line longer than 1 MiB."""

_MAX_PROGRESS = 200
_IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")


class McpTool(Tool):
    """Calls of a tool run side by side if the server says that it only reads. They still need permission."""

    def __init__(self, server: str, tool: ServerTool, client: McpClient, runs_on: RunsOn) -> None:
        self.called = tool.name
        self._client = client
        traits = ToolTraits(tool_name(server, tool.name), Effect.EXECUTE, runs_on=runs_on, parallel=tool.only_reads)
        self.declaration = declared(traits, tool.description[:_MAX_DESCRIPTION], tool.input_schema)

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        began = time.monotonic()

        def progress(params: Json) -> None:
            limit.cancel()
            total, said = params.get("total"), str(params.get("message") or "")[:_MAX_PROGRESS]
            done = f"{params.get('progress')}/{total}" if total else str(params.get("progress", ""))
            spent = round(time.monotonic() - began, 1)
            context.call.progress({"output": f"{done[:40]} {said}".strip(), "elapsed_seconds": spent})

        call_s = ELSEWHERE_S if context.call.for_person else self._client.call_s
        wait = SAY_LIMIT_S if call_s < ELSEWHERE_S else call_s  # who limits a call elsewhere shows that
        unanswered = {"message": f"no answer yet, limit {call_s:g} s"}
        limit = asyncio.get_running_loop().call_later(wait, progress, unanswered)
        try:
            result = await self._client.call(self.called, tool_input, context.call.tool_use_id, progress, call_s)
        except McpError as error:
            return ToolResult(f"{self.name} failed: {error}", is_error=True)
        finally:
            limit.cancel()
        return tool_result(result, context.spill)


def tool_result(result: Json, spill: OutputFiles | None = None) -> ToolResult:
    """Return the result of a call for the model: text as it is, images as images, and of anything else what can be said
    about it. `spill` keeps in files what the model cannot see."""
    content = result.get("content")
    parts = [each for each in content if isinstance(each, dict)] if isinstance(content, list) else []
    if not parts and result.get("structuredContent") is not None:
        parts = [{"type": "text", "text": json.dumps(result["structuredContent"], ensure_ascii=False)}]
    texts, images = _split(parts, spill)
    text = "\n".join(texts)
    if len(text) > MAX_OUTPUT_CHARS:
        texts = [text[:MAX_OUTPUT_CHARS]]
    is_error = result.get("isError") is True
    if not images:
        structured = [{"type": "text", "text": each} for each in texts]
        return ToolResult(text or "(the tool returned nothing)", is_error, structured)
    blocks = [{"type": "text", "text": text[:MAX_OUTPUT_CHARS]}] if text else []
    return ToolResult([*blocks, *images], is_error, [*blocks, {"type": "text", "text": f"{len(images)} image(s)"}])


def replaced_result(output: object, spill: OutputFiles | None = None) -> ToolResult:
    """Return the result that a hook puts in the place of a server's: a result object, blocks, a text, or JSON."""
    if isinstance(output, dict) and isinstance(output.get("content"), list):
        return tool_result(output, spill)
    if isinstance(output, list) and all(isinstance(each, dict) for each in output):
        return tool_result({"content": output}, spill)
    text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
    return tool_result({"content": [{"type": "text", "text": text}]}, spill)


def _split(parts: list[Json], spill: OutputFiles | None) -> tuple[list[str], list[Json]]:
    """Return the texts of the parts, and the images as far as there is room for them."""
    texts: list[str] = []
    images: list[Json] = []
    room = _MAX_IMAGES
    for part in parts:
        image = _image(part) if part.get("type") == "image" else None
        room -= len(image["data"]) if image is not None else 0
        if image is not None and room >= 0:
            images.append({"type": "image", "source": image})
        else:
            texts.append(_text(part, spill))
    return texts, images


def _image(part: Json) -> Json | None:
    """Return the source of an image that the API takes: one that it refuses would stay in the history."""
    data, media_type = part.get("data"), part.get("mimeType")
    if not isinstance(data, str) or media_type not in _IMAGE_TYPES:
        return None
    data = "".join(data.splitlines())
    try:
        raw = base64.b64decode(data, validate=True)
    except ValueError:
        return None
    found = image_type(raw[:12])
    if found is not None and image_trouble(raw):
        return None
    return {"type": "base64", "media_type": found or media_type, "data": data}


def _text(part: Json, spill: OutputFiles | None) -> str:
    kind = part.get("type")
    if kind == "text":
        return str(part.get("text", ""))
    resource = part.get("resource")
    if kind == "resource" and isinstance(resource, dict):
        inside = resource.get("text")
        where = str(resource.get("uri", ""))
        if isinstance(inside, str):
            return f"[{where}]\n{inside}"
        return f"[{where}: not text, {_kept(resource.get('blob'), where.rpartition('/')[2], spill)}]"
    if kind == "resource_link":
        return f"[{part.get('name', '')}]({part.get('uri', '')}) {part.get('description') or ''}".rstrip()
    size = len(part["data"]) if isinstance(part.get("data"), str) else 0
    media_type = str(part.get("mimeType", "unknown"))
    where = _kept(part.get("data"), f"{kind}.{media_type.rpartition('/')[2]}", spill)
    return f"[{kind} of type {media_type}, {size * 3 // 4} bytes, {where}]"


def _kept(data: object, name: str, spill: OutputFiles | None) -> str:
    """Keep data that is encoded in base64 in a file. Return where it is."""
    if isinstance(data, str) and spill is not None:
        try:
            kept = spill.keep(base64.b64decode(data, validate=True), name or "resource")
        except ValueError:
            return "left out: it is not base64"
        if kept is not None and not kept.dropped:
            return f"kept in {kept.path}"
    return "left out"
