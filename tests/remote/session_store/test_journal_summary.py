"""What lists say of a session: its title, and how often it was asked anything."""

from __future__ import annotations

import pytest

from ccb.remote.session_store.journal_summary import JournalSummary
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.journal_records import InputRecord, RewindRecord, UnqueuedRecord, record_of


def prompt(name: str, text: str, **more: object) -> InputRecord:
    body: Json = {"type": "user", "uuid": name, "message": {"role": "user", "content": text}, **more}
    return InputRecord(name, body)


@pytest.mark.parametrize(
    ("contents", "title", "prompts"),
    [
        ([prompt("a", "Fix the  total."), prompt("b", "And now the docs.")], "Fix the total.", 2),
        ([prompt("a", "/review"), prompt("b", "!make", shell_command=True), prompt("c", "! ls")], "", 3),
        ([prompt("a", "/init for experts"), prompt("b", "/etc/hosts is wrong")], "/etc/hosts is wrong", 2),
        ([prompt("a", "Wrong."), UnqueuedRecord("a"), prompt("b", "Right.")], "Right.", 1),
        ([prompt("a", "Wrong."), prompt("b", "Right."), UnqueuedRecord("a")], "Right.", 1),
        ([prompt("a", "Wrong."), UnqueuedRecord("a")], "", 0),
        ([prompt("a", "Wrong."), RewindRecord("a", 1, []), prompt("b", "Right.")], "Right.", 2),
        ([prompt("a", "Kept."), prompt("b", "Gone."), RewindRecord("b", 2, [])], "Kept.", 2),
        ([prompt("a", "Kept."), RewindRecord("a", 0, [])], "Kept.", 1),
    ],
)
def test_a_title_is_the_first_prompt_that_is_no_command_and_was_not_taken_back(
    contents: list[object], title: str, prompts: int
) -> None:
    summary = JournalSummary()
    for seq, each in enumerate(contents, 1):
        summary.apply(record_of(each, seq, 1.0))  # type: ignore[arg-type]
    assert (summary.prompt, summary.prompts) == (title, prompts)
