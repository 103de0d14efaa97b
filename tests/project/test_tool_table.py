"""docs/tools.md says what the tools declare."""

from __future__ import annotations

from tests.support.tool_table import DOCUMENT, document


def test_the_page_of_the_tools_is_current() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == document(), "run python -m tests.support.tool_table"
