"""What the engine Kubernetes makes of a kubectl and of pods that do not do what they should."""

from __future__ import annotations

from pathlib import Path

import pytest

from ccb.deploy import bundle
from ccb.local.fleet import kubernetes as module
from ccb.local.fleet.kubernetes import KubernetesEngine, KubernetesSite
from ccb.local.fleet.site_engine import SiteState
from ccb.tunnel.errors import CcbError

PODS = {4: (1, 0)}


def engine(folder: Path, kubectl: str) -> KubernetesEngine:
    program = folder / "kubectl"
    program.write_text(f"#!/bin/sh\n{kubectl}\n")
    program.chmod(0o755)
    env = {"PATH": f"{folder}:/usr/bin:/bin"}
    return KubernetesEngine(KubernetesSite(context="c"), bundle.load(), env, name="ccb-night", jobs=2)


@pytest.mark.parametrize(
    ("kubectl", "said"),
    [
        ("exec sleep 100", "does not end"),
        ("echo forbidden >&2; exit 1", "has failed: “forbidden”\n"),
        ("printf 'E1130 05:05:24 memcache.go\\nUnable to connect\\n' >&2; exit 1", "failed: “Unable to connect”\n"),
        ("exit 3", "failed: “exit code 3”\n"),
    ],
)
async def test_a_kubectl_that_fails_is_told(
    tmp_path: Path, kubectl: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_COMMAND_S", 1.0)
    with pytest.raises(CcbError, match=said):
        await engine(tmp_path, kubectl).tasks(PODS)


@pytest.mark.parametrize(
    ("job", "pod", "found"),
    [
        ("1", "pod-1\t1\t0\tRunning\t\t\t", (SiteState.RUNNING, "pod-1")),
        ("1", "pod-1\t1\t0\tRunning\t2026-01-01\t\t", (SiteState.WAITING, "")),
        ("1", "pod-1\t1\t0\tPending\t\t\t0/3 nodes are available", (SiteState.WAITING, "0/3 nodes are")),
        ("1", "", (SiteState.WAITING, "it has no pod yet: `kubectl describe jobs` may say why")),
        ("1\t\t\tSuspended\tJob suspended", "", (SiteState.WAITING, "Suspended Job suspended")),
        ("1\t\t\tFailureTarget", "", (SiteState.WAITING, "FailureTarget")),
        ("1\t7\t0,3-5", "", (SiteState.ENDED, "failed")),
        ("1\t\t\tFailureTarget Failed\tlate late", "", (SiteState.ENDED, "late")),
        ("2", "", (SiteState.CANCELLED, "is not there")),
    ],
    ids=[
        *("runs", "is taken away", "waits for a node", "over its quota", "suspended by Kueue"),
        *("about to fail", "index failed", "job failed", "no job"),
    ],
)
async def test_a_task_is_what_its_index_and_its_pod_are(
    tmp_path: Path, job: str, pod: str, found: tuple[SiteState, str]
) -> None:
    (tmp_path / "jobs").write_text(f"{job}\n")
    (tmp_path / "pods").write_text(f"{pod}\n")
    made = engine(tmp_path, f'cat "{tmp_path}/$3"')
    (task,) = (await made.tasks(PODS)).values()
    assert (task.state, found[1] in task.said) == (found[0], True)
    if task.state is not SiteState.RUNNING:
        with pytest.raises(CcbError, match="task 4 has no pod now"):
            made.way_to(4, task)
    else:
        assert made.way_to(4, task).transport == "kubectl --context=c exec -i pod/pod-1 --container=ccb --"
