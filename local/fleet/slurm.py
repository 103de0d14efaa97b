"""The engine Slurm: job arrays, and `srun` on the login node to reach their tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from ccb.deploy.bootstrap import job_input
from ccb.tunnel.errors import CcbError, ConnectionLost, Node, UsageError
from ccb.tunnel.plain_text import HostText
from ccb.tunnel.ssh.asyncssh_transport import SshTransport
from ccb.tunnel.transports.node import NodeTransport, node_words
from ccb.tunnel.transports.pipe import Transport

from ..config.policy import check_hop
from ..connect.host_connection import HostConnection
from ..connect.host_script import run_command
from ..connect.startup import LoadedBasics
from ..terminal.terminal_prompts import TerminalPrompts, prompts_for
from .fleet_run import task_arguments
from .manifest import FleetTask, JobPlace, Manifest
from .site_engine import SiteState, SiteTask, job_script

_MOST_ON_ONE = 8  # of the sessions that an sshd allows on a connection (MaxSessions, 10): commands need some, too
_COMMAND_S = 60.0

# stdin: the script of the job, then the worker.
_SUBMIT = """\
(umask 077 && mkdir -p "$D" && cd "$D" && head -c {size} >{number}.sh && cat >worker.$$ && mv worker.$$ worker) || exit
cd "$D" || exit
exec sbatch --parsable --requeue --open-mode=append --output="$D/%a.out" --job-name={name}-{number} \\
  --array=0-{last}%{jobs} {number}.sh "$D" </dev/null
"""

_ENDED = {
    *("BOOT_FAIL", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT")
}


class SlurmEngine:
    """The arrays of one fleet, at the site behind `login`."""

    def __init__(self, login: HostConnection, basics: LoadedBasics, manifest: Manifest) -> None:
        self._login, self._basics = login, basics
        self._name = f"ccb-{manifest.name}-{manifest.id[:8]}"  # others may have a fleet of that name there
        self._folder = f'D="${{XDG_STATE_HOME:-$HOME/.local/state}}/ccb/jobs/{self._name}"\n'
        self._options, self._jobs = manifest.site["options"], manifest.jobs

    async def submit(self, number: int, tasks: Sequence[FleetTask]) -> None:
        if await self._rows([number]):
            return  # an earlier try, whose answer was lost
        # srun would take the runtime directory of the login along; options of the command line outrank #SBATCH
        first, bundle = f"#SBATCH {self._options}\nunset XDG_RUNTIME_DIR", self._basics.bundle
        script, last = job_script(bundle, first, tasks).encode(), len(tasks) - 1
        command = _SUBMIT.format(size=len(script), number=number, name=self._name, last=last, jobs=self._jobs)
        await self._run(self._folder + command, script + await asyncio.to_thread(job_input, bundle))

    async def tasks(self, places: Mapping[int, JobPlace]) -> Mapping[int, SiteTask]:
        rows = await self._rows(sorted({number for number, _ in places.values()}))
        return {index: rows[place] for index, place in places.items() if place in rows}

    async def reach(self, run: str) -> Transport:
        job, name, _ = run.split(" ")
        check_hop(self._basics.settings.policy, name, "")
        node = Node(name, "", job)
        return _Step(await self._login.transport(ask=False), node, node_words(node, ""))

    async def cancel(self, jobs: int) -> None:
        for number in range(1, jobs + 1):
            await self._run(f'exec scancel --quiet --user="$(id -un)" --name={self._name}-{number}')
        await self._run(self._folder + 'rm -rf "$D"')

    async def _rows(self, numbers: Sequence[int]) -> dict[JobPlace, SiteTask]:
        names = {f"{self._name}-{each}": each for each in numbers}
        told = "--noheader --array --states=all --format='%j|%K|%A|%T|%S|%r|%N'"
        output = await self._run(f'exec squeue {told} --user="$(id -un)" --name={",".join(names)}')
        found: dict[JobPlace, SiteTask] = {}
        for line in output.splitlines():
            name, position, job, word, began, reason, node = (*line.strip().split("|"), *[""] * 7)[:7]
            if name not in names or not position.isdecimal() or not job.isdecimal():
                continue
            said, run, state = f"{word} {'' if reason == 'None' else reason}".strip(), "", SiteState.WAITING
            if word == "RUNNING":
                said, run, state = f"{word} {node}", f"{job} {node} {began}", SiteState.RUNNING
            elif word == "CANCELLED":
                state = SiteState.CANCELLED
            elif word in _ENDED:
                said += f" (its output: ~/.local/state/ccb/jobs/{self._name}/{position}.out)"
                state = SiteState.ENDED
            found[names[name], int(position)] = SiteTask(state, said, run)
        return found

    async def _run(self, command: str, data: bytes = b"") -> str:
        """Run a command on the login node."""
        transport = await self._login.transport(ask=False)
        try:
            async with asyncio.timeout(_COMMAND_S):
                done = await run_command(transport, command, data=data)
        except TimeoutError:
            await self._login.give_up(transport)
            what = "the command was lost with its connection, or ended by a signal"
            raise ConnectionLost(what, evidence=f"Slurm did not answer within {_COMMAND_S:.0f} s") from None
        if done.code:
            raise UsageError(
                f"Slurm on {transport.name} refuses: {HostText(done.stderr.strip() or f'exit code {done.code}')}",
                do="Try the same options with `sbatch` there.",
            )
        return done.text


class _Step(NodeTransport):
    """Runs commands on the node of a job, each in a step of that: what srun refuses now it may do soon."""

    def failure(self, status: int | None, said: str) -> CcbError | None:
        return ConnectionLost(f"srun does not reach {self.name}", evidence=said) if status else None


@asynccontextmanager
async def slurm_engine(manifest: Manifest, environ: Mapping[str, str]) -> AsyncIterator[SlurmEngine]:
    """Yield the engine of a fleet, logged in at its site. Raises CcbError."""
    arguments, prompts = task_arguments(manifest, manifest.tasks[0]), prompts_for(headless=False)
    async with HostConnection(arguments, prompts, environ) as login:
        grows = isinstance(await login.connected(), SshTransport)  # by further connections
        asked = isinstance(prompts, TerminalPrompts) and prompts.asked_s > 0  # so would those
        if manifest.jobs > _MOST_ON_ONE and (asked or not grows):
            raise UsageError(
                f"this login can drive {_MOST_ON_ONE} tasks at once: it asks, or ssh of this machine makes it",
                do=f"Give --jobs {_MOST_ON_ONE}.",
            )
        yield SlurmEngine(login, await login.loader.loaded(), manifest)
