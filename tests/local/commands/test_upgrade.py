"""`ccb upgrade` knows what installers leave behind; --check asks the index, and reads only releases."""

from __future__ import annotations

import asyncio
import base64
import sys
from pathlib import Path

import pytest
from aiohttp import web
from tests.support.network.http_server import serving

from ccb.local.commands import upgrade
from ccb.local.commands.upgrade import find_installation, newest_release
from ccb.tunnel.errors import Unreachable

PAGE = '<a href="../../ccb-0.9.0-py3-none-any.whl#sha256=9">x</a> <a href="x/ccb-0.10.1.tar.gz">x</a>'
JSON = '{"files": [{"filename": "ccb-0.2.0-py3-none-any.whl"}, {"filename": "ccb-1.0rc1-py3-none-any.whl"}]}'


GIT = '{"url": "https://git.example/ccb", "vcs_info": {"vcs": "git"}}'
FILE = '{"url": "file:///x/ccb.whl", "archive_info": {}}'
SOURCES = '{"url": "file:///src/my ccb", "dir_info": {"editable": true}}'


@pytest.mark.parametrize(
    ("place", "installer", "direct_url", "command"),
    [
        ("tools/ccb/uv-receipt.toml", "uv", "{}", "uv tool upgrade ccb"),
        ("tools/ccb/uv-receipt.toml", "uv", FILE, "uv tool install --force ccb"),
        ("venvs/ccb-test/pipx_metadata.json", "pip", "{}", "pipx upgrade ccb-test"),
        ("venvs/ccb/pipx_metadata.json", "pip", GIT, "pipx upgrade ccb"),
        ("uv/archive-v0/x/pyvenv.cfg", "uv", "{}", "uvx ccb@latest"),
        ("venv/pyvenv.cfg", "pip", "{}", "PYTHON -m pip install --upgrade ccb"),
        ("venv/pyvenv.cfg", "uv", "{}", "uv pip install --python PYTHON --upgrade ccb"),
        ("venv/pyvenv.cfg", "uv", SOURCES, "git -C '/src/my ccb' pull"),
        ("venv/pyvenv.cfg", "pip", GIT, "PYTHON -m pip install --upgrade 'ccb @ git+https://git.example/ccb'"),
    ],
)
def test_the_command_fits_how_ccb_was_installed(
    tmp_path: Path, place: str, installer: str, direct_url: str, command: str
) -> None:
    (tmp_path / place).parent.mkdir(parents=True)
    (tmp_path / place).touch()
    _, found = find_installation((tmp_path / place).parent, installer, direct_url)
    assert found == command.replace("PYTHON", sys.executable)


@pytest.mark.parametrize(("page", "newest"), [(PAGE, "0.10.1"), (JSON, "0.2.0")], ids=["html", "json"])
async def test_the_newest_release_of_a_page(page: str, newest: str) -> None:
    asked: list[web.Request] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request)
        return web.Response(text=page)

    async with serving(answer) as url:
        assert await asyncio.to_thread(newest_release, {"PIP_INDEX_URL": f"http://ann:pw@{url[7:]}/simple/"}) == newest
    (request,) = asked
    assert (request.path, "simple.v1+json" in request.headers["Accept"]) == ("/simple/ccb/", True)
    assert request.headers["Authorization"] == f"Basic {base64.b64encode(b'ann:pw').decode()}"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (web.Response(status=404), "answers 404"),
        (web.Response(text="ccb-2.0-evil.txt \x1b]0;x\x07"), "names no release"),
        (None, "cannot be asked"),
    ],
    ids=["unknown", "nothing of ccb", "silent"],
)
async def test_what_an_index_cannot_say(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: web.Response | None, said: str
) -> None:
    async def reply(_: web.Request) -> web.StreamResponse:
        return answer if answer is not None else await asyncio.Future()

    monkeypatch.setattr(upgrade, "DEADLINE_S", 0.2 if answer is None else 20.0)
    async with serving(reply) as url:
        with pytest.raises(Unreachable, match=said) as raised:
            await asyncio.to_thread(newest_release, {"PIP_INDEX_URL": url.replace("//", "//ann:pw@")})
    assert "pw" not in str(raised.value) + capsys.readouterr().err


def test_what_cannot_be_asked() -> None:
    with pytest.raises(Unreachable, match=r"http://127[.]0[.]0[.]1:1/ccb/ cannot be asked"):
        newest_release({"PIP_INDEX_URL": "http://127.0.0.1:1"})
    with pytest.raises(Unreachable, match="the package index cannot be asked"):
        newest_release({"PIP_INDEX_URL": "http://[::"})
