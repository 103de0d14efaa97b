"""Directories and files of the editor and of the host, and which files of the laptop go along with a prompt."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest
from tests.support.model.model_script import Json

from ccb.local.acp.acp_paths import PathMap, local_path
from ccb.local.acp.acp_prompt import open_own_file, user_content
from ccb.local.tui.composer.attachments import NotAttached
from ccb.tunnel.wire.json_rpc import RpcError


@pytest.mark.parametrize(
    ("place", "cwd", "there"),
    [
        ("/srv/app", "/home/u/app", "/srv/app"),
        ("/srv/app", "/home/u/app/src/x", "/srv/app/src/x"),
        ("/srv/app/", "/home/u/app/./src/../lib", "/srv/app/lib"),
        ("~/app", "/home/u/app/src", "~/app/src"),
        ("/", "/home/u/app/src", "/src"),
        ("/srv/app", "/home/u/app2", None),
        ("/srv/app", "/home/u", None),
        ("/srv/app", "app", None),
        ("/srv/app", "/mnt/web/src", "/srv/web/src"),
    ],
)
def test_a_working_directory_is_the_same_one_below_the_place_on_the_host(
    place: str, cwd: str, there: str | None
) -> None:
    paths = PathMap("web1", place, ["/srv/web=/mnt/web"])
    paths.directory("/home/u/app")  # the first one is the root
    if there is None:
        with pytest.raises(RpcError) as raised:
            paths.directory(cwd)
        assert raised.value.code == -32602
        assert not cwd.startswith("/") or (cwd in str(raised.value) and f"web1:{place}" in str(raised.value))
        return
    assert paths.directory(cwd) == there


def test_directories_and_files_of_the_host_are_named_as_the_editor_knows_them() -> None:
    paths = PathMap("web1", "~/app", ["/srv/web=/mnt/web"])
    assert paths.directory("/home/u/app") == "~/app"
    paths.there = "/home/far/app"
    assert paths.cwd("/home/far/app/src") == "/home/u/app/src"
    assert paths.cwd("/home/far/other") is None
    assert paths.cwd("/srv/web/a") == "/mnt/web/a"
    assert paths.shown("/srv/web/a.py") == "/mnt/web/a.py" and paths.on_host("/mnt/web/a.py") == "/srv/web/a.py"
    assert paths.shown("/srv/web/../../home/u/.ssh/id") == "/srv/web/../../home/u/.ssh/id"
    assert paths.shown("/home/far/app/a.py") == "/home/far/app/a.py" and paths.on_host("/home/u/app/a.py") is None


def test_on_this_machine_every_path_is_itself() -> None:
    paths = PathMap("this machine", "~", ["/=/"])
    assert (paths.directory("/a/b"), paths.cwd("/c"), paths.on_host("/d"), paths.shown("/e")) == (
        "/a/b", "/c", "/d", "/e",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///a/b%20c", "/a/b c"),
        ("file://localhost/a", "/a"),
        ("file://other/a", None),
        ("file:///a%00b", None),
        ("https://example.com/a", None),
        ("http://[::1", None),
        ("untitled:Untitled-1", None),
        ("file:///C:/Users/a", "/C:/Users/a"),
    ],
)
def test_only_uris_of_files_of_this_machine_are_paths(uri: str, path: str | None) -> None:
    assert local_path(uri) == path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    (folder / "in").mkdir(parents=True)
    (folder / "in" / "a.txt").write_text("words")
    (tmp_path / "secret.txt").write_text("secret")
    (folder / "link").symlink_to(tmp_path / "secret.txt")
    (folder / "out").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    (folder / "key").write_text("-----BEGIN RSA PRIVATE KEY-----")
    return folder


@pytest.mark.parametrize("name", ["link", "out/secret.txt", "../secret.txt", "none/../../secret.txt"])
def test_no_link_leads_out_of_the_folders_of_the_editor(root: Path, name: str) -> None:
    with pytest.raises((NotAttached, OSError)):
        open_own_file([str(root)], root / name, os.O_RDONLY)


@pytest.mark.parametrize("name", ["in", "a.txt"])
async def test_a_link_that_appears_while_the_file_is_opened_leads_nowhere(
    root: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Such as one of a host whose files are mounted in the editor's folder."""
    real = os.open
    file, outside = root / "in" / "a.txt", root.parent
    (outside / "a.txt").write_text("secret")

    def swapping(path: str | Path, flags: int, **more: int) -> int:
        swapped = root / "in" if name == "in" else file
        if os.fspath(path) in (name, str(file)) and not swapped.is_symlink():
            swapped.rename(outside / "earlier")
            swapped.symlink_to(outside if name == "in" else outside / "a.txt")
        return real(path, flags, **more)

    monkeypatch.setattr(os, "open", swapping)
    block = {"type": "resource_link", "uri": file.as_uri(), "name": "a.txt"}
    (made,) = await user_content([block], PathMap("web1", "/srv/app"), [str(root)])
    assert "secret" not in made["text"] and "does not go along" in made["text"]


