"""The picture of the REPL in docs/repl.svg (`make screenshot`) is small, self-contained and shows no real machine."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

from tests.support.screenshot import HOST, PICTURE, PLACE, WAITS

SVG = Path(PICTURE).read_text(encoding="utf-8")
TEXT = "".join(ET.fromstring(SVG).itertext()).replace("\xa0", " ")


def test_the_picture_is_small_and_loads_nothing() -> None:
    assert len(SVG.encode()) < 100_000
    assert re.findall(r"(?:href=|url\()[\"']?(?!#)[^\"')]*", SVG) == []


def test_the_picture_shows_no_temporary_directory_and_no_address() -> None:
    assert [word for word in ("/tmp", "ccb-demo", "127.0.0.1") if word in SVG] == []


def test_the_picture_shows_a_turn_that_waits_for_an_approval() -> None:
    shown = (
        f"{HOST}:{PLACE}",
        WAITS,
        "❯",
        "● Read",
        "(Ctrl+O)",
        "sum(prices)",
        "The model says",
        "1 once",
        "3 deny",
    )
    assert [part for part in shown if part not in TEXT] == []
