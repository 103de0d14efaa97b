"""The log file: only when there is something to say, only for its owner, never fatal."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from ccb.local.config.log import PublicFormatter, logging_to_file, state_dir

log = logging.getLogger("ccb.test")


def environ(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}


def test_a_quiet_run_leaves_no_file(tmp_path: Path) -> None:
    with logging_to_file(debug=False, environ=environ(tmp_path)) as path:
        log.info("nothing special")
    assert not path.exists() and not path.parent.exists()


@pytest.mark.parametrize("debug", [False, True])
def test_warnings_always_and_details_with_debug_and_the_log_is_as_before(debug: bool, tmp_path: Path) -> None:
    root = logging.getLogger()
    before = (root.level, list(root.handlers))
    with logging_to_file(debug=debug, environ=environ(tmp_path)) as path:
        log.warning("something odd")
        log.debug("a detail")
        assert not debug or root.level == logging.DEBUG
    assert (root.level, list(root.handlers)) == before
    text = path.read_text()
    assert "something odd" in text
    assert ("a detail" in text) is debug
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_state_directory_that_cannot_be_made_does_not_stop_anything(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    with logging_to_file(debug=True, environ=environ(tmp_path)):
        log.warning("lost")


def test_a_full_disk_does_not_stop_anything() -> None:
    with logging_to_file(debug=False, environ={}, own_file="/dev/full"):
        logging.getLogger("ccb").warning("lost")


def test_a_file_that_the_person_names_is_written_and_its_neighbours_stay(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"ccb-{number}.log").touch()
    with logging_to_file(debug=True, environ=environ(tmp_path), own_file=str(tmp_path / "mine.log")) as path:
        log.debug("a detail")
    assert path == tmp_path / "mine.log" and "a detail" in path.read_text()
    assert len(list(tmp_path.glob("ccb-*.log"))) == 30


def test_a_record_whose_arguments_do_not_fit_is_kept_without_them(tmp_path: Path) -> None:
    record = logging.makeLogRecord({"name": "a_library", "msg": "%d of %s", "args": ("one",)})
    assert PublicFormatter(environ(tmp_path)).format(record).endswith("a_library: %d of %s")


def test_old_files_go(tmp_path: Path) -> None:
    where = state_dir(environ(tmp_path))
    where.mkdir(parents=True)
    for n in range(60):
        (where / f"ccb-{n}.log").write_text("old")
    with logging_to_file(debug=True, environ=environ(tmp_path)):
        log.warning("new")
    assert len(list(where.glob("*.log"))) <= 22
