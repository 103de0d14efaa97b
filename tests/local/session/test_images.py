"""What the person reads in place of an image."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from ccb.local.transcript.blocks import result_text

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\2\x80\0\0\1\xe0\x08\2\0\0\0" + bytes(12_000)
JPEG = b"\xff\xd8\xff\xe0\0\4ab\xff\xc0\0\x0b\x08\0\2\0\3\1" + bytes(2_500_000)


def said(*blocks: dict[str, Any]) -> str:
    return result_text({"type": "tool_result", "tool_use_id": "t", "content": list(blocks)})


def image(data: object) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}


def test_an_image_in_a_result_is_named() -> None:
    text = {"type": "text", "text": "Two plots:"}
    pictures = [image(base64.b64encode(data).decode()) for data in (PNG, JPEG)]
    assert said(text, *pictures) == "Two plots:\nPNG 640x480 · 12 KB\nJPEG 3x2 · 2.5 MB"


@pytest.mark.parametrize(
    "block",
    [
        image("no base64 ü"),
        image("abc"),
        image(""),
        image(7),
        image(base64.b64encode(b"GIF").decode()),
        {"type": "image"},
    ],
)
def test_data_that_is_no_image_is_not_described(block: dict[str, Any]) -> None:
    assert said(block) == "[image]"


def test_an_image_whose_pixels_are_missing_is_named_without_them() -> None:
    assert said(image(base64.b64encode(PNG[:12]).decode())) == "PNG · 1 KB"
