"""The seam to the engine of a site, which starts tasks where it has room: Slurm, Kubernetes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Protocol

from ccb.deploy.bootstrap_command import encoded_parameters, job_command
from ccb.deploy.bundle import Bundle
from ccb.tunnel.transports.pipe import Transport
from ccb.tunnel.wire.dataclass import dataclass

from ..command_line.target import HOME, parse_target
from .manifest import FleetTask, JobPlace


class SiteState(Enum):
    WAITING = "waiting"  # also between two runs
    RUNNING = "running"
    ENDED = "ended"  # whether or not its session has answered
    CANCELLED = "cancelled"  # by a person


@dataclass(frozen=True)
class SiteTask:
    """A task as the site knows it. `said` are the site's own words. `run` names one run of the job, and leads there."""

    state: SiteState
    said: str
    run: str = ""


class SiteEngine(Protocol):
    """An engine that keeps the daemon of each task's session in a job (`job_script`). The model credential and the
    prompts stay here: who drives a task reaches its daemon with a transport. Every method may raise CcbError."""

    async def submit(self, number: int, tasks: Sequence[FleetTask]) -> None:
        """Hand tasks to the site as one job. `number` counts those of the fleet. Doing it again submits nothing
        twice."""

    async def tasks(self, places: Mapping[int, JobPlace]) -> Mapping[int, SiteTask]:
        """Return the tasks that the site knows, of those at these places, by their index in the fleet."""

    async def reach(self, run: str) -> Transport:
        """Return a transport, which the caller closes, to where a run of a task is."""

    async def cancel(self, jobs: int) -> None:
        """End the jobs with the numbers up to `jobs`, and remove what was made for them. Their sessions can be
        resumed."""


_FOR_EVER_S = 10.0 * 365 * 86400  # the site limits how long a job lasts
_IDLE_S = 300.0

# A task that is taken away has failed, whatever its worker says, so that the site starts it again.
_SCRIPT = """\
#!/bin/sh
{first}
# A task of a ccb fleet: it is the worker of one session, and waits for the machine that has the prompts. $1 is the
# folder with the worker, which writes its journal before it ends.
trap 'T=143; kill $P' TERM
CCB_TASK=$(sed -n "s/^#ccb ${{SLURM_ARRAY_TASK_ID:-$JOB_COMPLETION_INDEX}} //p" "$0")
export CCB_TASK
cat "$1/worker" | ({command}) & P=$!
wait $P; C=$?
[ "$T" ] && wait $P
exit ${{T:-$C}}
"""


def job_script(bundle: Bundle, first: str, tasks: Sequence[FleetTask]) -> str:
    """Return the script of a job, with the lines of its site first. A task becomes the daemon of its session. Its work
    waits for the laptop as long as the job lasts; when it is done and nobody is attached, the job ends soon. The answer
    is in the journal."""
    lines = (f"#ccb {at} {_parameters(each)}\n" for at, each in enumerate(tasks))
    return _SCRIPT.format(first=first, command=job_command(bundle)) + "".join(lines)


def _parameters(task: FleetTask) -> str:
    directory, limits = parse_target(task.place).path or HOME, {"grace_s": _FOR_EVER_S, "idle_s": _IDLE_S}
    job = {"session": task.session, "create": True, "cwd": directory, "shell": True, "job": "keeps", "wait": True}
    return encoded_parameters({**job, **limits})
