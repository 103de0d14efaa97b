"""A fixed part of the fuzzer: what is let through does no harm in real shells, and no line does in the cage. `make
fuzz` goes on with new seeds."""

from __future__ import annotations

from contextlib import closing

import pytest
from tests.remote.permissions.fuzz.ground import SHELLS, Ground
from tests.remote.permissions.fuzz.rounds import caged_round, denied_round, judged_round

from ccb.remote.sandbox.cage_server import CageServer

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("line", "what"),
    [
        *(("cat ../other/c", "read what is outside"), ("ls ../other", "read what is outside")),
        *(("touch made", "written: "), ("chmod 700 a.txt", "written: "), ("./run", "a program of the clone ran")),
        ("PATH=10; ls", "a program of the clone ran"),
    ],
)
def test_the_ground_shows_what_a_line_has_done(line: str, what: str) -> None:
    with closing(Ground()) as ground:
        trouble = ground.run(["ls", line, "pwd"])
    assert trouble is not None
    assert trouble.what.startswith(what)
    assert [each.replace(str(ground.top), "") for each in trouble.lines] == [line]


def test_what_is_let_through_does_no_harm() -> None:
    assert len(SHELLS) == 2, "`make test` installs them"
    done = judged_round(1, 200)
    assert done.trouble is None
    assert done.let_through > 20


def test_what_rules_deny_is_not_read_where_all_else_is_allowed() -> None:
    done = denied_round(1, 200)
    assert done.trouble is None
    assert done.ran > 30


@pytest.mark.thorough
def test_no_line_does_harm_in_the_cage_even_if_all_are_let_through() -> None:
    with closing(CageServer()) as cages:
        if not cages.availability().mechanism:
            pytest.skip(cages.availability().why)
        with closing(Ground(cages)) as ground:
            assert ground.output(0, SHELLS[0], "cat a.txt; ls src") == b"xb.py\nls\nsame\n", "commands run in the cage"
        done = caged_round(1, 30, cages, corpus=True, shells=SHELLS[:1])
    assert done.trouble is None
    assert done.ran > 500
