"""What the mouse selects is copied as it was written, whatever the width of the screen and the indent of the layout."""

from __future__ import annotations

import pytest
from tests.support.repl.pilot import Desk, desk

_LONG = " ".join(f"word{n}" for n in range(60))
_CODE = """def f(x):
\tif x:
        return 1  # a comment that is so long that no narrow screen has room for all of it

    return 2"""
_ANSWER = f"""Here it is, {_LONG}.

```python
{_CODE}
```

- an item, {_LONG}
- another

> a quote, {_LONG}

---

The end with --flags."""


async def selected(at: Desk, start: str, end: str) -> str:
    """Select with the mouse from the start of one text to the end of another, and return what was copied."""
    lines = at.screen.splitlines()
    first = next(n for n, line in enumerate(lines) if start in line)
    last = max(n for n, line in enumerate(lines) if end in line)
    at.app._clipboard = ""
    transcript = at.view.transcript
    await at.pilot.mouse_down(transcript, offset=(lines[first].index(start), first))
    await at.pilot.hover(transcript, offset=(lines[last].rindex(end) + len(end) - 1, last))
    await at.pilot.mouse_up(transcript, offset=(lines[last].rindex(end) + len(end) - 1, last))
    await at.until(lambda: at.app.clipboard)
    return at.app.clipboard


@pytest.mark.parametrize("width", [40, 70, 200])
@pytest.mark.quick_rows(1)
async def test_paragraphs_code_and_lists_are_copied_without_breaks_and_indent(width: int) -> None:
    async with desk(size=(width, 110)) as at:
        await at.turn(f"a question, {_LONG} that ends")
        await at.says(_ANSWER, sees="--flags.")
        assert await selected(at, "Here", "word59.") == f"Here it is, {_LONG}."
        assert await selected(at, "def f", "return 2") == _CODE
        assert await selected(at, "an item", "another") == f"an item, {_LONG}\n • another"
        assert await selected(at, "a quote", "The end") == f"a quote, {_LONG}\n\n---\n\nThe end"
        assert await selected(at, "--flags", "--flags") == "--flags"
        assert await selected(at, "❯ a question", "that ends") == f"a question, {_LONG} that ends"


async def test_one_line_of_code_keeps_the_indent_of_the_code_only(at: Desk) -> None:
    await at.turn()
    await at.says("```\nfirst\n    second\n```", sees="second")
    transcript, lines = at.view.transcript, at.screen.splitlines()
    row = next(n for n, line in enumerate(lines) if "second" in line)
    await at.pilot.mouse_down(transcript, offset=(0, row))
    await at.pilot.hover(transcript, offset=(30, row))
    await at.pilot.mouse_up(transcript, offset=(30, row))
    await at.until(lambda: at.app.clipboard)
    assert at.app.clipboard == "    second"


async def test_a_table_is_copied_as_it_is_drawn_and_output_without_its_indent() -> None:
    async with desk(size=(60, 40), turn="go") as at:
        call = at.session.call("Bash", command="make")
        at.session.run(call)
        at.session.done(call, "first line\n  second line\n" + "x" * 90, is_error=True)
        await at.says(f"Look, {_LONG}:\n\n| a | b |\n| - | - |\n| one | two |\n\nAfter it, {_LONG}.", sees="After it")
        assert await selected(at, "Look", "word59:") == f"Look, {_LONG}:"
        assert await selected(at, "After", "word59.") == f"After it, {_LONG}."
        assert "one" in await selected(at, "one", "two")
        copied = await selected(at, "first line", "xx…")
        assert copied == "first line\n  second line\n" + "x" * 90
