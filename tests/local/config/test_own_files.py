"""The person's own commands and skills: which files leave the laptop."""

from __future__ import annotations

from pathlib import Path

import pytest

from ccb.local.config.own_files import own_files
from ccb.tunnel.wire.kinds.own_files import OwnFile, pack, unpack


def test_commands_and_skills_travel_with_the_files_beside_a_skill_and_no_secret_does(tmp_path: Path) -> None:
    top = tmp_path / ".claude"
    files = {
        "commands/team/fix.md": "Fix $1",
        "commands/notes.txt": "no command",
        "skills/pdf/SKILL.md": "---\ndescription: d\n---\nRun it",
        "skills/pdf/scripts/run.sh": "#!/bin/sh\necho hi\n",
        "skills/pdf/.env": "TOKEN=x",
        "skills/pdf/deploy.pem": "x",
        "skills/pdf/key.md": "use sk-ant-api03-0123456789abcdefghij",
        "skills/half/readme.md": "no skill here",
        "settings.json": "{}",
    }
    for name, text in files.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    (top / "skills/pdf/scripts/run.sh").chmod(0o755)
    (top / "skills/pdf/image.bin").write_bytes(b"\xff\xfe\x00")
    (top / "skills/pdf/long.txt").write_text("x" * 200_000)
    packed, left = own_files(tmp_path)
    assert unpack(packed) == [
        OwnFile("commands/team/fix.md", "Fix $1"),
        OwnFile("skills/pdf/SKILL.md", files["skills/pdf/SKILL.md"]),
        OwnFile("skills/pdf/scripts/run.sh", files["skills/pdf/scripts/run.sh"], executable=True),
    ]
    names = [Path(each.partition(" stays")[0]).name for each in left]
    assert names == [".env", "deploy.pem", "image.bin", "key.md", "long.txt"]
    assert own_files(tmp_path / "nobody") == ("", [])


@pytest.mark.parametrize("path", ["../up", "/abs", "a//b", "a/../b", ""])
def test_a_path_that_leads_elsewhere_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="is no path of a file"):
        unpack(pack([OwnFile(path, "x")]))
    with pytest.raises(ValueError, match=r"."):
        unpack("no")
