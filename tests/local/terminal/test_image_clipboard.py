"""The image in the clipboard, asked of the programs that systems have for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ccb.local.terminal import clipboard
from ccb.local.terminal.clipboard import NoImage, clipboard_image

SCRIPTS = {
    "xclip": 'case "$5" in TARGETS) printf "TARGETS\\ntext/plain\\nimage/png\\n";; image/png) printf pixels;; esac',
    "wl-paste": 'case "$*" in --list-types) echo image/bmp; echo image/jpeg;; *image/jpeg) printf jpeg;; esac',
    "osascript": "printf '«data PNGf89504E470D»\\n'",
}


def programs(folder: Path, **scripts: str) -> dict[str, str]:
    for name, script in scripts.items():
        path = folder / name.replace("_", "-")
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    return {"PATH": str(folder)}


@pytest.mark.programs
async def test_each_system_is_asked_in_its_way(tmp_path: Path) -> None:
    path = programs(tmp_path, **SCRIPTS)
    assert await clipboard_image({**path, "DISPLAY": ":0"}, "linux") == b"pixels"
    assert await clipboard_image({**path, "DISPLAY": ":0", "WAYLAND_DISPLAY": "w"}, "linux") == b"jpeg"
    assert await clipboard_image(path, "darwin") == b"\x89PNG\r"
    path = programs(tmp_path, pngpaste="printf png")
    assert await clipboard_image(path, "darwin") == b"png"


@pytest.mark.programs
async def test_why_there_is_no_image_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def why(environ: dict[str, str], platform: str = "linux") -> str:
        with pytest.raises(NoImage) as said:
            await clipboard_image(environ, platform)
        return str(said.value)

    path = programs(tmp_path)
    assert "no clipboard is known here" in await why(path)
    assert "install xclip" in await why({**path, "DISPLAY": ":0"})
    assert "install wl-clipboard" in await why({**path, "WAYLAND_DISPLAY": "w"})
    programs(tmp_path, xclip="echo text/plain", osascript="echo some text", wl_paste="exit 1")
    assert await why({**path, "DISPLAY": ":0"}) == "there is no image in the clipboard"
    assert await why({**path, "WAYLAND_DISPLAY": "w"}) == "there is no image in the clipboard"
    assert await why(path, "darwin") == "there is no image in the clipboard"
    monkeypatch.setattr(clipboard, "_ANSWER_S", 0.2)
    programs(tmp_path, xclip="exec /bin/sleep 60")
    assert "xclip did not say within" in await why({**path, "DISPLAY": ":0"})
    monkeypatch.setattr(clipboard, "MAX_CLIPBOARD_BYTES", 4)
    programs(tmp_path, pngpaste="printf 'much too long'")
    assert await why(path, "darwin") == "the image in the clipboard is too large"
