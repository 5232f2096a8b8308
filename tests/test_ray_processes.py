"""Which processes of Ray run code of a job, by their command lines."""

from __future__ import annotations

import pytest
from hangbisect.base.process_roles import find_actor, is_service, is_worker, runs_method

RAY = "/env/lib/python3.11/site-packages/ray"
SERVICES = (
    [f"{RAY}/core/src/ray/gcs/gcs_server", "--log_dir=/tmp/ray/session_1/logs"],
    [f"{RAY}/core/src/ray/raylet/raylet", "--raylet_socket_name=/tmp/ray/x"],
    ["/env/bin/python", "-u", f"{RAY}/autoscaler/_private/monitor.py", "--logs-dir=/tmp"],
    ["/env/bin/python", f"{RAY}/dashboard/dashboard.py", "--host=127.0.0.1"],
    ["/env/bin/python", "-u", f"{RAY}/_private/log_monitor.py"],
    ["ray::DashboardAgent", ""],
    ["ray::RuntimeEnvAgent"],
    ["ray::IDLE            "],
    ["ray::IDLE_SpillWorker"],
    ["ray::PreemptionWatcher.run"],
    ["ray-dashboard-NodeHead-0"],
    ["/env/bin/python", "/env/bin/ray", "start", "--head", "--block"],
    ["/env/bin/python", "-m", "ray.scripts.scripts", "start", "--address=n1:6379"],
)
OTHERS: tuple[list[str], ...] = (
    ["python", "train.py"],
    ["ray::Trainer.setup   "],
    ["ray::Idle"],
    ["ray::RayTrainWorker"],
    ["/env/bin/python", f"{RAY}/_private/workers/default_worker.py", "--node-ip-address=x"],
    ["python", "/home/ada/ray/train.py"],
    ["/env/bin/python", "/env/bin/ray", "job", "submit", "--", "python", "train.py"],
    ["python", "train.py", "start", "ray"],
    [],
)


@pytest.mark.parametrize("words", SERVICES)
def test_what_serves_the_cluster_runs_no_code_of_the_job(words: list[str]) -> None:
    assert is_service(words)
    assert not is_worker(words)


@pytest.mark.parametrize("words", OTHERS)
def test_drivers_and_actors_are_no_services(words: list[str]) -> None:
    assert not is_service(words)


def test_a_title_tells_the_class_and_whether_it_is_in_a_method() -> None:
    assert find_actor(["ray::Trainer.setup   "]) == "Trainer.setup"
    assert find_actor(["ray::Idle"]) == "Idle"
    assert find_actor(["ray::tokenize()"]) == "tokenize"
    verl = ["ray::WorkerDict.actor_rollout_init_model"]
    assert find_actor(verl) == "WorkerDict.actor_rollout_init_model"
    assert find_actor(["ray::vLLMHttpServer.launch_server"]) == "vLLMHttpServer.launch_server"
    assert find_actor(["ray::RolloutRayActor"]) == "RolloutRayActor"  # of OpenRLHF
    assert find_actor(["python", "train.py"]) == ""
    assert runs_method("Trainer.setup")
    assert not runs_method("Idle")


def test_a_worker_is_one_before_it_has_a_title() -> None:
    words = ["/env/bin/python", f"{RAY}/_private/workers/default_worker.py"]
    assert is_worker(words)
    assert find_actor(words) == ""
