"""The table of sessions, and how one of them is chosen."""

from __future__ import annotations

import pytest
from rich.cells import cell_len, set_cell_size

from ccb.local.commands.session_table import choose_session, matching, session_table, size_text
from ccb.local.connect.session_rows import SessionRow, row_of
from ccb.tunnel.errors import ProtocolError, UsageError
from ccb.tunnel.plain_text import HostText, age_text

ONE = SessionRow(
    session="3f2a9c1e-0000-4000-8000-000000000001",
    cwd=HostText("/srv/shops/north/application/backend"),
    state="requires_action",
    alive=True,
    age_s=7200,
    idle_s=61,
    prompt=HostText("make the tests pass and then " + "go on " * 40),
    driver=HostText("ann@laptop pid 1 ab12"),
    viewers=2,
    rss=26 * 1048576,
)
TWO = SessionRow(
    session="3f2a9c1e-0000-4000-8000-000000000002", cwd=HostText("~"), state="ended", prompt=HostText("hello")
)


def test_it_fits_the_terminal_and_tells_like_ids_apart() -> None:
    for width in (100, 120, 200):
        head, first, second = session_table([ONE, TWO], width)
        assert head.split()[:3] == ["ID", "STATE", "AGE"]
        assert first.startswith(ONE.session) and second.startswith(TWO.session)
    assert all(len(line) <= 200 for line in session_table([ONE, TWO], 200))
    line = session_table([ONE], 90)[1]
    times, where = ("asks", "2h", "1m", "26M"), ("ann@laptop +2", "…/north/application/backend")
    assert all(part in line for part in ("3f2a9c1e ", *times, *where, "make the tes…"))


@pytest.mark.parametrize("width", [50, 60, 80, 100, 200])
def test_no_line_is_wider_than_the_terminal_and_the_columns_stand_in_line(width: int) -> None:
    wide = ONE.model_copy(
        update={"session": "77" * 16, "cwd": HostText("/srv/日本語/プロジェクト"), "prompt": HostText("修正 🚀" * 30)}
    )
    lines = session_table([ONE, wide, TWO.model_copy(update={"session": "88" * 16})], width)
    assert all(cell_len(line) <= width for line in lines)
    for name in ("STATE", "PATH", "TITLE"):
        at = lines[0].index(name)
        assert all(set_cell_size(line, at)[-2:] == "  " for line in lines)
    if width >= 80:
        assert lines[0].split() == ["ID", "STATE", "AGE", "IDLE", "RSS", "DRIVER", "PATH", "TITLE"]


def test_on_a_very_narrow_terminal_the_prompt_is_worth_more_than_the_path() -> None:
    head, line = session_table([ONE], 36)
    assert head.split() == ["ID", "STATE", "AGE", "TITLE"]
    assert "make the tes" in line and cell_len(line) <= 36


def test_a_driver_that_has_gone_without_leaving_is_away() -> None:
    away = ONE.model_copy(update={"driver_away": True})
    assert "  (ann@laptop away) +2  " in session_table([away], 120)[1]
    for width in range(36, 120):
        assert all(cell_len(line) <= width for line in session_table([away], width))
        assert session_table([ONE, away], width)[2].count("away") <= 1
    assert "  ann@… +2  " in session_table([away], 70)[1], "the name says more where there is little room"
    gone = TWO.model_copy(update={"driver_away": True})
    assert "away" not in session_table([gone], 120)[1]


def test_a_session_without_a_disk_is_marked() -> None:
    rows = [TWO.model_copy(update={"state": "idle", "storage": storage}) for storage in ("", "memory")]
    _, disk, memory = session_table(rows, 120)
    assert " idle (memory) " in memory and "(memory)" not in disk


def test_ages_and_sizes_are_short() -> None:
    ages = [age_text(seconds) for seconds in (-1, 0, 59.9, 60, 3599, 3600, 86400 * 3)]
    assert ages == ["0s", "0s", "59s", "1m", "59m", "1h", "3d"]
    assert [size_text(s) for s in (0, 1, 2048, 3 * 1048576)] == ["", "1K", "2K", "3M"]


def test_a_report_of_a_wrong_shape_is_an_error_that_names_the_host() -> None:
    for odd in ({"age_s": "old"}, {"age_s": float("inf")}, {"rss": -1}, {"rss": 10**400}, {"prompt": "x" * 1001}):
        with pytest.raises(ProtocolError, match="devbox"):
            row_of(SessionRow, {"session": "x", **odd}, "devbox")
    assert row_of(SessionRow, {"session": "x", "of a newer worker": 1}, "devbox").session == "x"


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        *(("1", [ONE]), ("2", [TWO]), ("3", []), ("3f2a9c1e-0000-4000-8000-000000000002", [TWO])),
        *(("3f2a", [ONE, TWO]), ("NORTH", [ONE]), ("hello", [TWO]), ("nothing", [])),
    ],
)
def test_an_answer_is_a_number_an_id_or_a_search(answer: str, found: list[SessionRow]) -> None:
    assert matching([ONE, TWO], [ONE, TWO], answer) == found


async def test_where_nobody_can_choose_the_sessions_are_listed() -> None:
    with pytest.raises(UsageError) as caught:
        await choose_session([ONE, TWO])
    assert TWO.session in caught.value.evidence