def test_the_whole_machine_may_be_a_folder_of_the_editor(root: Path) -> None:
    os.close(open_own_file(["/"], root / "in" / "a.txt", os.O_RDONLY))


@pytest.mark.parametrize(
    ("name", "holds"),
    [
        ("in/a.txt", "words"),
        ("in/../in/a.txt", "words"),
        ("link", "symbolic links"),
        ("in", "no file"),
        ("pipe", "no file"),
        ("none", "No such file"),
        ("key", "holds a private key"),
    ],
)
async def test_a_mentioned_file_goes_along_or_the_agent_reads_why_not(root: Path, name: str, holds: str) -> None:
    block = {"type": "resource_link", "uri": f"{root.as_uri()}/{name}", "name": name}
    (made,) = await user_content([block], PathMap("web1", "/srv/app"), [str(root)])
    assert holds in made["text"] and "of the person's own machine" in made["text"]


PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.mark.parametrize(
    ("block", "holds"),
    [
        ({"type": "text", "text": "hi"}, "hi"),
        ({"type": "image", "data": base64.b64encode(PNG).decode(), "mimeType": "image/jpeg"}, "image/png"),
        ({"type": "resource", "resource": {"uri": "file:///x/a.py", "text": "x = 1"}}, "/x/a.py of the person's own"),
        ({"type": "resource", "resource": {"uri": "file:///mnt/web/a.py", "text": "x = 1"}}, 'name="/srv/web/a.py"'),
        ({"type": "resource", "resource": {"uri": 'a"><b', "text": "x = 1"}}, 'name="a___b"'),
        ({"type": "resource", "resource": {"uri": "file:///mnt/web/a.py#L2:9", "text": "x"}}, "/srv/web/a.py#L2:9"),
        ({"type": "resource", "resource": {"uri": "file:///x/a.py#L2", "text": "x"}}, "/x/a.py#L2 of the person's"),
        ({"type": "resource_link", "uri": "file:///mnt/web/a b.py", "name": "a"}, '@"/srv/web/a b.py"'),
        ({"type": "resource_link", "uri": "https://example.com", "name": "a"}, "[a](https://example.com)"),
        ({"type": "resource_link", "uri": "file:///etc/passwd", "name": "a"}, "outside of the folders"),
        ({"type": "image", "data": "AAAA", "mimeType": "image/png"}, None),
        ({"type": "image", "data": "no base64!", "mimeType": "image/png"}, None),
        ({"type": "resource", "resource": {"uri": "a.bin", "blob": "AAAA", "mimeType": "a/b"}}, None),
        ({"type": "text", "text": ""}, None),
        ({"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}, None),
    ],
)
async def test_blocks_of_a_prompt_become_blocks_for_the_agent(block: Json, holds: str | None) -> None:
    paths = PathMap("web1", "/srv/app", ["/srv/web=/mnt/web"])
    if holds is None:
        with pytest.raises(RpcError) as raised:
            await user_content([block], paths, ["/home/u/app"])
        assert raised.value.code == -32602
        return
    (made,) = await user_content([block, {"type": "text", "text": ""}], paths, ["/home/u/app"])
    assert holds in (made.get("text") or made["source"]["media_type"])
