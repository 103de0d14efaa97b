"""Which session `ccb send` means."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.local.commands.test_session_table import ONE, TWO
from tests.local.ledger.test_ledger import report

from ccb.local.command_line.parser import parse_arguments
from ccb.local.commands.send import at_the_host, the_one
from ccb.local.ledger.call_ledger import CallPlace, open_ledger
from ccb.tunnel.errors import CcbError, UsageError


@pytest.mark.parametrize(
    ("word", "found"),
    [
        (f"devbox:{TWO.session}", TWO.session),
        ("devbox:HELLO", TWO.session),
        ("devbox:3f2a9c1e", "2 sessions on devbox are called so"),
        ("devbox:hell", "no session has the ID or title"),
    ],
)
def test_it_is_the_one_of_the_id_or_the_whole_title(word: str, found: str) -> None:
    arguments = parse_arguments(["send", word, "text"])
    assert (arguments.prompt, arguments.rest) == ("text", (word.partition(":")[2],))
    try:
        assert the_one(arguments, [ONE, TWO]).session == found
    except CcbError as error:
        assert found in str(error)


def test_without_a_host_it_is_where_this_machine_has_driven_it(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
    with open_ledger(tmp_path / "ccb") as ledger:
        ledger.add(CallPlace("3f2a0001", "ann@devbox", "/srv"), report(began=1.0))
        ledger.add(CallPlace("77770001", "local", "/srv"), report(began=1.0))
        ledger.add(CallPlace("77771111", "web", "/srv"), report(began=1.0))
        ledger.add(CallPlace("88880001", "web on devbox", "/srv"), report(began=1.0))
    found = at_the_host(parse_arguments(["send", "3F2A", "text"]), environ)
    assert found.connection.target is not None and found.connection.target.login == "ann@devbox"
    for elsewhere in ("7777000", "a title", "abcd"):
        assert at_the_host(parse_arguments(["send", elsewhere, "text"]), environ).connection.target is None
    with pytest.raises(UsageError, match="is on local, web"):
        at_the_host(parse_arguments(["send", "7777", "text"]), environ)
    with pytest.raises(UsageError, match="is on web on devbox"):
        at_the_host(parse_arguments(["send", "8888", "text"]), environ)
