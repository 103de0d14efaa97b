"""What commands and logins print on a terminal cannot drive it, even where nobody has neutralised it."""

from __future__ import annotations

import io
import sys

import pytest
from tests.support.terminal.attacks import ATTACKS
from tests.support.terminal.strict_parser import strangers

from ccb.local import main
from ccb.local.terminal.console import guarded_streams, write_over


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_terminals(monkeypatch: pytest.MonkeyPatch) -> tuple[_Terminal, _Terminal]:
    out, err = _Terminal(), _Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    return out, err


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_attack_reaches_the_terminal(attack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = on_terminals(monkeypatch)
    with guarded_streams():
        sys.stdout.write(attack)
        sys.stdout.write(" after\n")
        sys.stderr.write(attack)
        sys.stderr.writelines([attack, attack])
        write_over(attack)
    assert out.getvalue().endswith("after\n")
    assert strangers(out.getvalue()) == []
    assert strangers(err.getvalue().replace("\t", ""), r"\r", r"\x1b\[K") == []
    assert err.getvalue().count("\r\x1b[K") == 1, "only our own line is written over"
    assert (sys.stdout, sys.stderr) == (out, err)


def test_a_file_gets_every_character(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    with guarded_streams():
        sys.stdout.write("\x1b[31mred")
    assert out.getvalue() == "\x1b[31mred"


def test_all_of_ccb_runs_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = on_terminals(monkeypatch)

    def answer(argv: object) -> int:
        sys.stdout.write("\x1b]52;c;ZXZpbA==\x07said")
        sys.stderr.write("\x9b2Jtoo")
        return 0

    monkeypatch.setattr(main, "_answer", answer)
    assert main.run([]) == 0
    assert [each.getvalue() for each in streams] == ["said", "too"]
