"""Blocks of the transcript, drawn in colours."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from rich.columns import Columns
from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from ccb.tunnel.plain_text import neutralise, one_line
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.tool_traits import EDIT, View, traits_of

from ...terminal.keymap import DEFAULT_KEYMAP, Keymap
from ...transcript.blocks import (
    AgentRow,
    AgentRun,
    Block,
    FileDiffBlock,
    FoldBlock,
    Level,
    MarkdownBlock,
    NoticeBlock,
    OfferBlock,
    PicturedBlock,
    PromptBlock,
    PromptState,
    ThoughtBlock,
    TipsBlock,
    ToolBlock,
    ToolState,
)
from ...transcript.session_facts import tokens
from .diffs import edit_parts
from .markdown import MAX_MARKDOWN, render_markdown
from .themes import Palette
from .tool_output import (
    MAX_DETAIL_LINES,
    ErrorCard,
    SummedUpHeadline,
    both_ends,
    counted,
    headline,
    todo_list,
    tool_output,
    tool_summary,
)

_MAX_LIVE_ROWS = 4
_MAX_PROMPT = 4_000  # characters


def agent_rows(block: ToolBlock, run: AgentRun, palette: Palette, *, details: bool, cwd: str, key: str) -> Text:
    """Draw a line with what the agent has used, and its newest calls while it works; with `details` all."""
    text = Text(style=palette.dim, no_wrap=not details, overflow="fold" if details else "ellipsis")
    text.append(f"└ {agent_summary(block, run)}")
    text.append("" if details else _how_to_open(run, key), style=palette.accent if run.marked else "")
    if details and isinstance(block.tool_input.get("prompt"), str):
        text.append(_below("Asked: " + block.tool_input["prompt"][:_MAX_PROMPT]))
    rows = list(run.rows) if details else [] if run.ended else list(run.rows)[-_MAX_LIVE_ROWS:]
    left_out = run.tool_uses - len(rows)
    if rows and left_out > 0:
        text.append(f"\n  … {counted(left_out, 'earlier call')}{'' if details else f' ({key})'}")
    for row in rows:
        text.append("\n  ").append_text(agent_row(row, palette, cwd))
    if details and block.result:
        text.append(_below("Answer: " + block.result))
    return text


def _how_to_open(run: AgentRun, key: str) -> str:
    return " · Enter opens it" if run.marked else " · Down, Enter opens it" if key and not run.ended else ""


def agent_row(row: AgentRow, palette: Palette, cwd: str) -> Text:
    """Draw one call of a sub-agent."""
    marks = {
        ToolState.WAITING: ("○", palette.dim),
        ToolState.RUNNING: ("◐", palette.accent),
        ToolState.ASKS: ("?", f"bold {palette.warn}"),
        ToolState.DONE: ("●", palette.good),
        ToolState.FAILED: ("✗", palette.bad),
    }
    mark, style = marks[row.state]
    text = Text.assemble(
        (f"{mark} ", style), f"{one_line(row.name)} {headline(row.name, row.tool_input, cwd)}".rstrip()
    )
    return text.append("  waits for your answer", style=palette.warn) if row.state is ToolState.ASKS else text


def agent_summary(block: ToolBlock, run: AgentRun) -> str:
    goes_on = not run.ended
    parts = {
        "in the background": run.in_background and goes_on,
        f"worktree on {run.branch}": run.branch,
        "in a worktree": block.tool_input.get("isolation") and goes_on and not run.branch,
        one_line(run.note): run.note and goes_on,
        counted(run.tool_uses, "tool use"): run.tool_uses or run.ended,
        f"{tokens(run.tokens)} tokens": run.tokens,
        f"{run.seconds:.0f} s": run.seconds >= 1 and (run.ended or block.state is not ToolState.RUNNING),
        f"${run.cost_usd or 0:.4f}": run.cost_usd,
    }
    return " · ".join(part for part, said in parts.items() if said) or "starting"


def _below(value: str) -> str:
    return "".join(f"\n  {line}" for line in neutralise(value).rstrip().splitlines())


_MAX_PROMPT_LINES = 30
_MARKED_OFFER = "{port-open!} opens · {port-forward!} forwards · {port-ignore!} not for this project"
_OFFER = f"Down, then {_MARKED_OFFER}"
_LONG_S = 5  # seconds after which a command is worth the key that lets it go on in the background
_MAX_DIFF_LINES = 24
_MAX_LIVE_MARKDOWN = 6_000  # characters; a longer block is plain text until it is complete
_PART_LINES = 50  # of a long text, drawn at a time
_PART_CHARS = 20_000  # of a long line, drawn at a time: Rich takes 100 bytes for each
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"  # the states of the spinner in front of a running tool. Blocks are drawn with the first one
_INDENT = (0, 0, 0, 2)
_PICTURE = re.compile(r"(?m)^  [▓▒◆▚█·×]{40}$")
"""A row of the picture that /context prints: each glyph stands for a part of the model's window."""


