"""What the scripted session does for a prompt: thinks, explains, lists todos, edits after asking, runs the tests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.support.model.model_script import Json

if TYPE_CHECKING:
    from tests.support.repl.scripted_session import ScriptedSession


PATH = "/srv/shop/cart.py"
OLD = "    return sum(item.price for item in items)"
NEW = "    return sum(item.price * item.quantity for item in items)"
PATCH = [
    {
        "oldStart": 11,
        "oldLines": 4,
        "newStart": 11,
        "newLines": 4,
        "lines": [
            " def total(items: list[Item]) -> Decimal:",
            '     """The price of everything in the cart."""',
            f"-{OLD}",
            f"+{NEW}",
        ],
    }
]
ANSWER = """\
The total ignored how many of each thing are in the cart. It is **fixed** in `cart.py`:

1. `total` multiplies the price with the quantity
2. the test for an empty cart still passes

```python
def total(items: list[Item]) -> Decimal:
    return sum(item.price * item.quantity for item in items)
```

| test | before | after |
|---|---|---|
| `test_total` | failed | passed |
| `test_empty` | passed | passed |

> Nothing else was changed.
"""
THOUGHT = "The total must count each item as often as it is in the cart."
TODOS: list[Json] = [
    {"content": "Read the failing test", "status": "completed", "activeForm": "Reading"},
    {"content": "Repair the total", "status": "in_progress", "activeForm": "Repairing"},
    {"content": "Run the tests", "status": "pending", "activeForm": "Running"},
]
EDIT: Json = {"file_path": PATH, "old_string": OLD, "new_string": NEW}


async def work(session: ScriptedSession, prompt: str, pause_s: float = 0.02) -> None:
    """One turn; `pause_s` between two deltas."""
    from tests.support.repl.scripted_session import session_rule

    session.begin()
    session.open_block("thinking")
    for word in THOUGHT.split(" "):
        session.delta(word + " ", kind="thinking")
        await asyncio.sleep(pause_s)
    session.assistant({"type": "thinking", "thinking": THOUGHT})
    await _stream(session, f"I look at *{prompt}* and at the test first.", 1, pause_s)
    todo = session.call("TodoWrite", todos=TODOS)
    session.done(todo, "Todos were written.")
    read = session.call("Read", file_path=PATH)
    session.run(read, name="Read")
    session.done(read, "\n".join(f"{n:6}\tline {n}" for n in range(1, 41)))
    edit = session.call("Edit", **EDIT)
    rule = {"type": "setMode", "mode": "acceptEdits", "destination": "session"}
    answer = await session.ask(
        "ask-edit", "Edit", EDIT, decision_reason="no rule allows Edit here", permission_suggestions=[rule]
    )
    if answer["behavior"] == "deny":
        session.done(edit, answer["message"], is_error=True)
    else:
        session.done(edit, f"The file {PATH} has been updated.", structured={"structuredPatch": PATCH})
    command = "python -m pytest -q tests/"
    bash = session.call("Bash", command=command, description="Run the tests")
    answer = await session.ask(
        "ask-bash",
        "Bash",
        {"command": command, "description": "Run the tests"},
        decision_reason="no rule allows this command",
        permission_suggestions=[session_rule("Bash", "python -m pytest:*")],
    )
    if answer["behavior"] == "deny":
        session.done(bash, answer["message"], is_error=True)
    else:
        output = ""
        for number in range(1, 21):
            output += f"tests/test_cart.py::test_{number} PASSED\n"
            session.run(bash, output, number / 10)
            await asyncio.sleep(pause_s * 5)
        session.done(bash, output + "20 passed in 2.0s")
    await _stream(session, ANSWER, 0, pause_s, message_id="msg_2")
    session.finish()


async def _stream(session: ScriptedSession, text: str, index: int, pause_s: float, message_id: str = "msg_1") -> None:
    session.open_block("text", index, message_id)
    for start in range(0, len(text), 7):
        session.delta(text[start : start + 7], index)
        await asyncio.sleep(pause_s)
    session.text(text, message_id)
