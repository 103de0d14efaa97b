"""A transcript of Claude Code becomes an archive of a session: the branch that leads to its last message."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ccb.local.files.claude_transcript import convert
from ccb.remote.agent.conversation import Conversation
from ccb.tunnel.errors import UsageError
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.journal_records import Record, parse_line
from ccb.tunnel.wire.session_archive import JOURNAL, check_archive, members

SESSION = "3f2a9c1e-0000-4000-8000-000000000001"


def line(kind: str, name: str, before: str | None, content: object, **more: object) -> Json:
    message: Json = {"role": kind, "content": content}
    if kind == "assistant":
        message |= {"id": f"msg_{name[0]}", "model": "claude-opus-4-5"}
    facts = {"sessionId": SESSION, "cwd": "/home/me/app", "timestamp": "2026-11-29T18:00:00.000Z"}
    return {"type": kind, "uuid": name, "parentUuid": before, "message": message, **facts, **more}


CALL = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}, "cache_control": {}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a file"}


def converted(tmp_path: Path, *lines: object) -> tuple[list[Record], list[str]]:
    source, target = tmp_path / "source.jsonl", tmp_path / "session.tar"
    source.write_text("".join(f"{each if isinstance(each, str) else json.dumps(each)}\n" for each in lines))
    told = convert(source, target)
    with target.open("rb") as file:
        manifest, names = check_archive(file)
        assert (manifest.session, manifest.root, names) == (SESSION, "/home/me/app", ["session.json", JOURNAL])
        file.seek(0)
        (journal,) = [b"".join(pieces) for name, pieces in members(file) if name == JOURNAL]
    found = [parse_line(each) for each in journal.splitlines()]
    assert [each and each.seq for each in found] == list(range(1, len(found) + 1))
    return [each for each in found if each is not None], told


def history(found: list[Record]) -> list[tuple[str, list[str]]]:
    conversation = Conversation()
    for each in found:
        conversation.apply(each)
    return [(each.role, [str(b.get("text", b["type"])) for b in each.blocks]) for each in conversation.messages]


def test_the_branch_to_the_last_message_becomes_the_conversation(tmp_path: Path) -> None:
    found, told = converted(
        tmp_path,
        {"type": "file-history-snapshot", "messageId": "x"},
        line("user", "a", None, "look around"),
        line("assistant", "b1", "a", [{"type": "text", "text": "I look."}]),
        line("assistant", "b2", "b1", [CALL]),
        line("user", "c", "b2", [RESULT]),
        line("user", "taken back", "c", "no, not that"),
        line("assistant", "sub", "c", [{"type": "text", "text": "sub-agent"}], isSidechain=True),
        "not json",
        line("assistant", "d", "c", [{"type": "text", "text": "One file."}, {"type": "new kind"}]),
        line("user", "e", "d", [{"type": "text", "text": "thanks"}]),
        line("assistant", "f", "e", [{"type": "text", "text": "error"}], isApiErrorMessage=True),
    )
    assert history(found) == [
        ("user", ["look around"]),
        ("assistant", ["I look.", "tool_use"]),
        ("user", ["tool_result"]),
        ("assistant", ["One file."]),
        ("user", ["thanks"]),
    ]
    assert told[:3] == [
        "Not carried: 1 blocks of a kind that ccb does not know.",
        "Not carried: 1 lines that cannot be read.",
        "Not carried: 1 messages of sub-agents.",
    ]
    assert b"cache_control" not in b"".join(json.dumps(each.body).encode() for each in found)


def test_after_a_compaction_the_summary_is_what_comes_first(tmp_path: Path) -> None:
    found, _ = converted(
        tmp_path,
        line("user", "a", None, "long ago"),
        {**line("system", "boundary", None, "Compacted"), "subtype": "compact_boundary"},
        line("user", "s", "boundary", "This is the summary.", isCompactSummary=True),
        line("assistant", "t", "s", [{"type": "text", "text": "I go on."}]),
    )
    assert history(found) == [("user", ["This is the summary."]), ("assistant", ["I go on."])]


@pytest.mark.parametrize("lines", [[], ["{}"], ["[" * 100_000], [line("user", "a", "a", [])]])
def test_what_holds_no_conversation_is_refused(tmp_path: Path, lines: list[object]) -> None:
    with pytest.raises(UsageError, match="holds no conversation"):
        converted(tmp_path, *lines)
