"""The question about trust shows what each file of a project switches on."""

from __future__ import annotations

from ccb.local.tui.rendering.approval_text import trust_lines


def test_the_owner_stands_below_each_file() -> None:
    switch = {"kind": "setting", "name": "model", "path": "/srv/shop/.claude/settings.json", "owner": "4711"}
    lines = trust_lines({"directory": "/srv/shop", "switches": [switch]})
    assert ("   of ", "4711") in [(line.gutter, line.picture) for line in lines]
