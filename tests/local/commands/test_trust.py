"""`ccb trust` without a host."""

from __future__ import annotations

from pathlib import Path

import pytest

from ccb.local.command_line.parser import parse_arguments
from ccb.local.commands.trust import run_trust
from ccb.local.config.project_records import HostIdentity, Projects
from ccb.tunnel.errors import UsageError


async def test_without_a_host_what_is_kept_is_only_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    environ = {"HOME": str(tmp_path)}
    host, projects = HostIdentity("devbox", ("SHA256:a",)), Projects(environ)
    projects.trust(host, "/srv/shop", "mark")
    projects.change_rules(host, "/srv/shop", "allow", ["Bash(make *)"], add=True)
    assert await run_trust(parse_arguments(["trust"]), environ) == 0
    shown = ["devbox:/srv/shop is trusted", 'devbox:/srv/shop permissions.allow = "Bash(make *)"']
    assert capsys.readouterr().out.splitlines() == shown
    with pytest.raises(UsageError, match="needs a host for this"):
        await run_trust(parse_arguments(["trust", "--revoke"]), environ)
    assert await run_trust(parse_arguments(["trust", "devbox:/srv/other", "--revoke"]), environ) == 1
    assert await run_trust(parse_arguments(["trust", "devbox:/srv/shop", "--revoke"]), environ) == 0
    assert projects.all() == []
