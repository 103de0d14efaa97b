"""A conversation as a Markdown document, for people who read it elsewhere."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from ccb.tunnel.plain_text import neutralise, one_line
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.messages import as_blocks
from ccb.tunnel.wire.tool_traits import View, traits_of

from .blocks import Block, FileDiffBlock, Level, MarkdownBlock, NoticeBlock, PromptBlock, ToolBlock, ToolState
from .tool_calls import agent_label

_BACKTICKS = re.compile(r"`{3,}")


def markdown_of(title: str, blocks: Iterable[Block]) -> str:
    """Return the document. Control characters of the host are made visible."""
    return "\n\n".join([f"# {one_line(title)}", *filter(None, map(text_of, _whole(blocks)))]) + "\n"


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
    return "\n\n".join(filter(None, _parts(block)))


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
    subject = agent_label(given) if traits.view is View.AGENT else traits.file_in(given)
    yield f"**{one_line(block.shown_name)}**{failed}{f' {one_line(subject)}' if subject else ''}"
    yield _given(block, traits.view, traits.file_in(given))
    if block.result and not traits.view.shows_todos:
        yield fenced(block.unmarked(block.result))


def _given(block: ToolBlock, view: View, file: str) -> str:
    given = block.tool_input
    command, content = given.get("command"), given.get("content")
    if view is View.COMMAND and isinstance(command, str):
        return fenced(command, "sh")
    if view.is_diff and block.patch:
        return _diff(block.patch)
    if view is View.NEW_CONTENT and isinstance(content, str):
        return fenced(content)
    if view.shows_todos:
        return "\n".join(_item(each) for each in as_blocks(given.get("todos")))
    if view is View.AGENT:
        return fenced(str(given.get("prompt", "")))
    if view is View.PLAN:
        return neutralise(str(given.get("plan", ""))).strip()
    if view is View.QUESTIONS:
        return "\n".join(_questions(given.get("questions")))
    rest = {key: value for key, value in given.items() if value != file}
    return fenced(json.dumps(rest, ensure_ascii=False, indent=2), "json") if rest else ""


def _diff(patch: Iterable[Json]) -> str:
    lines = [str(line) for hunk in patch for line in ("@@", *hunk.get("lines", ()))]
    return fenced("\n".join(lines), "diff") if lines else ""


def _item(todo: Json) -> str:
    return f"- [{'x' if todo.get('status') == 'completed' else ' '}] {one_line(str(todo.get('content', '')))}"


def _questions(questions: object) -> Iterator[str]:
    for each in as_blocks(questions):
        yield f"- {one_line(str(each.get('question', '')))}"
        for option in as_blocks(each.get("options")):
            yield f"  - {one_line(str(option.get('label', '')))}"


def fenced(text: str, language: str = "") -> str:
    """Return a block of code whose fence is longer than any in the text."""
    text = neutralise(text).rstrip()
    fence = "`" * max([3, *(len(found) + 1 for found in _BACKTICKS.findall(text))])
    return f"{fence}{language}\n{text}\n{fence}"
