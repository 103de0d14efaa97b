"""`ccb fleet submit --slurm` with a real Slurm of three nodes, over its login node, with a scripted model."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.hosts.slurm import Slurm, missing, slurm
from tests.support.hosts.sshd import HostUser
from tests.support.machine.waiting import until
from tests.support.model.canaries import keys_in
from tests.support.model.fake_model import FakeModel
from tests.support.model.model_script import uses
from tests.support.person.laptop import Done, Laptop
from tests.support.person.login import logged_in, target

from ccb.deploy.bootstrap import launch
from ccb.deploy.bundle import load
from ccb.tunnel.errors import Node, Unreachable
from ccb.tunnel.transports.node import NodeTransport, node_words

pytestmark = [pytest.mark.visited, pytest.mark.skipif(bool(missing()), reason=missing())]


@dataclass(frozen=True)
class Site:
    laptop: Laptop
    model: FakeModel
    slurm: Slurm
    user: HostUser

    async def submit(self, *prompts: str, options: tuple[str, ...] = ()) -> Done:
        file = self.laptop.home / "prompts"
        file.write_text("".join(json.dumps({"prompt": each}) + "\n" for each in prompts))
        place = f"{self.user.name}@127.0.0.1:~"
        words = ["--slurm", place, "--prompts", str(file), "--name", "night", *self.slurm.login.client_options()]
        return await self.laptop.run(["fleet", "submit", *words, "--allowedTools=Bash", *options])

    async def starts_again(self, job: str) -> None:
        """Let a job that was taken back begin soon: Slurm waits two minutes. In the same second, a node refuses it."""
        await until(lambda: self.slurm.run("squeue", "-h", "-j", job, "-o", "%T %r").strip() == "PENDING BeginTime")
        self.slurm.run("scontrol", "update", f"JobId={job}", "StartTime=now+2")
        await until(lambda: self.slurm.run("squeue", "-h", "-j", job, "-o", "%T").strip() == "RUNNING")


@pytest.fixture
async def site(tmp_path: Path, laptop: Laptop, fake_model: FakeModel, host_user: HostUser) -> AsyncIterator[Site]:
    async with slurm(tmp_path / "site") as made:
        yield Site(laptop, fake_model, made, host_user)


def answers(done: Done) -> dict[int, str]:
    return {each["index"]: each["text"] for each in done.messages if "place" in each}


async def test_tasks_of_an_array_answer_and_the_key_is_on_no_node(site: Site) -> None:
    """There are more tasks at once than sessions on one connection to the login node."""
    names = "abcdefghijk"
    site.model.add(*({"text": f"Done with {each}.", "when": {"user_contains": f"Task {each}."}} for each in names))
    refused = await site.submit("Task a.", options=("--sbatch=-p nowhere", "--name", "other"))
    assert refused.refuses(2, "Slurm on", "invalid partition specified: nowhere")
    assert (await site.laptop.run(["fleet", "status"])).refuses(2, "there is no fleet yet")
    submitted = await site.submit(*(f"Task {each}." for each in names))
    assert submitted.code == 0, submitted.stderr
    done = await site.laptop.run(["fleet", "collect"])
    assert done.code == 0, done.stderr
    assert answers(done) == {index: f"Done with {each}." for index, each in enumerate(names)}
    assert done.messages[-1]["usd"] > 0 and len(site.model.requests) == len(names)
    assert keys_in(site.slurm.folder) == [] and [*site.user.home.glob(".local/state/ccb/jobs/*")] == []
    logs = await site.laptop.run(["fleet", "logs", "night", "3"])
    assert logs.code == 0 and "Task d." in logs.stdout, logs.stderr
    await until(lambda: site.slurm.run("squeue", "-h") == "")


async def test_a_task_outlives_a_lost_step_a_requeue_and_the_death_of_its_node(site: Site) -> None:
    """What its tools have done is done once, and no answer of the model is asked for twice but the one cut off."""
    site.model.add(
        {**uses("Bash", command="echo one >> ran"), "when": {"user_contains": "Do it."}},
        {"text": "This answer stands still.", "stall_after": 2},
        {**uses("Bash", command="echo two >> ran; sleep 1000"), "when": {"user_contains": "was taken away"}},
        {"text": "All done.", "when": {"user_contains": "was taken away"}},
    )
    await site.submit("Do it.")
    ran = site.user.home / "ran"
    async with site.laptop.start(["fleet", "collect", "night"], piped=False) as running:
        await site.model.until(lambda model: len(model.requests) == 2)
        site.slurm.run("pkill", "-x", "srun")
        job = site.slurm.run("squeue", "-h", "-o", "%A", "-t", "RUNNING").strip()
        await until(lambda: site.slurm.run("pgrep", "-x", "srun") != "")
        site.slurm.run("scontrol", "requeue", job)
        await site.starts_again(job)
        await until(lambda: ran.read_text() == "one\ntwo\n")
        node = site.slurm.node_of(job)
        site.slurm.kill_node(node)
        await site.starts_again(job)
        assert site.slurm.node_of(job) not in ("", node)
        done = await running.done()
    assert done.code == 0, done.stderr
    assert answers(done) == {0: "All done."}
    assert (ran.read_text(), len(site.model.requests)) == ("one\ntwo\n", 4)


@pytest.mark.thorough
async def test_a_laptop_that_dies_comes_back_to_its_tasks_and_what_is_stopped_goes_on(site: Site) -> None:
    """The site keeps the tasks meanwhile: their model calls wait for a machine with the credential."""
    long = {"text": "This answer stands still.", "stall_after": 2}
    site.model.add({**uses("Bash", command="echo once >> ran"), "when": {"user_contains": "First."}})
    site.model.add(long, long, {"text": "Fine.", "when": {"user_contains": "was taken away"}})
    await site.submit("First.")
    async with site.laptop.start(["fleet", "collect"], piped=False) as running:
        await site.model.until(lambda model: len(model.requests) == 2)
        running.process.kill()
        await running.process.wait()
    async with site.laptop.start(["proxy", "serve"], piped=False) as serving:
        await site.model.until(lambda model: len(model.requests) == 3)
        shown = await site.laptop.run(["fleet", "status"])
        assert re.search("RUNNING n[1-3]", shown.stdout) and "runs it" in shown.stdout, shown.stdout
        stopped = await site.laptop.run(["fleet", "stop"])
        assert stopped.code == 0 and "fleet run --resume-failed night" in stopped.stdout, stopped.stderr
        await until(lambda: site.slurm.run("squeue", "-h") == "")
        serving.process.send_signal(signal.SIGINT)
        assert (await serving.done()).code == 130
    done = await site.laptop.run(["fleet", "run", "--resume-failed", "night"])
    assert (done.code, answers(done)) == (0, {0: "Fine."}), done.stderr
    assert (site.user.home / "ran").read_text() == "once\n"


async def test_a_node_is_reached_in_the_job_of_its_session(site: Site) -> None:
    async with logged_in(target(site.slurm.login, site.user)) as login:
        pipe = await login.execute("exec /bin/sh -c 'sbatch --parsable --nodelist=n2 --wrap=\"sleep 600\"'")
        job = (await pipe.read()).decode().strip()
        await pipe.close()
        await until(lambda: site.slurm.run("squeue", "-h", "-j", job, "-o", "%T").strip() == "RUNNING")
        node = Node("n2", "its boot", job=job)
        there = NodeTransport(login, node, node_words(node, ""))
        said = await there.execute("exec /bin/sh -c 'echo $SLURMD_NODENAME $SLURM_JOB_ID'")
        assert (await said.read()).decode().split() == ["n2", job], said.stderr_tail()
        await said.close()
        launched = await launch(there, {"command": "ps"}, load())
        await launched.pipe.close()
        site.slurm.run("scancel", job)
        await until(lambda: not site.slurm.run("squeue", "-h", "-j", job, "-t", "running").strip())
        with pytest.raises(Unreachable) as gone:
            await launch(there, {"command": "ps"}, load())
    assert "n2 (over" in gone.value.what and "srun" in gone.value.evidence
