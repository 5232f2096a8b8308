"""The launcher of Kubernetes: its manifest by the schemas of the API, jobs by a stand-in for
kubectl (kubernetes_here.py), whose pods are real processes, and really meet under torchrun.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import kubernetes_validate
import pytest
from hangbisect.trials import matrix

from .kubernetes_here import Cluster, make_cluster

LAUNCHER = str(matrix.find_launcher("kubernetes"))
SCRIPTS = str(Path(sys.executable).parent)
LIMIT = 120.0
# A stand-in for torchrun where ranks need not meet: a rank a pod, with its number.
TORCHRUN = """#!/bin/sh
while case "$1" in --node-rank=*) RANK="${1#*=}" ;; --*) ;; *) false ;; esac; do shift; done
export RANK
exec python3 "$@"
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return make_cluster(tmp_path)


def environ_of(cluster: Cluster, **variables: str) -> dict[str, str]:
    path = f"{cluster.path}:{SCRIPTS}:{os.environ['PATH']}"
    return {"PATH": path, "IMAGE": "me/train:1", "NNODES": "2", "NPROC_PER_NODE": "1", **variables}


def without_torch(cluster: Cluster) -> None:
    (cluster.path / "torchrun").write_text(TORCHRUN)
    (cluster.path / "torchrun").chmod(0o755)


def run(cluster: Cluster, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environ = environ_of(cluster, **variables)
    return subprocess.run(
        [LAUNCHER, *words], env=environ, capture_output=True, text=True, timeout=LIMIT
    )


def is_over(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


# ---- the manifest --------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["1.27", kubernetes_validate.latest_version()])
def test_kubernetes_takes_the_manifest(cluster: Cluster, version: str) -> None:
    done = run(cluster, "--manifest", "train.py", "--epochs", "1", GPUS="8", SECRET="wandb")
    assert done.returncode == 0, done.stderr
    items = json.loads(done.stdout)["items"]
    assert [one["kind"] for one in items] == ["Service", "Job"]
    for one in items:
        kubernetes_validate.validate(one, version, strict=True)


def test_pods_find_the_first_by_its_name_before_it_is_ready(cluster: Cluster) -> None:
    """Without publishNotReadyAddresses a name is there once its pod is ready: after the start."""
    items = json.loads(run(cluster, "--manifest", "train.py").stdout)["items"]
    service, job = items
    name = job["metadata"]["name"]
    spec = job["spec"]["template"]["spec"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert spec["subdomain"] == service["metadata"]["name"] == name
    assert (
        service["spec"]["selector"].items() <= job["spec"]["template"]["metadata"]["labels"].items()
    )
    assert f"--master-addr={name}-0.{name}" in spec["containers"][0]["command"]


def test_a_job_has_one_try_and_shared_memory(cluster: Cluster) -> None:
    """A pod that is started once more joins ranks that wait for its earlier life; 64 MiB of shared
    memory are too few for NCCL and for DataLoader workers.
    """
    job = json.loads(run(cluster, "--manifest", "train.py").stdout)["items"][1]["spec"]
    assert job["backoffLimit"] == 0
    assert job["template"]["spec"]["restartPolicy"] == "Never"
    (mount,) = job["template"]["spec"]["containers"][0]["volumeMounts"]
    assert mount["mountPath"] == "/dev/shm"


def test_no_secret_stands_in_the_manifest(cluster: Cluster) -> None:
    variables = {"NCCL_DEBUG": "INFO", "TORCH_API_KEY": "hidden", "HOME": "/home/me"}
    shown = run(cluster, "--manifest", "train.py", SECRET="wandb", **variables).stdout
    container = json.loads(shown)["items"][1]["spec"]["template"]["spec"]["containers"][0]
    assert container["env"] == [{"name": "NCCL_DEBUG", "value": "INFO"}]
    assert container["envFrom"] == [{"secretRef": {"name": "wandb"}}]
    assert "hidden" not in shown


# ---- jobs ----------------------------------------------------------------------------------------


def test_ranks_of_two_pods_meet_and_their_lines_are_whole(cluster: Cluster, tmp_path: Path) -> None:
    script = tmp_path / "meet.py"
    script.write_text(
        "import os, sys, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "one = torch.ones(1); dist.all_reduce(one)\n"
        "print('rank', dist.get_rank(), 'of', int(one), sys.argv[1:], os.environ['OMP_WORDS'])\n"
        "sys.stdout.flush(); os._exit(0)\n"  # torch may abort as it ends, which is not asked here
    )
    done = run(cluster, str(script), "a b", "$(HOME)", OMP_WORDS="$(PATH)")
    assert done.returncode == 0, done.stdout + done.stderr
    said = sorted(line for line in done.stdout.splitlines() if line.startswith("rank"))
    assert said == [f"rank {n} of 2 ['a b', '$(HOME)'] $(PATH)" for n in (0, 1)]
    assert "is Pending: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu." in done.stderr
    assert cluster.asked()[-1].startswith("delete job/")


def test_a_pod_that_fails_is_the_status_and_ends_the_others(
    cluster: Cluster, tmp_path: Path
) -> None:
    without_torch(cluster)
    script = "import os, sys, time; print('here'); sys.stdout.flush(); "
    script += "sys.exit(7) if os.environ['RANK'] == '1' else time.sleep(600)"
    done = run(cluster, "-c", script)
    assert done.returncode == 7, done.stderr
    assert done.stdout.count("here\n") == 2
    assert all(map(is_over, cluster.pids()))


def test_a_server_that_is_away_for_a_moment_ends_nothing(cluster: Cluster) -> None:
    without_torch(cluster)
    (cluster.folder / "away").touch()
    done = run(cluster, "-c", "import sys; print(sys.argv[1])", "$$ $(RANK)")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "$$ $(RANK)\n" * 2
    assert "kubectl get: The connection to the server was refused" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_deletes_the_job(cluster: Cluster, number: signal.Signals) -> None:
    without_torch(cluster)
    started = subprocess.Popen(
        [LAUNCHER, "-c", "import time; print('up', flush=True); time.sleep(600)"],
        env=environ_of(cluster),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert started.stdout is not None
        assert started.stdout.readline() == "up\n"
        started.send_signal(number)
        assert started.wait(LIMIT) == 128 + number
    finally:
        started.kill()
        started.communicate()
    until = time.monotonic() + LIMIT
    while not all(map(is_over, cluster.pids())) and time.monotonic() < until:
        time.sleep(0.1)
    assert all(map(is_over, cluster.pids()))


def test_what_is_missing_is_one_sentence(cluster: Cluster, tmp_path: Path) -> None:
    for words, variables, status, said in (
        ((), {}, 2, "it is given no script"),
        (("train.py",), {"IMAGE": ""}, 2, "IMAGE is not set"),
        (("train.py",), {"NNODES": "two"}, 2, "NNODES=two, and it is a whole number from 1"),
        (("train.py",), {"GPUS": "-1"}, 2, "GPUS=-1, and it is a whole number from 0"),
        (("train.py",), {"PATH": SCRIPTS}, 127, "there is no kubectl in PATH"),
    ):
        done = run(cluster, *words, **variables)
        assert (done.returncode, done.stdout) == (status, "")
        assert done.stderr.startswith(f"launcher kubernetes: {said}")
        assert done.stderr.count("\n") == 1
    assert "train.py --epochs 1" in run(cluster, "--help").stdout
