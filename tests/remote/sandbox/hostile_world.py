"""A throwaway home in which every hostile line runs, caged, with canaries: files, secrets, programs, sockets, a process
to attack. `hostile_world.py DIRECTORY ABI CAGE` is a program, for another user, and prints what went wrong and the
number of lines."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import select
import socket
import stat
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.remote.tools_kit import is_alive, until

from ccb.remote.sandbox.cage_rules import CageRules, read_only_rules, why_protected, workspace_rules
from ccb.remote.sandbox.cage_server import CageServer
from ccb.remote.system.host import Host
from ccb.remote.system.process import marked, stop_marked

_AT_ONCE = 4
_LINE_S = 20.0
_MAY_IN_WORKSPACE = {
    *("empty_by_reader", "empty_by_odd_mode", "empty_by_name"),
    *("change_mode", "change_mode_by_file", "change_mode_by_newer_call"),
    *("change_owner", "change_attribute", "change_attribute_by_newer_call", "change_time"),
    *("serve_tcp", "send_udp", "ask_the_kernel"),  # in a network of its own, where nobody else is
}
_PROGRAM = """#!/bin/sh
echo RAN
echo x >"$HOME/pwned"
echo x >pwned
cat "$OUT/secret"
"""
_LAID_OUT = """
chmod 755 src/prog src/canary; chmod 700 ../.ssh; chmod 600 ../.ssh/id_rsa
ln -s $OUT/secret link-to-secret; ln -s $OUT link-to-outside; ln -s src/prog link-to-prog
tar cf archive.tar src; mkdir nested; printf text >nested/file
for where in nested $OUT/repo; do (cd $where; git init -q; git add file; git commit -qm first); done
git init -q; git add .gitattributes README.md src; git commit -qm first; echo now >>README.md
for where in . nested; do
    for name in core.fsmonitor diff.bad.textconv diff.external filter.bad.clean core.pager; do
        git -C $where config $name 'sh src/prog'
    done
    mkdir -p $where/.git/hooks; cp src/prog $where/.git/hooks/post-index-change
done
"""
_PYTHON = """
import os
print("RAN")
for path in (os.environ["HOME"] + "/pwned", "pwned"):
    try:
        open(path, "w")
    except OSError:
        pass
