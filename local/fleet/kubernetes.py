"""The engine Kubernetes: Indexed Jobs, made and reached with the person's own `kubectl`."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import shlex
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from pydantic import BaseModel

from ccb.deploy import bundle as bundles
from ccb.deploy.bootstrap import job_input
from ccb.deploy.bundle import Bundle
from ccb.tunnel.errors import ConnectionLost, NoSuchSession, UsageError
from ccb.tunnel.plain_text import HostText
from ccb.tunnel.secret import without_secrets
from ccb.tunnel.transports.command_transport import said_by
from ccb.tunnel.transports.login_prompts import NobodyToAsk
from ccb.tunnel.transports.pipe import Transport

from ..command_line.arguments import ConnectionOptions, FleetOptions
from ..command_line.transport_choice import open_chosen_transport
from ..config.policy import check_connection
from ..config.settings_loading import load_policy
from ..connect.startup import load_in_thread
from .manifest import FleetTask, JobPlace, Manifest
from .site_engine import SiteState, SiteTask, job_script

_COMMAND_S = 120.0
_PODS_OF_AN_INDEX = 3  # after so many more pods that fail, an index has failed
_OWN = "/ccb"  # where a container has the files of its task
_PLACES = tuple((f"XDG_{each}", f"{_OWN}/{each}") for each in ("RUNTIME_DIR", "CACHE_HOME", "STATE_HOME"))
_FIRST = '(umask 077; mkdir -p "$XDG_RUNTIME_DIR")'
_LOG_LINE = re.compile(r"[IWEF]\d{4} ")  # of klog

_JOBS = (
    *(".metadata.labels.ccb-job", ".status.completedIndexes", ".status.failedIndexes"),
    *(".status.conditions[?(@.status=='True')].type", ".status.conditions[?(@.status=='True')].message"),
)
_PODS = (
    *(".metadata.name", ".metadata.labels.ccb-job"),
    *(r".metadata.annotations.batch\.kubernetes\.io/job-completion-index", ".status.phase"),
    *(".metadata.deletionTimestamp", ".status.containerStatuses[0].state.waiting.reason"),
    ".status.conditions[?(@.status=='False')].message",
)


class KubernetesSite(BaseModel):
    """Where the pods of a fleet run, as the manifest keeps it. `job` is the person's own."""

    context: str
    namespace: str = ""
    job: dict[str, Any] = {}

    @property
    def kubectl(self) -> list[str]:
        """Return the words that lead to the cluster, whatever namespace the person works in by now."""
        return ["kubectl", f"--context={self.context}", *([f"--namespace={self.namespace}"] if self.namespace else [])]

    def way(self, pod: str) -> ConnectionOptions:
        return ConnectionOptions(
            transport=shlex.join([*self.kubectl, "exec", "-i", f"pod/{pod}", "--container=ccb", "--"])
        )


async def kubernetes_site(fleet: FleetOptions, environ: Mapping[str, str]) -> KubernetesSite:
    """Read the options. Raises CcbError."""
    do = "Write --job FILE. `kubectl create job x --image=IMAGE --dry-run=client -o yaml >FILE` makes one."
    if not fleet.job:
        raise UsageError("--kubernetes needs a Job", do=do)
    site = KubernetesSite(context=fleet.kubernetes or "")
    check_connection(load_policy(), site.way("POD"))
    env = without_secrets(environ)
    namespace = await _kubectl(site, env, "config", "view", "--minify", "--output=jsonpath={..namespace}")
    site = site.model_copy(update={"namespace": namespace.strip() or "default"})
    read = await _kubectl(site, env, "create", "--dry-run=client", "--output=json", f"--filename={fleet.job}")
    given = json.JSONDecoder(object_hook=lambda fields: {key: each for key, each in fields.items() if each is not None})
    job, end = given.raw_decode(read)
    match job:
        case {"kind": "Job", "spec": {"template": {"spec": {"containers": [{}, *_]}}}} if not read[end:].strip():
            return site.model_copy(update={"job": job})
    raise UsageError(f"--job {fleet.job}: this is no Job, or not only one, or it has no container", do=do)


