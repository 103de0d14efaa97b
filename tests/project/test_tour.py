"""The tour in docs (`make tour`) shows every picture that it names. Each is small and self-contained."""

from __future__ import annotations

import re

import pytest
from tests.support.screens.tour import PAGE, PICTURES, TOUR, Stop, draw, page


def test_the_page_and_the_pictures_are_those_of_the_command() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()
    assert {path.stem for path in PICTURES.iterdir()} == {stop.name for stop in TOUR}


@pytest.mark.parametrize("stop", TOUR, ids=lambda stop: stop.name)
def test_a_picture_is_small_and_loads_nothing(stop: Stop) -> None:
    svg = (PICTURES / f"{stop.name}.svg").read_text(encoding="utf-8")
    assert len(svg.encode()) < 100_000
    assert re.findall(r"(?:href=|url\()[\"']?(?!#)[^\"')]*", svg) == []
    assert "devbox:/srv/shop" in svg.replace("&#160;", " ")


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize("name", ["set-up", "first", "working", "agents", "reconnecting"])
async def test_drawn_again_a_picture_is_the_same(name: str) -> None:
    """Also those with clocks and spinners."""
    stop = next(each for each in TOUR if each.name == name)
    assert await draw(stop) == (PICTURES / f"{name}.svg").read_text(encoding="utf-8")
