"""What `ccb export` does on this machine with what a host sends."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest
from tests.support.run_words import run_words

from ccb.local.commands import move
from ccb.local.files.copying import CopyOrder
from ccb.tunnel.plain_text import HostText

SESSION = "3f2a9c1e-0000-4000-8000-000000000001"


class BadHost(move._Host):
    """Exports what is no archive of a session."""

    async def reached(self, again: bool = False) -> tuple[mock.Mock, mock.Mock]:
        return mock.Mock(), mock.Mock()

    async def step(self, name: str, **params: object) -> move.StepRow:
        return move.StepRow(session=SESSION, path=HostText("/there/session.tar"))

    async def copy(self, order: CopyOrder) -> mock.Mock:
        Path(order.local).write_bytes(b"no archive")
        return mock.Mock()


def test_a_damaged_export_leaves_what_is_there_as_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    older = tmp_path / "kept.tar"
    older.write_text("an older one")
    with mock.patch.object(move, "_Host", BadHost):
        assert run_words(["export", "--local", SESSION, "--output", str(older)]) == 1
        assert "cannot be taken as a session" in capsys.readouterr().err
        assert run_words(["export", "--local", SESSION, "--output", "/dev/null"]) == 2
        assert "/dev/null is no regular file" in capsys.readouterr().err
        assert run_words(["export", "--local", SESSION, "--output", f"{tmp_path}/{'x' * 300}"]) == 2
        assert "File name too long" in capsys.readouterr().err
    assert [each.name for each in tmp_path.iterdir()] == ["kept.tar"] and older.read_text() == "an older one"