class KubernetesEngine:
    """The Jobs of one fleet. `name` is unique in the namespace of the context, at most `jobs` pods of a Job run at
    once."""

    def __init__(self, site: KubernetesSite, bundle: Bundle, env: Mapping[str, str], *, name: str, jobs: int) -> None:
        self._site, self._bundle, self._env = site, bundle, env
        self._name, self._jobs = name, jobs

    async def submit(self, number: int, tasks: Sequence[FleetTask]) -> None:
        """The script and the worker are in a ConfigMap, which a pod mounts."""
        job = self._job(number, len(tasks))
        worker = base64.b64encode(await asyncio.to_thread(job_input, self._bundle)).decode()
        files = {"data": {"script": job_script(self._bundle, _FIRST, tasks)}, "binaryData": {"worker": worker}}
        about = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": job["metadata"], "immutable": True}
        both = "\n".join(map(json.dumps, ({**about, **files}, job))).encode()
        try:
            await _kubectl(self._site, self._env, "create", "--filename=-", data=both)
        except UsageError as error:
            if "AlreadyExists" not in error.what:  # an earlier try, whose answer was lost
                raise

    async def tasks(self, places: Mapping[int, JobPlace]) -> Mapping[int, SiteTask]:
        jobs = {number: status for number, *status in await self._listed("jobs", _JOBS)}
        pods: dict[tuple[str, str], Sequence[str]] = {}
        alive = "--field-selector=status.phase!=Succeeded,status.phase!=Failed"
        for name, number, at, phase, going, *why in await self._listed("pods", _PODS, alive):
            if not going or (number, at) not in pods:  # its successor may be there already
                pods[number, at] = name, phase, going, *why
        return {
            index: _site_task(jobs.get(str(number)), at, pods.get((str(number), str(at))))
            for index, (number, at) in places.items()
        }

    async def reach(self, run: str) -> Transport:
        return await open_chosen_transport(self._site.way(run), NobodyToAsk(), self._env)

    async def cancel(self, jobs: int) -> None:
        ours = f"--selector=ccb-fleet={self._name}"
        await _kubectl(self._site, self._env, "delete", "jobs,configmaps", ours, "--wait=false")

    def _job(self, number: int, tasks: int) -> dict[str, Any]:
        """Return a Job: the person's, whose first container keeps the worker. By its name, labels and indexes ccb finds
        its tasks again."""
        job, name = self._site.model_copy(deep=True).job, f"{self._name}-{number}"
        own = {"app.kubernetes.io/managed-by": "ccb", "ccb-fleet": self._name, "ccb-job": str(number)}
        for part in (job, job["spec"]["template"]):
            part.setdefault("metadata", {}).setdefault("labels", {}).update(own)
        job["metadata"]["name"] = name
        job["spec"] |= {"completionMode": "Indexed", "completions": tasks, "parallelism": min(self._jobs, tasks)}
        job["spec"].setdefault("backoffLimitPerIndex", _PODS_OF_AN_INDEX)
        pod = job["spec"]["template"]["spec"]
        pod["restartPolicy"] = "Never"
        pod.setdefault("automountServiceAccountToken", False)  # an agent has no business with the API of the cluster
        volumes = {"name": "ccb", "emptyDir": {}}, {"name": "ccb-job", "configMap": {"name": name}}
        pod["volumes"] = [*pod.get("volumes", []), *volumes]
        container, (place, script) = pod["containers"][0], (_OWN, f"{_OWN}/job")
        mounts = {"name": "ccb", "mountPath": place}, {"name": "ccb-job", "mountPath": script}
        container["volumeMounts"] = [*container.get("volumeMounts", []), *mounts]
        places = ({"name": each, "value": value} for each, value in _PLACES)
        container["env"] = [*{each["name"]: each for each in (*places, *container.get("env", []))}.values()]
        container |= {"name": "ccb", "command": ["/bin/sh", f"{script}/script", script], "args": []}
        return job

    async def _listed(self, kind: str, fields: Sequence[str], *more: str) -> list[tuple[str, ...]]:
        """Return these fields of the objects of the fleet."""
        line = "{'\\t'}".join(f"{{{each}}}" for each in fields)
        path = f"--output=jsonpath={{range .items[*]}}{line}{{'\\n'}}{{end}}"
        text = await _kubectl(self._site, self._env, "get", kind, f"--selector=ccb-fleet={self._name}", *more, path)
        return [(*line.split("\t"), *[""] * len(fields))[: len(fields)] for line in text.splitlines()]

    def way_to(self, index: int, state: SiteTask | None) -> ConnectionOptions:
        """Return the way into the pod of a running task. Raises NoSuchSession."""
        if state is None or state.state is not SiteState.RUNNING:
            raise NoSuchSession(f"task {index} has no pod now", do="Only running tasks have logs that can be read.")
        return self._site.way(state.run)


