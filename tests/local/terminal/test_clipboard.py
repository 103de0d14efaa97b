"""Where a copied text goes, with a real tmux, and from which programs an image comes."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.person.terminal import terminal

from ccb.local.terminal import clipboard
from ccb.local.terminal.clipboard import NoImage, clipboard_image, copy

TEXT = "the answer: ünïcode\n"
SEQUENCE = f"\x1b]52;c;{base64.b64encode(TEXT.encode()).decode()}\a"


LONG = "sent to the terminal's clipboard, but some terminals take no more than 74 KB"
TMUX_ASKED = "sent to tmux, which takes it only if its option set-clipboard is on"


@pytest.mark.parametrize(
    ("environ", "kilobytes", "what"),
    [
        ({"TERM": "xterm-256color"}, 0, "sent to the terminal's clipboard"),
        ({"TERM": "linux"}, 0, "not copied: this terminal has no clipboard"),
        ({"TERM": "screen", "STY": "1.pts"}, 0, "not copied: GNU screen passes nothing on to the clipboard"),
        ({"TERM": "tmux-256color", "TMUX": "/nowhere/socket,1,0", "PATH": os.defpath}, 0, TMUX_ASKED),
        ({"TERM": "tmux-256color"}, 0, TMUX_ASKED),
        ({"TERM": "xterm"}, 200, LONG),
        ({"TERM": "tmux-256color"}, 1000, "not copied: tmux takes no more than 768 KB"),
    ],
    ids=["a terminal", "the console", "screen", "a tmux that has gone", "ssh from a tmux", "long", "too long for tmux"],
)
async def test_what_is_said_is_what_is_known(environ: dict[str, str], kilobytes: int, what: str) -> None:
    wrote: list[str] = []
    said = await copy("y" * kilobytes * 1000 or TEXT, environ, wrote.append)
    if kilobytes:
        assert said.startswith(what)
    else:
        assert said == what
        assert "".join(wrote) == ("" if what.startswith("not copied") else SEQUENCE)


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[list[str]]:
    """A tmux server of our own; the start of commands to it."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    command = ["tmux", "-f", os.devnull, "-S", str(tmp_path / "tmux")]
    subprocess.run([*command, "new-session", "-d", "sleep 100"], check=True, timeout=20)
    yield command
    subprocess.run([*command, "kill-server"], check=True, timeout=20)


@pytest.mark.programs
@pytest.mark.parametrize("where", ["without a terminal", "in a terminal", "on a desktop"])
async def test_tmux_takes_the_text_and_gives_it_to_its_terminal(
    tmux: list[str], display: dict[str, str], where: str
) -> None:
    environ = {**os.environ, "TMUX": f"{tmux[-1]},1,0", "TERM": "tmux-256color"}
    if where == "without a terminal":
        assert await copy(TEXT, environ, pytest.fail) == "copied to the tmux buffer"
    elif where == "on a desktop":
        both = {**display, "TMUX": environ["TMUX"], "PATH": f"{display['PATH']}:{os.environ['PATH']}"}
        assert await copy(TEXT, both, pytest.fail) == "copied to the clipboard by xclip and to the tmux buffer"
    else:
        async with terminal([*tmux, "attach"], os.environ, os.getcwd()) as at:
            await at.until(lambda: b"\x1b[?1049h" in at.written)
            said = await copy(TEXT, environ, pytest.fail)
            assert said == "copied to the tmux buffer and sent to the terminal's clipboard"
            await at.until(lambda: base64.b64encode(TEXT.encode()) in at.written)
    kept = subprocess.run([*tmux, "show-buffer"], check=True, capture_output=True, timeout=20)
    assert kept.stdout.decode() == TEXT


@pytest.fixture
def display(tmp_path: Path) -> dict[str, str]:
    """The environment of a desktop whose xclip keeps the text in a file, and stays behind as the real one does."""
    program = tmp_path / "xclip"
    program.write_text(f'#!/bin/sh\ncat > {tmp_path}/kept\necho "$@" > {tmp_path}/asked\nsleep 3 &\n', encoding="utf-8")
    program.chmod(0o755)
    return {"TERM": "xterm-256color", "DISPLAY": ":0", "PATH": f"{tmp_path}:{os.defpath}"}


async def test_the_program_of_the_desktop_takes_the_text_and_is_named(display: dict[str, str], tmp_path: Path) -> None:
    assert await copy(TEXT, display, pytest.fail) == "copied to the clipboard by xclip"
    assert (tmp_path / "kept").read_text(encoding="utf-8") == TEXT
    assert (tmp_path / "asked").read_text(encoding="utf-8") == "-selection clipboard\n"
    wrote: list[str] = []
    said = await copy(TEXT, {**display, "SSH_CONNECTION": "10.0.0.1 1 10.0.0.2 22"}, wrote.append)
    assert (said, wrote) == ("sent to the terminal's clipboard", [SEQUENCE]), "over ssh the desktop is another one"
    (tmp_path / "xclip").write_text("#!/bin/sh\ncat > /dev/null\nexit 1\n", encoding="utf-8")
    assert await copy(TEXT, display, lambda _: None) == "sent to the terminal's clipboard", "it has failed"


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
