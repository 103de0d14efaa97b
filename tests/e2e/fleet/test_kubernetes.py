"""`ccb fleet submit --kubernetes`: the real kubectl, a small API server, and a stand-in for `kubectl exec`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.hosts.kubernetes import Cluster, kubernetes, missing
from tests.support.machine.waiting import until
from tests.support.model.canaries import keys_in
from tests.support.model.fake_model import FakeModel
from tests.support.model.model_script import Recorded, uses
from tests.support.person.laptop import Done, Laptop

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: mine}
spec:
  template:
    spec:
      containers:
      - name: x
        image: python:3.12-slim
"""


@dataclass(frozen=True)
class Site:
    laptop: Laptop
    model: FakeModel
    cluster: Cluster
    work: Path

    async def submit(self, *more: str, state: Path | None = None, job: str = JOB) -> None:
        """Submit the fleet `night` to the cluster; its journals are in `state`, which outlives pods."""
        file = self.laptop.home / "job.yaml"
        env = f"        env: [{{name: XDG_STATE_HOME, value: {state}}}]\n" if state else ""
        file.write_text(job + env)
        where = ("--kubernetes", "test", "--job", str(file), "--path", str(self.work))
        done = await self.laptop.run(["fleet", "submit", *where, "--name", "night", "--allowedTools=Bash", *more])
        assert done.code == 0, done.stderr

    async def collect(self) -> Done:
        return await self.laptop.run(["fleet", "collect", "night"])


@pytest.fixture
async def site(tmp_path: Path, laptop: Laptop, fake_model: FakeModel) -> AsyncIterator[Site]:
    work = tmp_path / "work"
    work.mkdir()
    async with kubernetes(tmp_path / "cluster") as cluster:
        env = {**laptop.env, "KUBECONFIG": str(cluster.config), "PATH": f"{cluster.programs}:{laptop.env['PATH']}"}
        yield Site(replace(laptop, env=env), fake_model, cluster, work)


def of(task: str, answer: dict[str, Any]) -> dict[str, Any]:
    """An answer for the session of one task."""

    def fits(request: Recorded) -> bool:
        return f"Task {task}" in json.dumps(request.body)

    return {**answer, "when": fits}


def answers(done: Done) -> dict[int, str]:
    return {each["index"]: each["text"] for each in done.messages if "place" in each}