async def _kubectl(site: KubernetesSite, env: Mapping[str, str], *words: str, data: bytes | None = None) -> str:
    argv = [*site.kubectl, *words]
    try:
        code, out, err = await said_by(argv, env=env, deadline_s=_COMMAND_S, data=data)
    except TimeoutError:
        raise ConnectionLost("kubectl does not end", evidence=shlex.join(argv[:4])) from None
    if code:
        lines = [line for line in err.splitlines() if not _LOG_LINE.match(line)]  # with times: they differ each time
        said = HostText("\n".join(lines).strip()[-2_000:] or f"exit code {code}")
        do = f"Make this work in a terminal: {shlex.join([*site.kubectl, 'get', 'jobs'])}"
        raise UsageError(f"kubectl has failed: {said}", do=do)
    return out


@asynccontextmanager
async def kubernetes_engine(manifest: Manifest, environ: Mapping[str, str]) -> AsyncIterator[KubernetesEngine]:
    """Yield the engine of a fleet. Raises CcbError."""
    site = KubernetesSite.model_validate(manifest.site)
    check_connection(load_policy(), site.way("POD"))
    made, env = await load_in_thread(bundles.load), without_secrets(environ)
    name = re.sub("[^a-z0-9]+", "-", f"ccb-{manifest.name[:30]}-{manifest.id[:8]}".lower())
    yield KubernetesEngine(site, made, env, name=name, jobs=manifest.jobs)


def _site_task(job: Sequence[str] | None, position: int, pod: Sequence[str] | None) -> SiteTask:
    """Return what a task is by the fields of its Job and of its pod that has not ended."""
    if job is None:
        return SiteTask(SiteState.CANCELLED, "its Job is not there")
    completed, failed, conditions, message = job
    is_over = not {"Complete", "Failed"}.isdisjoint(conditions.split())
    has_failed = _has(failed, position)
    if has_failed or _has(completed, position) or (is_over and pod is None):
        return SiteTask(SiteState.ENDED, f"{'failed' if has_failed else 'ended'} {message or conditions}".strip())
    if pod is None:
        no_pod = "it has no pod yet: `kubectl describe jobs` may say why"
        return SiteTask(SiteState.WAITING, f"{conditions} {message}".strip() or no_pod)
    name, phase, going, reason, waits = pod
    if phase != "Running" or going:
        return SiteTask(SiteState.WAITING, reason or (waits if phase == "Pending" else ""))
    return SiteTask(SiteState.RUNNING, f"pod {name}", name)


def _has(indexes: str, position: int) -> bool:
    """Return whether a position is in `1,3-5`, as a Job names its indexes."""
    spans = (each.partition("-") for each in indexes.split(",") if each)
    return any(int(first) <= position <= int(last or first) for first, _, last in spans)
