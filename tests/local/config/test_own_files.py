"""The person's own commands and skills: which files leave the laptop."""

from __future__ import annotations

from pathlib import Path

import pytest

from ccb.local.connect.session_request import own_agents, own_files
from ccb.tunnel.wire.session_options import OwnFile, pack, unpack


def write(top: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)


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
    write(top, files)
    (top / "skills/pdf/scripts/run.sh").chmod(0o755)
    (top / "skills/pdf/image.bin").write_bytes(b"\xff\xfe\x00")
    (top / "skills/pdf/long.txt").write_text("x" * 200_000)
    packed, left = own_files(tmp_path / ".claude")
    assert unpack(packed) == [
        OwnFile("commands/team/fix.md", "Fix $1"),
        OwnFile("skills/pdf/SKILL.md", files["skills/pdf/SKILL.md"]),
        OwnFile("skills/pdf/scripts/run.sh", files["skills/pdf/scripts/run.sh"], executable=True),
    ]
    names = [Path(each.partition(" stays")[0]).name for each in left]
    assert names == [".env", "deploy.pem", "image.bin", "key.md", "long.txt"]
    assert own_files(tmp_path / "nobody") == ("", [])


def test_a_link_of_the_person_is_followed_and_one_inside_a_skill_brings_no_file_of_the_laptop(tmp_path: Path) -> None:
    top = tmp_path / ".claude"
    files = {
        "dotfiles/fix.md": "Fix it",
        "cloned/pdf/SKILL.md": "---\ndescription: d\n---\nRun it",
        "cloned/pdf/more/a.md": "more",
        "diary.txt": "private",
        ".netrc": "machine x password y",
        ".config/tool/token": "y",
    }
    write(tmp_path, files)
    for place in ("commands", "skills"):
        (top / place).mkdir(parents=True)
    (top / "commands/fix.md").symlink_to(tmp_path / "dotfiles/fix.md")
    (top / "commands/rc.md").symlink_to(tmp_path / ".netrc")
    (top / "skills/pdf").symlink_to(tmp_path / "cloned/pdf")
    (tmp_path / "cloned/pdf/b.md").symlink_to("more/a.md")
    (tmp_path / "cloned/pdf/diary.md").symlink_to("../../diary.txt")
    (tmp_path / "cloned/pdf/netrc.md").symlink_to("../../.netrc")
    (tmp_path / "cloned/pdf/loop.md").symlink_to("loop.md")
    (tmp_path / "cloned/pdf/conf").symlink_to("../../.config/tool")
    (top / "agents/pack").mkdir(parents=True)
    (top / "agents/pack/b.md").write_text("agent")
    (top / "agents/fix.md").symlink_to(tmp_path / "dotfiles/fix.md")
    (top / "agents/rc.md").symlink_to(tmp_path / ".netrc")
    (top / "agents/pack/c.md").symlink_to(tmp_path / "diary.txt")
    assert [Path(each).name for each in own_agents(tmp_path / ".claude")] == ["fix.md", "b.md"]
    packed, left = own_files(tmp_path / ".claude")
    goes = ["commands/fix.md", "skills/pdf/SKILL.md", "skills/pdf/b.md", "skills/pdf/more/a.md"]
    assert [each.path for each in unpack(packed)] == goes
    stays = [(Path(each.partition(" stays")[0]).name, each.partition(": ")[2].split()[0]) for each in left]
    assert stays == [("rc.md", "its"), ("diary.md", "a"), ("loop.md", "it"), ("netrc.md", "its"), ("token", "a")]


@pytest.mark.parametrize("path", ["../up", "/abs", "a//b", "a/../b", ""])
def test_a_path_that_leads_elsewhere_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="is no path of a file"):
        unpack(pack([OwnFile(path, "x")]))
    with pytest.raises(ValueError, match=r"."):
        unpack("no")
