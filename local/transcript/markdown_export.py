"""A conversation as a Markdown document, for people who read it elsewhere."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from ccb.tunnel.plain_text import neutralise, one_line
from ccb.tunnel.wire.tool_traits import View, traits_of

from .agent_runs import agent_label
from .blocks import Block, FileDiffBlock, Json, Level, MarkdownBlock, NoticeBlock, PromptBlock, ToolBlock, ToolState

_BACKTICKS = re.compile(r"`{3,}")


def markdown_of(title: str, blocks: Iterable[Block]) -> str:
    """Return the document. Control characters of the host are made visible."""
    parts = [f"# {one_line(title)}"]
    for block in _whole(blocks):
        parts.extend(part for part in _parts(block) if part)
    return "\n\n".join(parts) + "\n"


def _whole(blocks: Iterable[Block]) -> Iterator[Block]:
    last: Block | None = None
    for block in blocks:
        if isinstance(block, MarkdownBlock) and block.tight and isinstance(last, MarkdownBlock):
            last = MarkdownBlock(text=last.text + block.text)
            continue
        if last is not None:
            yield last
        last = block
    if last is not None:
        yield last


def text_of(block: Block) -> str:
    return "\n\n".join(part for part in _parts(block) if part)


def _parts(block: Block) -> Iterator[str]:
    if isinstance(block, PromptBlock):
        yield "## Prompt"
        yield neutralise(block.text).strip()
    elif isinstance(block, MarkdownBlock):
        yield neutralise(block.text).strip()
    elif isinstance(block, ToolBlock):
        yield from _call(block)
    elif isinstance(block, FileDiffBlock):
        yield f"## {one_line(block.path)}  +{block.added} -{block.removed}"
        yield _diff(block.patch or ())
    elif isinstance(block, NoticeBlock) and block.level is not Level.DIM:
        yield "\n".join(f"> {line}" for line in neutralise(block.text).splitlines())


def _call(block: ToolBlock) -> Iterator[str]:
    failed = " (failed)" if block.state is ToolState.FAILED else ""
    traits, given = traits_of(block.name), block.tool_input
    file = traits.file_in(given)
    subject = agent_label(given) if traits.view is View.AGENT else file
    yield f"**{one_line(block.name)}**{failed}{f' {one_line(subject)}' if subject else ''}"
    command, content, items = given.get("command"), given.get("content"), given.get("todos")
    if traits.view is View.COMMAND and isinstance(command, str):
        yield fenced(command, "sh")
    elif traits.view.is_diff and block.patch:
        yield _diff(block.patch)
    elif traits.view is View.NEW_CONTENT and isinstance(content, str):
        yield fenced(content)
    elif traits.view is View.CHECKLIST and isinstance(items, list):
        yield "\n".join(_item(each) for each in items if isinstance(each, dict))
    elif traits.view is View.AGENT:
        yield fenced(str(given.get("prompt", "")))
    elif traits.view is View.PLAN:
        yield neutralise(str(given.get("plan", ""))).strip()
    elif traits.view is View.QUESTIONS:
        yield "\n".join(_questions(given.get("questions")))
    elif rest := {key: value for key, value in given.items() if value != file}:
        yield fenced(json.dumps(rest, ensure_ascii=False, indent=2), "json")
    if block.result and traits.view is not View.CHECKLIST:
        yield fenced(block.unmarked(block.result))


def _diff(patch: Iterable[Json]) -> str:
    lines = [str(line) for hunk in patch for line in ("@@", *hunk.get("lines", ()))]
    return fenced("\n".join(lines), "diff") if lines else ""


def _item(todo: Json) -> str:
    return f"- [{'x' if todo.get('status') == 'completed' else ' '}] {one_line(str(todo.get('content', '')))}"


def _questions(questions: object) -> Iterator[str]:
    for each in questions if isinstance(questions, list) else ():
        if isinstance(each, dict):
            options = [option for option in each.get("options") or () if isinstance(option, dict)]
            yield f"- {one_line(str(each.get('question', '')))}"
            yield from (f"  - {one_line(str(option.get('label', '')))}" for option in options)


def fenced(text: str, language: str = "") -> str:
    """Return a block of code whose fence is longer than any in the text."""
    text = neutralise(text).rstrip()
    fence = "`" * max([3, *(len(found) + 1 for found in _BACKTICKS.findall(text))])
    return f"{fence}{language}\n{text}\n{fence}"
