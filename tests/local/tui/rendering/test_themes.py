"""The colours: readable in every theme, in what is selected, and in terminals with few colours or none."""

from __future__ import annotations

import os
import re
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from tests.support.person.terminal import Terminal, screen_env, terminal
from tests.support.repl.pilot import COLOURFUL, Desk, desk
from textual.color import Color
from textual.theme import Theme

from ccb.local.tui.rendering.themes import (
    ANSI_DARK,
    ANSI_LIGHT,
    DARK,
    HIGH_CONTRAST,
    HIGH_CONTRAST_LIGHT,
    LIGHT,
    muted,
    on_ground,
    terminal_colours,
)


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
        assert contrast(colour, theme.background) >= 4.5 and contrast(colour, theme.surface) >= 4.5


@pytest.mark.parametrize(
    ("theme", "ground", "fits"),
    [
        *((DARK, ground, True) for ground in ("#000000", "#002b36", "#282a36", "#2e3440", "#300a24")),
        *((LIGHT, ground, True) for ground in ("#ffffff", "#fdf6e3", "#eff1f5")),
        *((theme, ground, False) for theme, ground in ((DARK, "#555555"), (LIGHT, "#c0c0c0"), (ANSI_DARK, "#000000"))),
    ],
)
def test_the_terminals_own_ground_stays_where_the_colours_can_be_read(theme: Theme, ground: str, fits: bool) -> None:
    on_own = on_ground(theme, Color.parse(ground))
    assert (on_own is not None) == fits
    if on_own is not None:
        test_every_colour_can_be_read_on_its_background(on_own)
        assert Color.parse(on_own.background or "") == Color.parse(ground) != Color.parse(on_own.surface or "")


@pytest.mark.parametrize("theme", [HIGH_CONTRAST, HIGH_CONTRAST_LIGHT], ids=lambda theme: theme.name)
def test_strong_contrast_is_strong(theme: Theme) -> None:
    assert theme.foreground and theme.background and theme.surface
    for colour in (theme.foreground, theme.accent, theme.success, theme.warning, theme.error):
        assert colour and min(contrast(colour, theme.background), contrast(colour, theme.surface)) >= 7


async def test_the_chosen_theme_is_kept_until_auto(tmp_path: Path) -> None:
    environ = COLOURFUL | {"HOME": str(tmp_path)}
    async with desk(environ=environ) as at:
        assert at.app.theme == DARK.name
        await at.give("/theme high-contrast", then=lambda: at.app.theme == HIGH_CONTRAST.name)
    async with desk(environ=environ) as at:
        assert at.app.theme == HIGH_CONTRAST.name
        at.app.appearance.background_is(Color(255, 255, 255))
        assert at.app.theme == HIGH_CONTRAST.name, "what the person chose outranks what the terminal says"
        await at.give("/theme auto", then=lambda: at.app.theme == DARK.name)
    async with desk(environ=environ | {"COLORFGBG": "0;15"}) as at:
        assert at.app.theme == LIGHT.name
    assert not list((tmp_path / ".local/state/ccb").iterdir())


async def test_a_person_has_themes_of_their_own(tmp_path: Path) -> None:
    folder = tmp_path / ".config/ccb/themes"
    folder.mkdir(parents=True)
    (folder / "amber.json").write_text('{"accent": "#ffb000", "background": "#101010"}')
    (folder / "odd.json").write_text('{"accent": "no colour"}')
    (folder / "more.json").write_text('{"bold": "#fff"}')
    environ = COLOURFUL | {"HOME": str(tmp_path)}
    async with desk(environ=environ, size=(200, 30)) as at:
        await at.give("/theme nothing")
        await at.sees("/theme takes auto, dark, light, high-contrast, high-contrast-light, ansi, amber, more, odd;")
        await at.give("/theme odd", sees="'no colour' is no colour")
        await at.give("/theme more", sees="bold: a theme has the colours primary")
        await at.give("/theme amber", then=lambda: at.app.current_theme.accent == "#ffb000")
    (folder / "amber.json").write_text("{")
    async with desk(environ=environ) as at:
        assert at.app.theme == DARK.name, "a theme that cannot be read any more is left"


async def test_a_theme_is_chosen_from_a_list_that_is_narrowed(tmp_path: Path) -> None:
    async with desk(environ=COLOURFUL | {"HOME": str(tmp_path)}) as at:
        await at.give("/theme", sees=("› dark  now", "  high-contrast"))
        await at.type("contrast-l", sees="› high-contrast-light")
        await at.press("enter", lacks="type to search")
        await at.until(lambda: at.app.theme == HIGH_CONTRAST_LIGHT.name)
        await at.give("/theme", sees="› high-contrast-light  now")
        await at.press("escape", lacks="type to search")
        assert at.app.theme == HIGH_CONTRAST_LIGHT.name


async def test_without_colours_a_kept_theme_stays_away(tmp_path: Path) -> None:
    kept = tmp_path / ".local/state/ccb/theme"
    kept.parent.mkdir(parents=True)
    kept.write_text("high-contrast\n")
    async with desk(environ=COLOURFUL | {"HOME": str(tmp_path), "NO_COLOR": "1"}) as at:
        assert at.app.theme == ANSI_DARK.name