@dataclass(frozen=True)
class BlockRenderer:
    """`copied_from` is 0, or the width of the screen for a drawing to copy from. `keymap` names keys. `pictures` draws
    the images of a block; without it they are only named."""

    palette: Palette
    details: bool = False
    cwd: str = ""
    copied_from: int = 0
    keymap: Keymap = DEFAULT_KEYMAP
    pictures: Callable[[PicturedBlock], Iterable[RenderableType]] = lambda block: ()

    @property
    def more_key(self) -> str:
        return self.keymap.name("details")

    def render(self, block: Block) -> Iterator[RenderableType]:
        """Yield the renderables of one block, top to bottom. None of them takes long to draw."""
        match block:
            case PromptBlock():
                for part in _in_parts(self._prompt(block)):
                    yield Padding(part, (0, 1, 0, 0), style=f"on {self.palette.surface}")
                yield from self.pictures(block)
            case MarkdownBlock():
                yield from self._markdown(block)
            case ThoughtBlock():
                yield from _in_parts(self._thought(block))
            case ToolBlock():
                yield from self._tool(block)
                yield from self.pictures(block)
            case FileDiffBlock():
                yield from self._file_diff(block)
            case TipsBlock():
                yield self._tips(block)
            case FoldBlock():
                yield from self._fold(block)
            case NoticeBlock(level=Level.ERROR):
                yield ErrorCard(block.text, self.palette, bare=bool(self.copied_from))
            case OfferBlock():
                yield self._offer(block)
            case NoticeBlock():
                yield from _in_parts(self._notice(block))

    def _markdown(self, block: MarkdownBlock) -> Iterator[RenderableType]:
        if len(block.text) > (_MAX_LIVE_MARKDOWN if block.live else MAX_MARKDOWN):
            yield from _in_parts(Text(block.text))
        else:
            yield render_markdown(block.text, self.palette, self.copied_from, block.opening)

    def _tips(self, block: TipsBlock) -> RenderableType:
        accent, dim = f"bold {self.palette.accent}", self.palette.dim
        tips = [Text.assemble((key, accent), "  ", (use, dim)) for key, use in block.tips]
        return Padding(Columns(tips, padding=(0, 3)), _INDENT)

    def _fold(self, block: FoldBlock) -> Iterator[RenderableType]:
        more = "" if self.details or self.copied_from else f"  {self.more_key}"
        yield Text(f"{block.text}{more}", self.palette.dim, no_wrap=True, overflow="ellipsis")
        for each in block.folded if self.details else ():
            yield from self.render(each)

    def _prompt(self, block: PromptBlock) -> Text:
        palette, text = self.palette, Text()
        lines = block.text.splitlines() or [""]
        hidden = 0 if self.details else len(lines) - _MAX_PROMPT_LINES
        for number, line in enumerate(both_ends(lines) if self.details else lines[:_MAX_PROMPT_LINES]):
            indent = "" if self.copied_from else "  "
            text.append("❯ " if number == 0 else f"\n{indent}", style=f"bold {palette.accent}")
            text.append(line, style="bold" if block.state is PromptState.TAKEN else palette.dim)
        if hidden > 0:
            text.append(f"\n  … {counted(hidden, 'more line')} ({self.more_key})", style=palette.dim)
        said, style = {
            PromptState.QUEUED: ("steers", palette.accent) if block.facts.steers else ("queued", palette.dim),
            PromptState.UNSENT: ("waiting to be sent", palette.warn),
            PromptState.FAILED: ("not sent", palette.bad),
        }.get(block.state, ("", ""))
        text.append(f"  ({said})" if said else "", style=style)
        can_steer = block.facts.steers is not None and not block.text.startswith(("!", "/"))
        if said == "queued" and can_steer and not self.copied_from:
            text.append(f"  {self.keymap.name('steer')} steers", style=palette.dim)
        return text

    def _thought(self, block: ThoughtBlock) -> Text:
        style = f"italic {self.palette.dim}"
        if self.details:
            return Text("✻ " + block.text.strip(), style=style)
        if block.live:
            return Text("✻ Thinking…", style=style)
        return Text(f"✻ Thought, {len(block.text.split())} words", style=style)

    def _notice(self, block: NoticeBlock) -> Text:
        palette = self.palette
        style = {Level.DIM: palette.dim, Level.WARNING: palette.warn}.get(block.level, "")
        first, _, rest = block.text.partition("\n")
        text = Text().append(first, style=style)
        if rest:
            text.append("\n" + rest, style=palette.dim if block.level is not Level.INFO else "")
        if _PICTURE.search(rest):  # without colours, its glyphs differ
            others = (palette.dim, palette.good, palette.warn, f"bold {palette.accent}", palette.dim, palette.bad)
            for glyph, colour in zip("▓▒◆▚█·×", (palette.accent, *others), strict=True):
                text.highlight_regex(f"(?m)(?:(?<=^  )|(?<=[▓▒◆▚█·×])){glyph}+", colour)
        return text

    def _offer(self, block: OfferBlock) -> Text:
        text = Text("› " if block.marked else "", style=f"bold {self.palette.accent}")
        text.append(block.text, style="bold" if block.marked else "not bold")
        keys = self.keymap.filled(_MARKED_OFFER if block.marked else _OFFER)
        return text.append("" if self.copied_from else f" · {keys}", style=f"not bold {self.palette.dim}")

    def _file_diff(self, block: FileDiffBlock) -> Iterator[RenderableType]:
        palette = self.palette
        head = Text(no_wrap=True, overflow="ellipsis")
        head.append("› " if block.marked else "  ", style=f"bold {palette.accent}")
        style = {"+": palette.good, "-": palette.bad}.get(block.sign, palette.accent)
        head.append(f"{'▾' if block.unfolded else '▸'} {block.sign} ", style=style)
        head.append(one_line(block.path), style="bold" if block.marked else "")
        head.append(f"  +{block.added}", style=palette.good).append(f" -{block.removed}", style=palette.bad)
        if block.note:
            head.append(f"  {block.note}", style=palette.warn)
        yield head
        if not block.unfolded:
            return
        if block.patch:
            edit = ToolBlock(name=EDIT.name, tool_input={"file_path": block.path}, patch=block.patch)
            yield from self._edit(edit, MAX_DETAIL_LINES)
        if block.problem or not block.patch:
            said = block.problem or ("…" if block.patch is None else "no line is different")
            yield Padding(Text(said, style=palette.dim), _INDENT)

    def _edit(self, block: ToolBlock, limit: int) -> Iterator[RenderableType]:
        parts = edit_parts(block, self.palette, limit, details=self.details, key=self.more_key)
        return (Padding(part, _INDENT) for part in parts)

    def _tool(self, block: ToolBlock) -> Iterator[RenderableType]:
        palette, view = self.palette, traits_of(block.name).view
        if view is View.TODO and not self.details and block.state is not ToolState.FAILED:
            yield SummedUpHeadline(self._tool_headline(block), todo_list(block.tool_input, palette))
            return
        summary = None if self.details else tool_summary(block)
        if summary is not None:
            yield SummedUpHeadline(self._tool_headline(block), Text(summary, style=palette.dim))
            return
        yield self._tool_headline(block)
        yield from self._below_headline(block, view)

    def _below_headline(self, block: ToolBlock, view: View) -> Iterator[RenderableType]:
        palette, failed = self.palette, block.state is ToolState.FAILED
        if view.shows_todos and not failed:
            yield self._indented(todo_list(block.tool_input, palette))
        elif view is View.PLAN and block.state is ToolState.DONE:
            plan = neutralise(str(block.tool_input.get("plan", "")))
            rendered = len(plan) <= MAX_MARKDOWN and not self.details
            yield self._indented(render_markdown(plan, palette, self.copied_from) if rendered else Text(plan))
        elif block.agent is not None and not failed:
            key = "" if self.copied_from else self.more_key
            rows = agent_rows(block, block.agent, palette, details=self.details, cwd=self.cwd, key=key)
            yield self._indented(rows)
        elif view.is_diff and not failed:
            if block.state is ToolState.DONE:
                yield from self._edit(block, MAX_DETAIL_LINES if self.details else _MAX_DIFF_LINES)
        elif (output := tool_output(block, palette, details=self.details, key=self.more_key)) is not None:
            yield from map(self._indented, _in_parts(output))

    def _indented(self, part: RenderableType) -> RenderableType:
        return part if self.copied_from else Padding(part, _INDENT)

    def _tool_headline(self, block: ToolBlock) -> Text:
        palette = self.palette
        mark, style = {
            ToolState.WAITING: ("○", palette.dim),
            ToolState.RUNNING: (SPINNER[0], palette.accent),
            ToolState.DONE: ("●", palette.good),
            ToolState.FAILED: ("✗", palette.bad),
            ToolState.UNKNOWN: ("?", palette.warn),
        }[block.state]
        head = Text(no_wrap=not self.details, overflow="fold" if self.details else "ellipsis")
        head.append(f"{mark} ", style=style)
        marked = block.agent is not None and block.agent.marked
        head.append(one_line(block.shown_name), style="bold reverse" if marked else "bold")
        subject = headline(block.name, block.tool_input, self.cwd, whole=self.details)
        if subject:
            head.append(f" {subject}")
        if block.state is ToolState.UNKNOWN:
            head.append("  its result is not known here", style=palette.dim)
        elif block.state is ToolState.RUNNING and block.elapsed_s >= 1:
            head.append(f"  {block.elapsed_s:.0f} s", style=palette.dim)
            may_move = block.movable and traits_of(block.name).view is View.COMMAND and self.keymap.keys["background"]
            if block.elapsed_s >= _LONG_S and may_move and not self.copied_from:
                head.append(f"  {self.keymap.name('background')} background", style=palette.dim)
        return head


def _in_parts(text: Text) -> Iterator[Text]:
    if text.plain.count("\n") <= _PART_LINES and len(text) <= _PART_CHARS:
        yield text
        return
    between = text.blank_copy("\n")
    part: list[Text] = []
    for whole in text.split("\n", allow_blank=True):
        for line in whole.divide(range(_PART_CHARS, len(whole), _PART_CHARS)) if len(whole) > _PART_CHARS else [whole]:
            if len(part) == _PART_LINES or sum(map(len, part)) + len(line) > _PART_CHARS:
                yield between.join(part)
                part = []
            part.append(line)
    yield between.join(part)


def is_animated(block: Block) -> bool:
    """Return whether a block shows the spinner, as the first character of its first line."""
    return isinstance(block, ToolBlock) and block.state is ToolState.RUNNING
