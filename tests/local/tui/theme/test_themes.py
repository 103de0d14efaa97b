"""The colours: readable in every theme, in what is selected, and in terminals with few colours or none."""

from __future__ import annotations

import pytest
from tests.support.pilot import Desk, desk
from tests.support.scripted_work import ANSWER
from textual.color import Color
from textual.theme import Theme

from ccb.local.tui.theme.themes import DARK, LIGHT, fitting_theme, muted


def contrast(one: str, other: str) -> float:
    """The contrast of two colours by WCAG."""

    def light(colour: str) -> float:
        parts = [c / 255 for c in Color.parse(colour).rgb]
        r, g, b = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    bright, dim = sorted((light(one), light(other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


@pytest.mark.parametrize("theme", [DARK, LIGHT], ids=lambda theme: theme.name)
def test_every_colour_can_be_read_on_its_background(theme: Theme) -> None:
    assert theme.foreground and theme.background and theme.surface
    for colour in (
        theme.foreground, theme.accent, theme.success, theme.warning, theme.error,
        muted(theme.foreground, theme.background),
    ):  # fmt: skip
        assert colour
        assert contrast(colour, theme.background) >= 4.5
        assert contrast(colour, theme.surface) >= 4.5


@pytest.mark.parametrize(
    ("value", "theme"), [("15;0", DARK), ("0;15", LIGHT), ("0;default;7", LIGHT), ("", DARK), ("odd", DARK)]
)
def test_the_theme_fits_the_terminal(value: str, theme: Theme) -> None:
    assert fitting_theme({"COLORFGBG": value}) == theme.name


@pytest.mark.parametrize("name", ["ccb-light", "ccb-dark"])
async def test_both_themes_show_the_same_text(name: str) -> None:
    async with desk(size=(90, 30)) as at:
        at.app.theme = name
        await at.prompt("go")
        at.session.begin()
        at.session.text(ANSWER)
        await at.sees("The total ignored", "test_total  failed  passed")
        background = at.app.transcript.palette().dark
        assert background == (name == "ccb-dark")


def selected_text(at: Desk) -> str:
    """What is drawn as selected; fails where it cannot be read."""
    marked = Color.parse(at.app.theme_variables["screen-selection-background"]).rgb
    shown = ""
    for segment in (segment for strip in at.app.screen._compositor.render_strips() for segment in strip):
        style = segment.style
        if style is not None and style.bgcolor is not None and tuple(style.bgcolor.get_truecolor()) == marked:
            assert style.color is not None
            assert contrast(style.color.get_truecolor().hex, style.bgcolor.get_truecolor().hex) >= 4.5
            shown += segment.text
    return shown


@pytest.mark.parametrize("theme", [DARK, LIGHT], ids=lambda theme: theme.name)
async def test_what_is_selected_can_be_read(theme: Theme) -> None:
    async with desk() as at:
        at.app.theme = theme.name
        await at.prompt("talk")
        at.session.begin()
        at.session.text("some `code` and **bold** text")
        await at.sees("and bold text")
        at.app.screen.text_select_all()
        await at.until(lambda: "some code and bold text" in selected_text(at))


async def test_no_color_leaves_no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with desk() as at:
        await at.prompt("go")
        at.session.begin()
        at.session.done(at.session.call("Bash", command="make"), "no", is_error=True)
        at.session.ask("ask", "Bash", {"command": "make"})
        await at.sees("✗ Bash make", "1 once")
        colours = set()
        for strip in at.app.screen._compositor.render_strips():
            for line_filter in at.app._filters:
                strip = strip.apply_filter(line_filter, Color(0, 0, 0))
            colours |= {segment.style.color for segment in strip if segment.style and segment.style.color}
        triplets = {colour.get_truecolor() for colour in colours}
        assert triplets
        assert all(each.red == each.green == each.blue for each in triplets)
