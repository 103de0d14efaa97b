"""`make bullseye`, `make forky`, `make arm64`: the whole session on a whole Debian host that has neither git nor
ripgrep.

Needs root: the host is made once by debootstrap in /srv/ccb-NAME, and a real sshd logs in to it with ChrootDirectory.
"""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.support.hosts.sshd import sshd
from tests.support.hosts.whole_session import Somewhere, whole_session
from tests.support.model.fake_model import FakeModel
from tests.support.person.laptop import make_laptop

MIRROR = "http://deb.debian.org/debian"


@dataclass(frozen=True)
class Host:
    """A Debian `suite`, made as debootstrap's `script` says; `python` is what its Python 3 must at least be."""

    suite: str
    script: str
    python: tuple[int, int]
    arch: str = "amd64"


HOSTS = {
    "bullseye": Host("bullseye", "bullseye", (3, 9)),
    "forky": Host("forky", "sid", (3, 14)),
    "arm64": Host("bookworm", "bookworm", (3, 11), "arm64"),
}


def _make_host(name: str, top: Path) -> None:
    """Make the host unless it is there. A host of another architecture runs under qemu-user, by binfmt_misc."""
    host = HOSTS[name]
    foreign = host.arch == "arm64" and platform.machine() != "aarch64"
    if foreign:
        _run_arm64()
    if (top / "made").exists():
        return
    shutil.rmtree(top, ignore_errors=True)
    if shutil.which("debootstrap") is None:
        subprocess.run(["apt-get", "install", "-y", "-qq", "debootstrap"], check=True)
    arch = host.arch if foreign else subprocess.check_output(["dpkg", "--print-architecture"], text=True).strip()
    options = [*(["--foreign"] if foreign else []), f"--arch={arch}", "--variant=minbase", "--include=python3"]
    subprocess.run(["debootstrap", *options, host.suite, str(top), MIRROR, host.script], check=True)
    if foreign:
        subprocess.run(["chroot", str(top), "/debootstrap/debootstrap", "--second-stage"], check=True)
    (top / "made").touch()


def _run_arm64() -> None:
    """Let the kernel run programs for arm64; it does until the machine is started again."""
    kernel = Path("/proc/sys/fs/binfmt_misc")
    if shutil.which("qemu-aarch64-static") is None:
        subprocess.run(["apt-get", "install", "-y", "-qq", "qemu-user-static"], check=True)
    if not (kernel / "register").exists():
        subprocess.run(["mount", "-t", "binfmt_misc", "none", str(kernel)], check=True)
    if not (kernel / "qemu-aarch64").exists():
        (kernel / "register").write_bytes(Path("/usr/lib/binfmt.d/qemu-aarch64.conf").read_bytes().strip())


def _python(top: Path) -> tuple[int, int]:
    text = subprocess.check_output(["chroot", str(top), "python3", "-V"], text=True)
    major, minor = text.split()[1].split(".")[:2]
    return int(major), int(minor)


async def _run(top: Path) -> None:
    app = top / "srv" / "app"
    shutil.rmtree(app, ignore_errors=True)
    shutil.rmtree(top / "root" / ".cache", ignore_errors=True)
    app.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as name:
        async with sshd(Path(name) / "sshd", [f"ChrootDirectory {top}"]) as server, FakeModel([]) as model:
            where = ["ssh", "root@127.0.0.1:/srv/app", *server.client_options()]
            await whole_session(
                make_laptop(Path(name), model.url), model, Somewhere(where, app, "/srv/app", socket.gethostname())
            )


def main() -> None:
    if os.geteuid() != 0:
        sys.exit("this needs root: debootstrap and ChrootDirectory do")
    name = sys.argv[1]
    top = Path(f"/srv/ccb-{name}")
    _make_host(name, top)
    python = _python(top)
    assert python >= HOSTS[name].python, f"{name} has Python {python}"
    asyncio.run(_run(top))
    host = HOSTS[name]
    sys.stdout.write(f"Debian {host.suite} ({host.arch}), Python {python[0]}.{python[1]}: the whole session is done\n")


if __name__ == "__main__":
    main()
