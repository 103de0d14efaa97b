"""Real OpenSSH servers on 127.0.0.1, with chosen options, users and login shells. ../README.md says more."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from tests.support.model.canaries import keys_in, keys_left_by_workers

_READY_S = 60.0
_SSHD = shutil.which("sshd") or "/usr/sbin/sshd"


@dataclass(frozen=True)
class HostUser:
    name: str
    home: Path
    shell: str


@dataclass(frozen=True)
class Sshd:
    """A running server. `identity` logs in every user of it; `known_hosts` vouches for its host key."""

    port: int
    identity: Path
    known_hosts: Path
    host_key: Path
    log: Path
    address: str = "127.0.0.1"

    @property
    def logins(self) -> int:
        return self.log.read_text(encoding="utf-8").count("Accepted publickey")

    def client_options(self, port: int | None = None) -> list[str]:
        """Return `ccb ssh` flags that reach this server (through the relay on `port`), with no file of a real user."""
        return [
            "-P", str(port or self.port), "-i", str(self.identity),
            "-o", f"UserKnownHostsFile={self.trust(port or self.port)}", "-o", "IdentitiesOnly=yes",
        ]  # fmt: skip

    def trust(self, port: int) -> Path:
        """A known_hosts file that vouches for the host key on `port` too."""
        line = f"[{self.address}]:{port} {self.host_key.with_suffix('.pub').read_text(encoding='ascii')}"
        path = self.known_hosts
        text = path.read_text(encoding="ascii") if path.exists() else ""
        if line not in text:
            path.write_text(text + line, encoding="ascii")
        return path


def make_key(path: Path, kind: str = "ed25519", passphrase: str = "") -> Path:
    """A new private key, its public half beside it. A passphrase is stretched once: the usual 24 times take long."""
    if kind != "ed25519" or passphrase:
        command = ["ssh-keygen", "-q", "-a", "1", "-t", kind, "-N", passphrase, "-C", "test", "-f", str(path)]
        subprocess.run(command, check=True)
        return path
    key = Ed25519PrivateKey.generate()  # the tests make a thousand, and a program takes 10 ms for each
    path.touch(0o600)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    path.with_name(f"{path.name}.pub").write_bytes(public + b" test\n")
    return path


def certify(authority: Path, key: Path, name: str, *options: str) -> Path:
    """The certificate of `key` for `name`, of a user or with `-h` of a host."""
    words = ["ssh-keygen", "-q", "-s", str(authority), "-I", "test", "-n", name, *options, f"{key}.pub"]
    subprocess.run(words, check=True)
    return key.with_name(key.name + "-cert.pub")


@contextmanager
def host_user(directory: Path, shell: str = "/bin/bash", *, home: bool = True) -> Iterator[HostUser]:
    """A new Unix user (needs root), gone afterwards with all its processes. It may not leave the model's key."""
    name = f"ccbt{secrets.token_hex(4)}"
    where = directory / name
    if home:
        where.mkdir(mode=0o700)
    for parent in (directory, *directory.parents):  # a login must be able to enter its home
        if parent.owner() == getpass.getuser():
            parent.chmod(parent.stat().st_mode | 0o011)
    words = ["--no-user-group", "--no-create-home", "--home-dir", str(where), "--shell", shell, "--password", "*"]
    subprocess.run(["useradd", *words, name], check=True)
    uid = pwd.getpwnam(name).pw_uid
    _remove_files_of(uid)  # of a run that was killed, whose user had this number
    try:
        if home:
            shutil.chown(where, name)
        yield HostUser(name, where, shell)
    finally:
        subprocess.run(["pkill", "-KILL", "-u", str(uid)], check=False)
        found = keys_in(where) + keys_left_by_workers(Path("/tmp"), uid)
        _remove_files_of(uid)
        subprocess.run(["userdel", "--force", name], check=False, capture_output=True)
        assert found == [], found


def _remove_files_of(uid: int) -> None:
    """Remove what the workers of a user leave in /tmp when they are killed."""
    shutil.rmtree(f"/tmp/ccb-{uid}", ignore_errors=True)
    for path in Path("/tmp").glob("ccb-cage-*"):
        with contextlib.suppress(FileNotFoundError):
            if path.lstat().st_uid == uid:
                shutil.rmtree(path, ignore_errors=True)


@asynccontextmanager
async def sshd(
    directory: Path,
    options: Sequence[str] = (),
    *,
    environment: dict[str, str] | None = None,
    wrapper: Sequence[str] = (),
    address: str = "127.0.0.1",
) -> AsyncIterator[Sshd]:
    """A server in `directory`. `options` of sshd_config win over the defaults; `environment` is set for every login;
    `wrapper` is a command that makes itself the one it is given (env, unshare); `address` is where it listens."""
    directory.mkdir(parents=True, exist_ok=True)
    host_key = make_key(directory / "host_ed25519")
    identity = make_key(directory / "id_ed25519")
    authorized = directory / "authorized_keys"
    authorized.write_text((directory / "id_ed25519.pub").read_text(encoding="ascii"), encoding="ascii")
    authorized.chmod(0o644)
    log = directory / "sshd.log"
    Path("/run/sshd").mkdir(exist_ok=True)
    for _ in range(5):  # the port may be taken between choosing and binding it
        port = free_port()
        config = directory / "sshd_config"
        lines = [
            *options,
            f"Port {port}", f"ListenAddress {address}", f"HostKey {host_key}", f"AuthorizedKeysFile {authorized}",
            "PidFile none", "StrictModes no", "UsePAM no", "PasswordAuthentication no",
            "KbdInteractiveAuthentication no", "PermitRootLogin yes", "LogLevel VERBOSE", "PrintMotd no",
        ]  # fmt: skip
        named = {option.split(" ")[0] for option in options}
        for name, value in (("MaxStartups", "100"), ("Subsystem", "sftp internal-sftp")):
            lines += [] if name in named else [f"{name} {value}"]  # of these two, the last wins or is an error
        if environment:
            pairs = " ".join(f'"{name}={value}"' for name, value in environment.items())
            lines.append(f"SetEnv {pairs}")
        config.write_text("\n".join(lines) + "\n", encoding="utf-8")
        process = await asyncio.create_subprocess_exec(
            *wrapper, _SSHD, "-D", "-E", str(log), "-f", str(config),
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        if await _answers(address, port, process):
            break
    else:
        raise RuntimeError(f"sshd does not start:\n{log.read_text(encoding='utf-8') if log.exists() else 'no log'}")
    server = Sshd(port, identity, directory / "known_hosts", host_key, log, address)
    server.trust(port)
    try:
        yield server
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        await process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def _answers(address: str, port: int, process: asyncio.subprocess.Process) -> bool:
    """Whether the server greets on `port` before the deadline; False when it has ended."""
    deadline = asyncio.get_running_loop().time() + _READY_S
    while asyncio.get_running_loop().time() < deadline and process.returncode is None:
        try:
            reader, writer = await asyncio.open_connection(address, port)
        except OSError:
            await asyncio.sleep(0.01)
            continue
        greeting = await reader.readline()
        writer.close()
        if greeting.startswith(b"SSH-"):
            return True
    return False