async def test_an_empty_no_color_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "")
    async with desk() as at:
        assert not at.app.no_color


@pytest.mark.parametrize(
    ("environ", "theme"),
    [
        (COLOURFUL | {"COLORFGBG": "15;0"}, DARK),
        (COLOURFUL | {"COLORFGBG": "0;15"}, LIGHT),
        (COLOURFUL | {"COLORFGBG": "0;default;7"}, LIGHT),
        (COLOURFUL | {"COLORFGBG": "odd"}, DARK),
        (COLOURFUL, DARK),
        ({"TERM": "xterm-256color"}, DARK),
        ({"TERM": "xterm"}, ANSI_DARK),
        ({"TERM": "vt100", "COLORFGBG": "0;15"}, ANSI_LIGHT),
        (COLOURFUL | {"NO_COLOR": "1"}, ANSI_DARK),
        (COLOURFUL | {"NO_COLOR": ""}, DARK),
    ],
)
def test_the_theme_fits_the_terminal(environ: dict[str, str], theme: Theme) -> None:
    assert terminal_colours(environ).theme == theme.name


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
async def test_what_is_selected_can_be_read(at: Desk, theme: Theme) -> None:
    at.app.theme = theme.name
    await at.turn("talk")
    await at.says("some `code` and **bold** text", sees="and bold text")
    at.app.screen.text_select_all()
    await at.until(lambda: "some code and bold text" in selected_text(at))


@pytest.mark.parametrize("environ", [{"TERM": "xterm"}, COLOURFUL | {"NO_COLOR": "1"}], ids=["16 colours", "none"])
async def test_what_is_selected_is_seen_without_colours_of_our_own(environ: dict[str, str]) -> None:
    async with desk(environ=environ, turn="talk") as at:
        await at.says("some `code` text", sees="some code text")
        at.app.screen.text_select_all()

        def marked() -> str:
            segments = (segment for strip in at.app.screen._compositor.render_strips() for segment in strip)
            return "".join(each.text for each in segments if each.style is not None and each.style.reverse)

        await at.until(lambda: "some code text" in marked())


def codes(at: Terminal) -> set[str]:
    """The numbers in the colour and style sequences that the terminal was sent."""
    found = re.findall(rb"\x1b\[([0-9;:]*)m", at.written)
    return {code for each in found for code in each.decode().replace(":", ";").split(";") if code}


def demo(term: str, environ: dict[str, str]) -> AbstractAsyncContextManager[Terminal]:
    """The REPL on a terminal of its own, with an edit to approve on the screen soon."""
    env = {name: value for name, value in screen_env().items() if name not in ("COLORTERM", "COLORFGBG", "NO_COLOR")}
    command = [sys.executable, "-m", "tests.support.repl.scripted_session", "fix the cart"]
    return terminal(command, {**env, **environ}, os.getcwd(), term=term)


@pytest.mark.programs
async def test_no_color_sends_no_colour_to_the_terminal() -> None:
    async with demo("xterm-256color", {"NO_COLOR": "1", "COLORTERM": "truecolor"}) as at:
        await at.shows("1 Yes, once")
        plain = {"0", "1", "2", "3", "4", "7", "9", "22", "23", "24", "27", "29", "39", "49"}
        assert codes(at) - plain == set() and {"1", "2"} <= codes(at)


@pytest.mark.programs
async def test_in_16_colours_what_is_added_and_what_is_removed_differ() -> None:
    async with demo("xterm", {}) as at:
        await at.shows("1 Yes, once")
        before = rb"\x1b\[([0-9;]*)m[-+]? +return sum\(item.price "
        await at.until(lambda: re.search(before + rb"for", at.written) and re.search(before + rb"\*", at.written))
        removed, added = re.search(before + rb"for", at.written), re.search(before + rb"\*", at.written)
        assert removed and added
        assert b"31" in removed[1].split(b";") and b"32" in added[1].split(b";")
        assert "38" not in codes(at) and "48" not in codes(at)


LIGHT_ANSWER = "\x1b]11;rgb:ffff/ffff/f0f0\x1b\\"


@pytest.mark.programs
async def test_the_terminal_is_asked_for_its_background_and_its_answer_is_never_typed() -> None:
    async with demo("xterm-256color", {"COLORTERM": "truecolor"}) as at:
        await at.until(lambda: b"\x1b]11;?" in at.written)
        at.type(LIGHT_ANSWER[:9])
        at.type(LIGHT_ANSWER[9:])
        await at.until(lambda: b"38;2;31;35;40" in at.written)  # the text of the light theme
        assert b"48;2;255;255;240" not in at.written and b"48;2;251;251;250" not in at.written, "the ground stays"
        before = len(at.written)
        at.type("typed " + LIGHT_ANSWER.replace("\x1b\\", "\a") + "later\x1b]11;rgb:0")
        await at.until(lambda: "later" in at.text_from(before))
        await at.types("/0/0\x1b\\!", lambda: "!" in at.text_from(before))
        assert "rgb" not in at.text and "11;" not in at.text


@pytest.mark.programs
async def test_a_terminal_of_few_colours_whose_background_is_known_is_not_asked() -> None:
    async with demo("xterm", {"COLORFGBG": "0;15"}) as at:
        await at.shows("1 Yes, once")
        assert b"\x1b]11;" not in at.written
