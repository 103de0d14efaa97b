"""What a host names is kept as far as there is room for it."""

from __future__ import annotations

from ccb.local.session.newest import MAX_ID, Newest


def test_the_newest_entries_are_kept_and_no_long_id() -> None:
    kept: Newest[str, int] = Newest(3)
    for number in range(5):
        kept[f"{number}"] = number
    kept["x" * (MAX_ID + 1)] = 5
    assert kept == {"2": 2, "3": 3, "4": 4}
    assert [kept.setdefault("4", 9), kept.setdefault("5", 5), kept.setdefault("x" * 1_000, 6)] == [4, 5, 6]
    assert list(kept) == ["3", "4", "5"]
