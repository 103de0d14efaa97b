"""An archive of a session is hostile input: what is not a regular file of the closed table is refused by its header."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from ccb.tunnel.wire.session_archive import BadArchive, Manifest, add_member, begin, check_archive, end, members

SESSION = "3f2a9c1e-0000-4000-8000-000000000001"
MANIFEST = Manifest(SESSION, "/srv/app", "/home/me/outputs")


def whole(**files: bytes) -> bytes:
    file = io.BytesIO()
    begin(file, MANIFEST)
    for name, data in files.items():
        add_member(file, name.replace("__", "/"), io.BytesIO(data), len(data))
    end(file)
    return file.getvalue()


def with_member(name: str, data: bytes = b"x", **fields: object) -> Callable[[], bytes]:
    """An archive whose second member has these fields in its header."""

    def made() -> bytes:
        info = tarfile.TarInfo(name)
        info.size = len(data)
        for field, value in fields.items():
            setattr(info, field, value)
        file = io.BytesIO()
        begin(file, MANIFEST)
        return file.getvalue() + info.tobuf(tarfile.GNU_FORMAT) + data.ljust(512, b"\0") + bytes(1024)

    return made


def test_an_archive_is_read_as_it_was_written_and_tar_reads_it_too(tmp_path: Path) -> None:
    data = whole(**{"plan.md": b"plan", f"history__{'a' * 64}": b"v" * 1000, "outputs__0001-out": b""})
    manifest, names = check_archive(io.BytesIO(data))
    assert manifest == MANIFEST
    assert names == ["session.json", "plan.md", f"history/{'a' * 64}", "outputs/0001-out"]
    assert check_archive(io.BytesIO(with_member("plan.md")()))[1] == ["session.json", "plan.md"]
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        assert tar.getnames() == names


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(with_member("../journal.jsonl"), id="up"),
        pytest.param(with_member("/etc/passwd"), id="absolute"),
        pytest.param(with_member("outputs/../../x"), id="up below"),
        pytest.param(with_member("outputs/.hidden"), id="hidden"),
        pytest.param(with_member("summary.json"), id="of no session that moves"),
        pytest.param(with_member("plan/md"), id="nearly a name of the table"),
        pytest.param(with_member("moved"), id="the mark of a move"),
        pytest.param(with_member("complete"), id="the mark of an arrival"),
        pytest.param(with_member("x" * 300), id="a long name"),
        pytest.param(with_member("plan.md", type=tarfile.SYMTYPE, linkname="/etc/passwd"), id="link"),
        pytest.param(with_member("plan.md", type=tarfile.LNKTYPE, linkname="journal.jsonl"), id="hard link"),
        pytest.param(with_member("plan.md", type=tarfile.CHRTYPE), id="device"),
        pytest.param(with_member("plan.md", type=tarfile.FIFOTYPE), id="pipe"),
        pytest.param(with_member("outputs", type=tarfile.DIRTYPE), id="directory"),
        pytest.param(with_member("plan.md", type=tarfile.XHDTYPE), id="extended header"),
        pytest.param(with_member("plan.md", type=tarfile.GNUTYPE_SPARSE), id="sparse"),
        pytest.param(with_member("plan.md", size=2 << 20), id="too large"),
        pytest.param(with_member("journal.jsonl", size=1 << 40), id="far too large"),
        pytest.param(with_member("plan.md", size=-1), id="less than nothing"),
        pytest.param(with_member("session.json"), id="the manifest again"),
        pytest.param(lambda: whole(**{"plan.md": b"plan"})[:2000], id="cut"),
        pytest.param(lambda: whole(**{"plan.md": b"plan"})[:2048], id="cut between two members"),
        pytest.param(lambda: b"", id="empty"),
        pytest.param(lambda: b"\0" * 4096, id="zeros"),
        pytest.param(lambda: b"\x7fELF" * 1024, id="no archive"),
        pytest.param(lambda: whole().replace(b'"format": 1', b'"format": 2', 1), id="another version"),
        pytest.param(lambda: whole().replace(b"/srv/app", b"srv//app", 1), id="no root"),
    ],
)
def test_a_hostile_archive_is_refused(made: Callable[[], bytes]) -> None:
    with pytest.raises(BadArchive):
        check_archive(io.BytesIO(made()))


def test_a_large_member_is_read_in_small_pieces(tmp_path: Path) -> None:
    size = 64 << 20
    with (tmp_path / "large").open("w+b") as source, (tmp_path / "archive").open("w+b") as archive:
        source.truncate(size)
        begin(archive, MANIFEST)
        add_member(archive, "journal.jsonl", source, size)
        end(archive)
        archive.seek(0)
        sizes = [len(piece) for name, pieces in members(archive) for piece in pieces if name == "journal.jsonl"]
    assert sum(sizes) == size and max(sizes) == 1 << 20
