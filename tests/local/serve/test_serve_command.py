"""The command line of `ccb serve`: what it refuses, where it listens, and when it ends."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.network.certificates import Authority

from ccb.local.command_line.exit_codes import ExitCode
from ccb.local.command_line.parser import parse_arguments
from ccb.local.serve.serve import run_serve
from ccb.tunnel.errors import UsageError


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--listen 0.0.0.0:8443", "no address that a browser can call"),
        ("--listen http://laptop", "no address that a browser can call"),
        ("--listen [::1", "no address that a browser can call"),
        ("--listen 192.168.1.5", "beyond this machine (192.168.1.5) only with TLS"),
        ("--tls-cert CERT", "go together"),
        ("--tls-cert CERT --tls-key /nowhere", "cannot be used"),
        ("--listen 203.0.113.1 --tls-cert CERT --tls-key CERT", "cannot listen on 203.0.113.1"),
        ("--listen nowhere.invalid --tls-cert CERT --tls-key CERT", "cannot listen on nowhere.invalid"),
        ("--idle soon", "no time such as 30m or 2h"),
        ("ps web", "shows the screens of ccb dash, ssh and attach"),
        ("ssh web -p hello", "shows the screens of ccb dash, ssh and attach"),
        ("web --json", "shows the screens of ccb dash, ssh and attach"),
        ("ssh", "ccb ssh needs a host"),
        ("web --yes", "--yes"),
    ],
)
async def test_what_it_refuses(tmp_path: Path, words: str, says: str) -> None:
    authority = Authority(tmp_path)
    authority.server()
    argv = words.replace("CERT", str(authority.pem_of("127.0.0.1"))).split()
    with pytest.raises(UsageError) as caught:
        await run_serve(parse_arguments(["serve", *argv]), {})
    assert says in caught.value.what


async def test_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textual_serve", None)
    with pytest.raises(UsageError) as caught:
        await run_serve(parse_arguments(["serve"]), {})
    assert "textual-serve" in caught.value.what and "ccb[serve]" in caught.value.do


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("", "dash"),
        ("--idle 2h web db", "dash web db"),
        ("web -i key --idle=5m", "dash web -i key"),
        ("ssh web:/srv --model opus --listen 127.0.0.1", "ssh web:/srv --model opus"),
        ("resume web", "resume web"),
        ("ssh web -- --idle 5m", "ssh web -- --idle 5m"),
    ],
)
def test_what_stands_behind_it_is_the_command_line_that_is_shown(words: str, shown: str) -> None:
    assert list(parse_arguments(["serve", *words.split()]).rest) == shown.split()


async def test_it_ends_when_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = parse_arguments(["serve", "--listen", "[::1]"])
    arguments = replace(arguments, host_command=replace(arguments.host_command, idle=0.001))
    assert await run_serve(arguments, {}) is ExitCode.OK
    printed = capsys.readouterr()
    assert printed.out.startswith("http://[::1]:") and "no browser has looked" in printed.err