async def test_tasks_of_a_job_answer_and_the_cluster_has_neither_key_nor_prompt(site: Site) -> None:
    prompts = site.laptop.home / "prompts"
    prompts.write_text("".join(json.dumps({"prompt": f"Task {each}"}) + "\n" for each in "abc"))
    site.model.add(*(of(each, {"text": f"Done with {each}."}) for each in "abc"))
    await site.submit("--prompts", str(prompts), "--jobs", "2")
    (job,) = site.cluster.jobs.values()
    spec = job.body["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 3, 2)
    assert spec["template"]["spec"]["automountServiceAccountToken"] is False
    assert "Task a" not in json.dumps([job.body, site.cluster.maps]) and job.strict
    done = await site.collect()
    assert done.code == 0, done.stderr
    assert answers(done) == {index: f"Done with {each}." for index, each in enumerate("abc")}
    assert done.messages[-1]["usd"] > 0 and len(site.model.requests) == 3
    assert keys_in(site.cluster.folder) == []
    await until(lambda: not site.cluster.jobs and not site.cluster.maps)


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("keeps", [True, False], ids=["with a volume", "without one"])
async def test_the_session_of_an_evicted_pod_goes_on_if_its_journal_is_on_a_volume(site: Site, *, keeps: bool) -> None:
    ran, volume = site.work / "ran", site.work / "volume"
    volume.mkdir()
    first = {**uses("Bash", command=f"echo one >>{ran}"), "when": lambda request: not request.tool_results}
    site.model.add(
        first,
        {"text": "This answer stands still.", "stall_after": 2},
        *(() if keeps else (first,)),
        {"text": "All done."},
    )
    await site.submit("-p", "Do it.", state=volume if keeps else None)
    async with site.laptop.start(["fleet", "collect", "night"], piped=False) as running:
        await site.model.until(lambda model: len(model.requests) == 2)
        (pod,) = site.cluster.pods
        site.cluster.evict(pod)
        done = await running.done()
    assert done.code == 0, done.stderr
    assert answers(done) == {0: "All done."}
    assert ran.read_text() == ("one\n" if keeps else "one\none\n")


OWN_JOB = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: mine
  labels: {kueue.x-k8s.io/queue-name: gpus}
spec:
  completions: 7
  backoffLimitPerIndex: 1
  template:
    spec:
      nodeSelector: {gpu: a100}
      imagePullSecrets: [{name: registry}]
      containers:
      - name: main
        image: python:3.12-slim
        args: [a]
        resources: {limits: {nvidia.com/gpu: 1}}
        env: [{name: SHARED, value: "yes"}]
"""


async def test_a_job_keeps_what_the_person_has_written_and_not_its_name(site: Site) -> None:
    site.model.add(uses("Bash", command="echo $SHARED"), {"text": "Done."})
    await site.submit("-p", "Do it.", job=OWN_JOB)
    ((name, job),) = site.cluster.jobs.items()
    spec = job.body["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert name.startswith("ccb-night-") and (spec["completions"], spec["backoffLimitPerIndex"]) == (1, 1)
    assert {"ccb-job": "1", "kueue.x-k8s.io/queue-name": "gpus"}.items() <= job.body["metadata"]["labels"].items()
    assert (pod["nodeSelector"], pod["imagePullSecrets"]) == ({"gpu": "a100"}, [{"name": "registry"}])
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 1}} and container["image"] == "python:3.12-slim"
    done = await site.collect()
    assert (done.code, answers(done)) == (0, {0: "Done."}), done.stderr
    assert site.model.requests[1].tool_result_text.strip() == "yes"


async def test_a_fleet_stays_in_its_namespace_when_the_person_works_in_another(site: Site) -> None:
    config = site.cluster.config.read_text()
    site.model.add({"text": "Done."})
    await site.submit("-p", "Do it.")
    site.cluster.config.write_text(config.replace("namespace: default", "namespace: other"))
    done = await site.collect()
    assert (done.code, answers(done)) == (0, {0: "Done."}), done.stderr


async def test_a_pod_that_cannot_begin_is_told_and_stop_removes_its_job(site: Site) -> None:
    site.cluster.has_image.clear()
    await site.submit("-p", "Do it.")
    async with site.laptop.start(["fleet", "collect", "night"], piped=False) as running:
        assert running.process.stderr is not None
        async with asyncio.timeout(60):
            await running.process.stderr.readuntil(b"ImagePullBackOff")
        shown = await site.laptop.run(["fleet", "status", "night"])
        assert "waits ImagePullBackOff" in shown.stdout and "1 tasks: 1 left" in shown.stdout, shown.stdout
        stopped = await site.laptop.run(["fleet", "stop", "night"])
        assert stopped.code == 0, stopped.stderr
        await running.done()
    assert not site.cluster.jobs and not site.model.requests


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--kubernetes", "test", "-p", "x"), "--kubernetes needs a Job"),
        (("--kubernetes", "none", "--job", "none", "-p", "x"), "context"),
        (("--kubernetes", "test", "--job", "none", "-p", "x"), "kubectl has failed"),
        (("--kubernetes", "test", "--job", "map.yaml", "-p", "x"), "this is no Job, or not only one"),
        (("--kubernetes", "test", "--job", "empty.yaml", "-p", "x"), "no container"),
    ],
)
async def test_what_is_wrong_is_told_before_anything_is_submitted(
    site: Site, words: tuple[str, ...], said: str
) -> None:
    empty = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: x}\nspec: {template: {spec: {volumes: }}}\n"
    (site.laptop.home / "empty.yaml").write_text(empty)
    (site.laptop.home / "map.yaml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n")
    done = await site.laptop.run(["fleet", "submit", *words])
    assert done.code != 0 and said in done.stderr, done.stderr
    assert not site.cluster.jobs and not list(site.laptop.home.glob("**/fleets/*/manifest.json"))
