"""The places of a fleet: words of the command line, and hosts of inventories."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.support.machine.programs import shell_script

from ccb.local.fleet.fleet_hosts import FleetPlace, fleet_places
from ccb.tunnel.errors import UsageError


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A laptop whose ssh_config has some hosts, and whose Ansible only knows inventories that are programs."""
    shell_script(tmp_path / "bin/ansible-inventory", 'exec "$2" --list')
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/config").write_text("Host web-1 web-2 db\nHost *.example\n")
    (tmp_path / "list").write_text("\ufeff# all\ndb:/srv/db\nweb-*:/srv\n\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    return {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "HOME": str(tmp_path)}


def script(directory: Path, listed: Mapping[str, Any] | str, name: str = "inventory") -> str:
    text = listed if isinstance(listed, str) else json.dumps(listed)
    (directory / f"{name}.json").write_text(text)
    return str(shell_script(directory / name, f'echo "$@" > {directory}/{name}.asked; cat {directory}/{name}.json'))


async def test_words_name_hosts_files_and_patterns_each_place_once(environ: dict[str, str]) -> None:
    words = ["ann@web-*:/srv", "web-1", f"@{environ['HOME']}/list", "web-1:/srv", "local", "[::1]:app"]
    found = await fleet_places(words, [], None, environ)
    assert [each.place for each in found] == [
        "ann@web-1:/srv", "ann@web-2:/srv", "web-1", "db:/srv/db", "web-1:/srv", "web-2:/srv", "local", "[::1]:app",
    ]  # fmt: skip
    assert (found[0].host, found[-2].options) == ("ann@web-1", ("--local",))
    placed = await fleet_places(["web-1", ":/srv", "db:app"], [], None, environ)
    assert [each.place for each in placed] == ["web-1:/srv", "db:app"]


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ({}, FleetPlace("web", "web")),
        (
            {"ansible_host": "10.0.0.1", "ansible_user": "ann", "ansible_port": 2222},
            FleetPlace("web", "ann@10.0.0.1", ("-P", "2222")),
        ),
        ({"ansible_ssh_host": "fe80::1", "ansible_connection": "smart"}, FleetPlace("web", "[fe80::1]")),
        (
            {"ansible_ssh_common_args": "-J bastion -o 'User=ann b'", "ansible_private_key_file": "~/.ssh/k"},
            FleetPlace("web", "web", ("-o", "ProxyJump=bastion", "-o", "User=ann b", "-i", "~/.ssh/k")),
        ),
        ({"ansible_connection": "local"}, FleetPlace("web", "local", ("--local",))),
        ({"app_key": {"__ansible_vault": "x"}, "ansible_python_interpreter": "/opt/py"}, FleetPlace("web", "web")),
        ({"ansible_become": True}, "ansible_become"),
        ({"ansible_connection": "docker"}, "docker is not ssh"),
        ({"ansible_host": {"__ansible_vault": "x"}}, r"ansible_host: it is encrypted \(vault\)"),
        ({"ansible_ssh_pass": "secret"}, "ansible_ssh_pass: ccb logs in with keys"),
        ({"ansible_user": "{{ me }}"}, "ansible_user: {{ me }} is a template"),
        ({"ansible_ssh_extra_args": "-R 80:a:80"}, "-R is not an option of ccb"),
        ({"ansible_host": "-oProxyCommand=x"}, "a host cannot start with -"),
    ],
)
async def test_the_variables_of_a_host_lead_there_or_are_refused_by_name(
    variables: dict[str, Any], place: FleetPlace | str, environ: dict[str, str], tmp_path: Path
) -> None:
    inventory = script(tmp_path, {"_meta": {"hostvars": {"web": variables}}, "all": {"hosts": ["web"]}})
    if isinstance(place, FleetPlace):
        assert await fleet_places([], [inventory], None, environ) == [place]
        return
    with pytest.raises(UsageError, match="on 1 of 1 hosts") as refused:
        await fleet_places([], [inventory], None, environ)
    assert refused.match(place) and "secret" not in str(refused.value)


async def test_an_inventory_is_listed_by_ansible(environ: dict[str, str], tmp_path: Path) -> None:
    groups = {
        "all": {"children": ["web", "db"]},
        "web": {"hosts": ["web-1"], "children": ["all"]},
        "db": {"hosts": ["db"]},
    }
    script(tmp_path, groups, "ansible-inventory")
    found = await fleet_places([], [environ["HOME"]], "web:db", {**environ, "PATH": f"{tmp_path}:{environ['PATH']}"})
    assert [each.host for each in found] == ["web-1", "db"]
    assert (tmp_path / "ansible-inventory.asked").read_text() == f"-i {tmp_path} --list --limit web:db\n"


@pytest.mark.parametrize(
    ("words", "limit", "said"),
    [
        ([], None, "needs hosts"),
        (["nothing-*"], None, "no host of ssh_config matches 'nothing-\\*'"),
        (["web"], "web", "--limit is for the hosts of an inventory"),
        (["--inventory", "missing"], None, "missing cannot be listed"),
        (["--inventory", "no-json"], None, "no-json cannot be listed"),
        (["--inventory", "empty"], None, "has no such hosts"),
    ],
)
async def test_what_names_no_host_is_said(
    words: list[str], limit: str | None, said: str, environ: dict[str, str], tmp_path: Path
) -> None:
    script(tmp_path, "[web]", "no-json")
    script(tmp_path, {"all": {}}, "empty")
    inventories = [str(tmp_path / words[1])] if words[:1] == ["--inventory"] else []
    with pytest.raises(UsageError, match=said):
        await fleet_places([] if inventories else words, inventories, limit, environ)


async def test_without_ansible_an_inventory_is_refused(environ: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="no command 'ansible-inventory'"):
        await fleet_places([], ["hosts"], None, {**environ, "PATH": "/nowhere"})
