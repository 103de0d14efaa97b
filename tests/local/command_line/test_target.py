"""How a place is written, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccb.local.command_line.target import Target, parse_target
from ccb.tunnel.errors import UsageError


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("devbox", Target("devbox")),
        ("devbox:/srv/app", Target("devbox", path="/srv/app")),
        ("alice@devbox:/srv/app", Target("devbox", "alice", path="/srv/app")),
        ("alice@corp@devbox", Target("devbox", "alice@corp")),
        ("devbox:", Target("devbox", path="~")),
        ("devbox:~", Target("devbox", path="~")),
        ("devbox:~/my project", Target("devbox", path="~/my project")),
        ("devbox:~bob/x", Target("devbox", path="~bob/x")),
        ("devbox:src/app", Target("devbox", path="~/src/app")),
        ("devbox:/a:b/c@d", Target("devbox", path="/a:b/c@d")),
        ("devbox:/a[1]", Target("devbox", path="/a[1]")),
        ("10.0.0.7:/x", Target("10.0.0.7", path="/x")),
        ("[::1]", Target("::1")),
        ("[::1]:/srv", Target("::1", path="/srv")),
        ("root@[fe80::1%eth0]:/srv", Target("fe80::1%eth0", "root", path="/srv")),
        ("ssh://devbox", Target("devbox")),
        ("SSH://alice@devbox:2222/srv/app", Target("devbox", "alice", 2222, "/srv/app")),
        ("ssh://devbox/~/app", Target("devbox", path="~/app")),
        ("ssh://devbox/%7E/app", Target("devbox", path="/~/app")),
        ("ssh://devbox/a%20b", Target("devbox", path="/a b")),
        ("ssh://[::1]:2222/srv", Target("::1", None, 2222, "/srv")),
        ("bücher.example:/x", Target("bücher.example", path="/x")),
    ],
)
def test_spellings(text: str, target: Target) -> None:
    assert parse_target(text) == target


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "host is missing"),
        (":/srv", "host is missing"),
        ("alice@:/srv", "host is missing"),
        ("@devbox", "user before @"),
        ("-oProxyCommand=reboot", "cannot start with -"),
        ("-x@devbox", "user cannot start with -"),
        ("ssh://-l@devbox", "user cannot start with -"),
        ("dev box:/x", "' '"),
        ("dev\x1b[2Jbox", "cannot contain"),
        ("dev$(reboot):/x", "cannot contain"),
        ("a;b@devbox", "user cannot contain"),
        ("/srv/app", "looks like a path"),
        ("::1", "[::1]"),
        ("fe80::1", "[fe80::1]"),
        ("[devbox]:/x", "is not an IPv6 address"),
        ("[::1]x", "only :path"),
        ("ssh://[::1]x", "only :port"),
        ("ssh://devbox:99999/x", "port"),
        ("ssh://devbox:0", "port"),
        ("devbox:/a\0b", "NUL"),
        ("ssh://devbox/a%00b", "NUL"),
    ],
)
def test_nonsense_is_refused_with_a_reason_and_an_example(text: str, part: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_target(text)
    assert part in caught.value.what
    assert "\x1b" not in str(caught.value) and caught.value.do


@given(st.text(max_size=60))
def test_any_text_is_a_target_that_ssh_cannot_misread_or_a_usage_error(text: str) -> None:
    try:
        target = parse_target(text)
    except UsageError as error:
        assert error.what and error.do
        return
    for word in (target.host, target.user or "x"):
        assert word and not word.startswith("-")
        assert not any(char.isspace() or ord(char) < 32 or char in "'\"`$;&|<>" for char in word)
    assert target.path is None or target.path[0] in "/~"


def test_a_password_is_refused_without_being_shown() -> None:
    with pytest.raises(UsageError, match="it must not contain a password") as caught:
        parse_target("ssh://alice:hunter22@devbox/srv")
    assert "hunter22" not in str(caught.value) and "alice" in caught.value.what
