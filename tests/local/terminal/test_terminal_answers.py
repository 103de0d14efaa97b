"""What answers of the terminal mean."""

from __future__ import annotations

import pytest

from ccb.local.terminal.terminal_answers import is_light


@pytest.mark.parametrize(
    ("answer", "light"),
    [
        ("rgb:ffff/ffff/ffff", True), ("rgb:fd/f6/e3", True), ("rgba:ffff/ffff/ffff/ffff", True), ("rgb:0/0/0", False),
        ("rgb:2828/2c2c/3434", False), ("rgb:0000/0000/ffff", False), ("?", None), ("", None),
    ],
)  # fmt: skip
def test_a_background_is_light_or_dark_to_the_eye(answer: str, light: bool | None) -> None:
    assert is_light(answer) is light