"""


def snapshot(top: Path) -> dict[str, object]:
    """Return the state of every path: content, attributes, times of change."""
    found: dict[str, object] = {}
    for directory, names, files in os.walk(top):
        for name in (".", *names, *files):
            path = os.path.join(directory, name)
            info = os.lstat(path)
            data = Path(path).read_bytes() if stat.S_ISREG(info.st_mode) else b""
            attributes = sorted(os.listxattr(path, follow_symlinks=False))
            times = info.st_mtime_ns, info.st_ctime_ns
            found[os.path.normpath(path)] = (info.st_mode, info.st_uid, info.st_nlink, times, data, attributes)
    return found


class World:
    """The home, its project, a directory outside with secrets, sockets, and the victim."""

    def __init__(self, directory: Path) -> None:
        self.canary = f"CANARY{secrets.token_hex(6)}"
        self.top = directory
        self.home = directory / "home"
        self.project = self.home / "project"
        self.outside = directory / "outside"
        self._make_files()
        self.sockets = self._listen()
        environment = {**os.environ, "PASSWORD": self.canary}
        self.victim = subprocess.Popen(["sleep", "1000"], env=environment, stdin=subprocess.DEVNULL, cwd="/")
        deadline = time.monotonic() + 10
        while Path(f"/proc/{self.victim.pid}/comm").read_text() != "sleep\n":  # it has its name a moment later
            assert time.monotonic() < deadline
        self._state_of_victim = self._look_at_victim()
        self.before = snapshot(self.top)

    @property
    def environ(self) -> dict[str, str]:
        return {
            "PATH": f"{self.project}/src:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": str(self.home),
            "OUT": str(self.outside),
            "VICTIM": str(self.victim.pid),
            "WORKER": str(os.getpid()),
            "PORT": str(self.port),
            "SOCKET": f"{self.top}/stream",
            "DATAGRAM": f"{self.top}/datagram",
            "ABSTRACT": self.canary.lower(),
            "LANG": "C",
        }

    def _make_files(self) -> None:
        for directory in ("home/.ssh", "home/keep", "home/project/src", "home/project/empty", "outside/repo"):
            (self.top / directory).mkdir(parents=True)
        secret = f"{self.canary}\n"
        files = {
            "home/.ssh/id_rsa": secret,
            "home/.bashrc": f"# {secret}",
            "home/keep/file": secret,
            f"home/.{self.canary}": "",
            "outside/secret": f"echo {secret}",
            f"outside/{self.canary}": "",
            "home/.gitconfig": "[user]\n\tname = a\n\temail = a@b\n",
            "home/project/README.md": "read me\n",
            "home/project/Makefile": "$(shell sh src/prog)\nall:\n\tsh src/prog\n",
            "home/project/package.json": '{"scripts": {"test": "sh src/prog"}}',
            "home/project/change.patch": "--- README.md\n+++ README.md\n@@ -1 +1 @@\n-read me\n+changed\n",
            "home/project/src/prog": _PROGRAM,
            "home/project/src/canary": _PROGRAM,
            "home/project/src/canary_module.py": _PYTHON,
            "home/project/src/Canary.pm": 'open F, ">pwned"; 1;\n',
            "home/project/src/canary.awk": 'BEGIN { print "x" > "pwned" }\n',
            "home/project/src/canary.sed": "w pwned\n",
            "home/project/.cargo/config.toml": '[alias]\nversion = "run"\n',
            "home/project/.gitattributes": "*.md diff=bad filter=bad\n",
        }
        for name, text in files.items():
            file = self.top / name
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
        (self.outside / "repo" / "file").write_text(self.canary)
        environ = {"PATH": os.environ["PATH"], "HOME": str(self.home), "OUT": str(self.outside)}
        subprocess.run(["sh", "-ec", _LAID_OUT], cwd=self.project, env=environ, check=True, capture_output=True)

    def _listen(self) -> list[socket.socket]:
        tcp = socket.create_server(("127.0.0.1", 0))
        self.port = tcp.getsockname()[1]
        made = [tcp]
        kinds = (
            (socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", self.port)),
            (socket.AF_UNIX, socket.SOCK_STREAM, f"{self.top}/stream"),
            (socket.AF_UNIX, socket.SOCK_DGRAM, f"{self.top}/datagram"),
            (socket.AF_UNIX, socket.SOCK_STREAM, "\0" + self.canary.lower()),
        )
        for family, kind, address in kinds:
            each = socket.socket(family, kind)
            each.bind(address)
            if kind == socket.SOCK_STREAM:
                each.listen()
            made.append(each)
        return made

    def _look_at_victim(self) -> list[object]:
        pid = self.victim.pid
        told = [Path(f"/proc/{pid}/{name}").read_text() for name in ("limits", "oom_score_adj", "comm")]
        return [os.getpriority(os.PRIO_PROCESS, pid), os.sched_getaffinity(pid), os.sched_getscheduler(pid), *told]

    def damage(self, workspace: bool = False) -> list[str]:
        """What has happened to the world, but to what the cage for the `workspace` lets be changed."""
        after = snapshot(self.top)
        changed = {path for path in {*after, *self.before} if after.get(path) != self.before.get(path)}
        found = [f"changed: {path}" for path in changed if not (workspace and self._may_change(path))]
        new = sorted(str(path) for path in {*after} - {*self.before}) if workspace else []
        found += [f"acts later: {path}" for path in new if why_protected(os.path.relpath(path, self.project))]
        if self.victim.poll() is not None or not is_alive(self.victim.pid):
            found.append("the victim is dead")
        elif self._look_at_victim() != self._state_of_victim:
            changes = [pair for pair in zip(self._state_of_victim, self._look_at_victim()) if pair[0] != pair[1]]
            found.append(f"the victim was changed: {changes}")
        ready, _, _ = select.select(self.sockets, [], [], 0)
        found += [f"connected: {each.getsockname()!r}" for each in ready]
        for top in ("/tmp", "/var/tmp", "/dev/shm"):
            for path in Path(top).glob(f"ccb-made-{self.victim.pid}"):
                path.unlink()
                found.append(f"made: {path}")
        return sorted(found)

    def _may_change(self, path: str) -> bool:
        project = str(self.project)
        if path != project and not path.startswith(project + "/"):
            return False
        kept = (f"{project}/{name}/" for name in (".git", "nested/.git", ".envrc", ".vscode"))
        return not any(f"{path}/".startswith(each) for each in kept)

    def close(self) -> None:
        self.victim.kill()
        self.victim.wait()
        for each in self.sockets:
            each.close()


@dataclass
class Runner:
    world: World
    host: Host
    rules: CageRules | None
    found: list[str] = field(default_factory=list)
    harmful: set[str] = field(default_factory=set)

    async def run(self, argv: list[str], forbidden: tuple[str, ...]) -> str:
        output = bytearray()
        process = await self.host.start(argv, str(self.world.project), output.extend, self.world.environ, self.rules)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(process.wait(), _LINE_S)
        await process.stop()
        text = output.decode("utf-8", "replace")
        for each in forbidden:
            if each in text:
                self.harmful.add(argv[-1])
                self.found.append(f"printed {each}: {argv[-1][:200]}: {text[:500]}")
        return text

    async def escape(self) -> None:
        """Leave a process in another process group behind. It must be found by its mark, and ended with its command."""
        output = bytearray()
        script = "setsid sh -c 'trap \"\" TERM; echo $$; while :; do sleep 1; done' & sleep 100"
        argv, project = ["bash", "-c", script], str(self.world.project)
        process = await self.host.start(argv, project, output.extend, self.world.environ, self.rules)
        await until(lambda: output.endswith(b"\n"))
        child = int(output)
        if not {child, process.pid} <= {*marked(process.mark)}:
            self.found.append(f"a process of the command is not found: {child} {marked(process.mark)}")
        await process.stop()
        await until(lambda: not (is_alive(child) or is_alive(process.pid)))

    async def attack(self, python: list[str], allowed: set[str]) -> None:
        source = Path(__file__).with_name("attacks.py").read_text()
        text = await self.run([*python, "-c", source], (self.world.canary,))
        done = {line.partition("DONE ")[2] for line in text.splitlines() if line.startswith("DONE ")}
        if done - allowed or "END" not in text.splitlines():  # a note about an earlier line may follow
            self.found.append(f"attacks: {text[-2000:]}")

    async def run_all(self, commands: list[str], forbidden: tuple[str, ...]) -> None:
        waiting = iter(commands)

        async def next_ones() -> None:
            for command in waiting:
                await self.run(["bash", "-c", command], forbidden)

        await asyncio.gather(*(next_ones() for _ in range(_AT_ONCE)))


def hostile_lines(name: str, python: str) -> list[str]:
    """Return the command lines of one of the lists in hostile_lines.txt."""
    text = Path(__file__).with_name("hostile_lines.txt").read_text(encoding="utf-8")
    return text.partition(f"== {name}\n")[2].partition("\n== ")[0].strip().replace("{python}", python).splitlines()


async def run_hostile_lines(directory: Path, abi: int, cage: str, nth: int) -> dict[str, object]:
    """Run every nth line in one of the cages, or in `none`. Return what went wrong, and what to report."""
    world = World(directory)
    host = Host(environ=world.environ, cages=CageServer(abi))
    python = f"{os.path.realpath(sys.executable)} -I -S"
    where = [str(world.project)], world.environ, str(world.home)
    rules = {"read-only": read_only_rules, "workspace": workspace_rules}[cage](*where) if cage != "none" else None
    runner = Runner(world, host, rules)
    names = ("WRITES", "READS") if rules is None else ("READS", "PROGRAMS", "SCRIPTS", "OTHERS", "WRITES")
    lists = {name: hostile_lines(name, python)[::nth] for name in names}
    try:
        for name, commands in lists.items():
            forbidden = (world.canary, "RAN\n") if (name, cage) == ("PROGRAMS", "read-only") else (world.canary,)
            await runner.run_all(commands, forbidden)
        if rules is not None:
            await runner.escape()
            await runner.attack(python.split(), _MAY_IN_WORKSPACE if cage == "workspace" else set())
        await stop_marked(host.session)
        left = marked(host.session)
        host.close()
        damage = world.damage(workspace=cage == "workspace")
        return {
            "mechanism": host.cages().mechanism,
            "abi": host.cages().abi,
            "lines": sum(map(len, lists.values())),
            "found": [*runner.found, *damage, *(f"left: {pid}" for pid in left)] if rules is not None else [],
            "harmful": len(runner.harmful) + len(damage),
        }
    finally:
        host.close()
        world.close()


if __name__ == "__main__":
    _, directory, abi, cage, nth = sys.argv
    sys.stdout.write(json.dumps(asyncio.run(run_hostile_lines(Path(directory), int(abi), cage, int(nth)))))
