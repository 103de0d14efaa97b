"""The lines of one block, drawn with Rich.

A drawn line is a list of segments. A `Strip` of it, with the caches that it has for each way to cut and colour it, is
made only of what is on the screen: thousands of them would make each collection of garbage a pause that can be felt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from ...model.blocks import Block, MarkdownBlock, ToolBlock
from ...render.block_renderer import SPINNER, BlockRenderer
from ...render.pictures import is_of_picture
from ...render.untrusted.links import without_hidden_link

Line = list[Segment]

_ESTIMATED_TOOL_LINES = 2


def draw_lines(console: Console, renderer: BlockRenderer, block: Block, width: int) -> list[Line]:
    """Return the lines of a block, without blank ones at its ends."""
    return [line for part in draw_parts(console, renderer, block, width) for line in part]


def draw_parts(console: Console, renderer: BlockRenderer, block: Block, width: int) -> Iterator[list[Line]]:
    """Yield the lines of a block as they are drawn, some dozens at a time."""
    options = console.options.update(width=width, height=None, highlight=False)
    begun = bool(isinstance(block, MarkdownBlock) and block.opening.lines and block.opening.columns is None)  # in code
    blank: list[Line] = []
    for renderable in renderer.render(block):
        with console.use_theme(renderer.palette.markdown):
            drawn = console.render_lines(renderable, options, pad=False, new_lines=False)
        lines: list[Line] = []
        for line in map(_without_hidden_links, drawn):
            if line_text(line).strip():
                lines += [*blank, line]
                begun, blank = True, []
            elif begun:
                blank.append(line)
        yield lines


def line_text(line: Line) -> str:
    """Return the characters of a line."""
    return "".join(segment.text for segment in line)


def letters_of(lines: Sequence[Line]) -> int:
    """Return the number of letters and digits in `lines`. It is the same at every width, unlike that of blanks and
    rules."""
    return sum(map(str.isalnum, "".join(map(line_text, lines))))


def line_after(lines: Sequence[Line], letters: int) -> int:
    """Return the index of the line with the first letter after `letters` of them."""
    for index, line in enumerate(lines):
        letters -= letters_of([line])
        if letters < 0:
            return index
    return max(0, len(lines) - 1)


def texts_of(lines: Sequence[Line]) -> list[str]:
    """Return the characters of lines. A picture has none."""
    return ["".join(segment.text for segment in line if not is_of_picture(segment)) for line in lines]


def turned(strip: Strip, frame: int) -> Strip:
    """Return the first line of a running tool with its spinner in another state."""
    first, *others = strip
    spinner = Segment(SPINNER[frame % len(SPINNER)] + first.text[1:], first.style)
    return Strip([spinner, *others], strip.cell_length)


def marked(strip: Strip, span: tuple[int, int], style: Style) -> Strip:
    """Return a line with the characters of `span` marked; an end of -1 is that of the line."""
    if any(map(is_of_picture, strip)):
        return strip
    text = strip.text
    start = cell_len(text[: span[0]])
    end = strip.cell_length if span[1] == -1 else cell_len(text[: span[1]])
    if start >= end:
        return strip
    before, inside, after = strip.crop(0, start), strip.crop(start, end), strip.crop(end)
    return Strip.join([before, Strip(Segment.apply_style(inside, post_style=style), inside.cell_length), after])


def estimated_height(block: Block, width: int) -> int:
    """Guess the number of lines of a block that is far from what is shown."""
    return _ESTIMATED_TOOL_LINES if isinstance(block, ToolBlock) else 2 + block.size() // width


def _without_hidden_links(line: list[Segment]) -> Line:
    """Drop hidden links and control segments: the remote must not make the terminal do anything."""
    return [without_hidden_link(segment) for segment in line if not segment.control]
