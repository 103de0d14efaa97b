"""WebSearch: searches the web with the tool that the provider of the model runs itself."""

from __future__ import annotations

import json
import time
from typing import Any

from ccb.tunnel.wire import tool_traits

from ..contract import Tool, ToolContext, ToolDeclaration, ToolResult

Json = dict[str, Any]

_MAX_USES = 8
_DOMAINS = {"type": "array", "maxItems": 50, "items": {"type": "string", "minLength": 1, "maxLength": 253}}
_SCHEMA: Json = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "minLength": 2, "maxLength": 1000, "description": "What to search for"},
        "allowed_domains": {**_DOMAINS, "description": "Only results from these domains"},
        "blocked_domains": {**_DOMAINS, "description": "No results from these domains"},
    },
    "required": ["query"],
    "additionalProperties": False,
}
_DESCRIPTION = (
    "Searches the web and gives titles, addresses and a summary of what was found.\n"
    "- Use it for what is newer than what you know. Name the sources of what you say from it, as Markdown links.\n"
    "- allowed_domains and blocked_domains narrow the results; give only one of them."
)
_SYSTEM = "You search the web for another agent. Search, then say briefly what was found."


class WebSearch(Tool):
    """Asks the model of the session, with the provider's search tool."""

    declaration = ToolDeclaration(tool_traits.WEB_SEARCH, _DESCRIPTION, _SCHEMA)

    def validate(self, tool_input: Json, context: ToolContext) -> str | None:
        if tool_input.get("allowed_domains") and tool_input.get("blocked_domains"):
            return "Give allowed_domains or blocked_domains, not both."
        return None

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        from ...model.errors import ModelError
        from ...model.question import ModelQuestion

        assert context.call.web_access is not None
        started = time.monotonic()
        query = tool_input["query"]
        server_tool: Json = {"type": "web_search_20250305", "name": "web_search", "max_uses": _MAX_USES}
        server_tool.update({name: value for name, value in tool_input.items() if name != "query" and value})
        question = ModelQuestion(f"Search the web for: {query}", _SYSTEM, tools=[server_tool])
        try:
            reply = await context.call.web_access.ask(question)
        except ModelError as error:
            text = f"The web could not be searched: {error}"
            if error.status in (400, 404, 422):
                text += ". The provider of this model may have no web search; WebFetch reads single pages."
            return ToolResult(text, is_error=True, structured=f"Error: {text}")
        found = [_found(block) for block in reply.blocks if block.get("type") == "web_search_tool_result"]
        if not found:
            text = "No search was made: the provider of this model has no web search. WebFetch reads single pages."
            return ToolResult(text, is_error=True, structured=f"Error: {text}")
        links = [link for each in found if isinstance(each["content"], list) for link in each["content"]]
        troubles = [each["content"] for each in found if isinstance(each["content"], str)]
        parts = [f'Web search results for "{query}":']
        parts += [f"Links: {json.dumps(links, ensure_ascii=False)}"] if links else []
        parts += [f"A search failed: {each}" for each in troubles]
        parts.append(reply.text.strip() or "(no summary)")
        results: list[Any] = [each for each in found if isinstance(each["content"], list)]
        structured = {
            "query": query,
            "results": [*results, reply.text.strip()],
            "durationSeconds": round(time.monotonic() - started, 3),
        }
        return ToolResult("\n\n".join(parts), is_error=not links and bool(troubles), structured=structured)


def _found(block: Json) -> Json:
    """Return the links of one search, or the code of its error."""
    content, tool_use_id = block.get("content"), str(block.get("tool_use_id") or "")
    if not isinstance(content, list):
        code = content.get("error_code") if isinstance(content, dict) else None
        return {"tool_use_id": tool_use_id, "content": str(code or "unknown error")}
    links = [
        {"title": str(each.get("title", ""))[:300], "url": str(each.get("url", ""))[:2000]}
        for each in content
        if isinstance(each, dict) and each.get("url")
    ]
    return {"tool_use_id": tool_use_id, "content": links}
