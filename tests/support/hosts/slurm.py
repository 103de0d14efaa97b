"""A site with a real Slurm: its controller and three nodes on this machine, in namespaces of their own. Root only."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from tests.support.hosts.sshd import Sshd, free_port, sshd

NODES = ("n1", "n2", "n3")
_PROGRAMS = ("slurmctld", "slurmd", "munged", "srun")

_START = """set -e
for each in /etc/slurm /etc/munge /run /var/lib/munge /var/log/munge; do
  mkdir -p $each; mount -t tmpfs -o mode=755 tmpfs $each
done
mkdir /run/sshd /run/munge
head -c 64 /dev/urandom >/etc/munge/munge.key
chown -R munge:munge /etc/munge /run/munge /var/lib/munge /var/log/munge
chmod 700 /etc/munge; chmod 400 /etc/munge/munge.key; chmod 711 /var/lib/munge
setpriv --reuid munge --regid munge --clear-groups munged
cp {conf} /etc/slurm/slurm.conf
slurmctld
for node in {nodes}; do slurmd -N $node; done
until srun -N{count} true 2>/dev/null; do sleep 0.05; done
echo ready
while :; do sleep 3600 & wait; done
"""

_CONF = """ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
AuthType=auth/munge
StateSaveLocation={folder}/ctld
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/ctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1
MpiDefault=none
ReturnToService=2
KillWait=3
SlurmdParameters=config_overrides
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str:
    """Return why no Slurm can run here, "" if one can."""
    if os.geteuid() != 0:
        return "a Slurm of its own needs root"
    if absent := [each for each in _PROGRAMS if shutil.which(each, path=f"{os.environ['PATH']}:/usr/sbin") is None]:
        return f"Slurm is not installed: {', '.join(absent)}"
    if not os.path.ismount("/sys/fs/cgroup"):
        return "slurmd needs /sys/fs/cgroup"
    tried = subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True, check=False)
    return "" if tried.returncode == 0 else "this container may not make namespaces"


@dataclass(frozen=True)
class Slurm:
    """A running site. `pid` is the first process in its namespaces."""

    pid: int
    folder: Path
    login: Sshd

    def run(self, *words: str) -> str:
        """Run a command of the site's administrator."""
        done = subprocess.run([*_enter(self.pid), *words], capture_output=True, text=True, check=words[0] != "pgrep")
        return done.stdout

    def node_of(self, job: str) -> str:
        return self.run("squeue", "-h", "-j", job, "-o", "%N").strip()

    def kill_node(self, node: str) -> None:
        """Let a node lose its power, and the controller notice it."""
        there = [each for each in self.processes() if _runs_on(each, node)]
        steps = [step for each in there for step in each.parents() if step.name().startswith("slurmstepd")]
        for each in (*steps, *there):
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        self.run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")

    def processes(self) -> Iterator[psutil.Process]:
        here = os.readlink(f"/proc/{self.pid}/ns/pid")
        for process in psutil.process_iter():
            try:
                if os.readlink(f"/proc/{process.pid}/ns/pid") == here and process.cmdline():
                    yield process
            except (OSError, psutil.NoSuchProcess):
                continue


def _runs_on(process: psutil.Process, node: str) -> bool:
    """Whether it is the daemon of a node, or what that runs for a job."""
    try:
        daemon = process.cmdline()[:3] == ["slurmd", "-N", node]
        return daemon or process.environ().get("SLURMD_NODENAME") == node
    except psutil.Error:
        return False


def _enter(pid: int) -> list[str]:
    return ["nsenter", "--target", str(pid), "--mount", "--pid", "--"]


@asynccontextmanager
async def slurm(directory: Path) -> AsyncIterator[Slurm]:
    """A site whose login node is an sshd."""
    with _daemons(directory / "slurm") as pid:
        async with sshd(directory / "login", wrapper=_enter(pid)[:-1]) as login:
            yield Slurm(pid, directory / "slurm", login)


@contextmanager
def _daemons(folder: Path) -> Iterator[int]:
    (folder / "ctld").mkdir(parents=True)
    host = os.uname().nodename.partition(".")[0]
    conf = folder / "slurm.conf"
    nodes = (f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} CPUs=4\n" for node in NODES)
    conf.write_text(_CONF.format(host=host, port=free_port(), folder=folder) + "".join(nodes))
    start = _START.format(conf=conf, nodes=" ".join(NODES), count=len(NODES))
    process = subprocess.Popen(
        ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", start],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        said = process.stdout.readline()
        assert said == b"ready\n", said
        (first,) = psutil.Process(process.pid).children()
        yield first.pid
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
