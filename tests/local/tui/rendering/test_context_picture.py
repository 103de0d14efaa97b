"""The picture that /context prints, in colours."""

from __future__ import annotations

from rich.text import Text

from ccb.local.transcript.blocks import NoticeBlock
from ccb.local.tui.rendering.block_renderer import BlockRenderer
from ccb.local.tui.rendering.themes import palette_of

COLOURS = ("foreground", "background", "accent", "surface", "success", "error", "warning")
PICTURE = "m: 4.3k of 200.0k tokens (2 %)\n\n  ▓▓▒◆" + "·" * 36 + "\n\n  ▓ System prompt  2.1k · 1 %"


def test_each_part_of_the_picture_and_of_its_legend_has_its_colour() -> None:
    palette = palette_of({name: f"#80808{place}" for place, name in enumerate(COLOURS)}, dark=True)
    (text,) = BlockRenderer(palette).render(NoticeBlock(text=PICTURE))
    assert isinstance(text, Text) and text.plain == PICTURE
    coloured = [(text.plain[span.start : span.end], span.style) for span in text.spans if span.style]
    assert coloured == [
        ("▓▓", palette.accent),
        ("▓", palette.accent),
        ("▒", palette.dim),
        ("◆", palette.good),
        ("·" * 36, palette.dim),
    ]
    (plain,) = BlockRenderer(palette).render(NoticeBlock(text="a\n  ▓ no picture"))
    assert isinstance(plain, Text) and not [span for span in plain.spans if span.style]
