"""What `ccb trust` and `ccb config show` are told of the settings on a host."""

from __future__ import annotations

from tests.remote.host_commands.test_host_commands import command
from tests.remote.worker_process import WorkerHost

SETTINGS = """{
  "model": "opus",
  "permissions": {
    "deny": ["Read(x)"],
    "allow": [
      "Bash(touch *)",
      "Read(x)"
    ]
  },
  "hooks": {"Stop": [
    {"hooks": [{"type": "command", "command": "one"},
               {"type": "command", "command": "two \\"ü\\""}]}
  ]}
}"""
LOCAL = """{
  "permissions": {"additionalDirectories": ["lib"]},
  "language": "German"
}"""
POLICY = """{
  "disableBypassPermissionsMode": "disable",
  "permissions": {"deny": [
    "Read(./.env)"
  ]}
}"""


async def test_each_value_has_its_source_its_file_and_its_line(host: WorkerHost) -> None:
    directory = host.project / ".claude"
    (directory / "commands").mkdir(parents=True)
    (directory / "settings.json").write_text(SETTINGS)
    (directory / "settings.local.json").write_text(LOCAL)
    (directory / "commands/fix.md").write_text("Fix it.")
    policy = host.home / "policy.json"
    policy.write_text(POLICY)
    host.prelude = f"import ccb.remote.session.session_settings as s; s.MANAGED_FILE = {str(policy)!r}"
    reports = await command(host, "project", directory=str(host.project))
    found = [
        (kind, each["kind"], each["name"], each["detail"], each["source"], each.get("at"))
        for kind, each in reports
        if kind in ("switch", "policy")
    ]
    assert found == [
        ("switch", "hook", "Stop", "one", "project", 11),
        ("switch", "hook", "Stop", 'two "ü"', "project", 12),
        ("switch", "setting", "model", '"opus"', "project", 2),
        ("switch", "allow", "Bash(touch *)", "", "project", 6),
        ("switch", "allow", "Read(x)", "", "project", 7),
        ("switch", "deny", "Read(x)", "", "project", 4),
        ("switch", "setting", "language", '"German"', "local", 3),
        ("switch", "setting", "permissions.additionalDirectories", str(host.project / "lib"), "local", 2),
        ("switch", "command", "fix", "", "project", None),
        ("policy", "setting", "disableBypassPermissionsMode", '"disable"', "managed", 2),
        ("policy", "deny", "Read(./.env)", "", "managed", 4),
    ]
    paths = {each["source"]: each["path"] for kind, each in reports if "source" in each and kind != "command"}
    assert paths["local"] == str(directory / "settings.local.json") and paths["managed"] == str(policy)
