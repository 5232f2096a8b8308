"""What Ray's own logs say of its cluster: texts of Ray 2.60."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hangbisect.base.proc import Stat
from hangbisect.base.process_facts import Kernel, ResourceHolder, RetriedTask, Syscall
from hangbisect.evidence import ray_cluster
from hangbisect.evidence.ray_cluster import (
    find_logs,
    parse_cluster_status,
    parse_deaths,
    parse_holders,
    parse_node,
    parse_retries,
    read_ray_cluster,
)

STATUS = """
2026-11-26 10:43:21,774	INFO autoscaler.py:408 --
======== Autoscaler status: 2026-11-26 10:43:21.774060 ========
Node status
---------------------------------------------------------------
Active:
 {active}
Pending:
 (no pending nodes)
Recent failures:
 (no failures)

Resources
---------------------------------------------------------------
Total Usage:
 0.0/4.0 CPU
 0.0/1.0 GPU
 0B/13.78GiB memory
 0B/5.91GiB object_store_memory

From request_resources:
 (none)
Pending Demands:
 {demands}
2026-11-26 10:43:21,775	INFO autoscaler.py:469 -- The autoscaler took 0.001 seconds
"""
DEMAND = "{'GPU': 1.0, 'CPU': 1.0} * 2 (PACK): 1+ pending placement groups"
NODE = (
    "NodeManager:\nNode ID: f0e6\nNode name: 192.0.2.2\nInitialConfigResources: "
    "{node:192.0.2.2: 1, node:__internal_head__: 1, CPU: 4, GPU: 1, memory: 1.4799e+10}\n"
)
EXIT = (
    "[2026-11-26 10:51:34,517 W 1 1] (gcs_server) gcs_worker_manager.cc:70: Reporting worker exit, "
    "worker id = {worker}, node id = 6917, address = 192.0.2.2, exit_type = {kind}, exit_detail = "
    "Worker unexpectedly exits with a connection error code 2. End of file. Some common causes "
    "include: (1) the process was killed by the OOM killer\n"
    "[2026-11-26 10:51:34,518 I 1 1] (gcs_server) gcs_actor_manager.cc:1515: Actor is failed on "
    "worker {worker} at node 6917, need_reschedule = 1, death context type = ActorDiedErrorContext,"
    " remaining_restarts = 0 job_id={job} actor_id=c4e4\n"
)


def test_the_last_status_tells_what_is_asked_for_and_what_there_is() -> None:
    none = STATUS.format(active="1 node_f0e6", demands="(no resource demands)")
    found = parse_cluster_status(none + STATUS.format(active="1 node_f0e6", demands=DEMAND))
    assert found.demands == (DEMAND,)
    assert found.nodes == 1
    assert found.usage[:2] == (("CPU", "0.0", "4.0"), ("GPU", "0.0", "1.0"))
    assert parse_cluster_status(none).demands == ()
    assert (
        parse_cluster_status(STATUS.format(active="3 gpu_node\n 1 head", demands=DEMAND)).nodes == 4
    )


def test_a_log_without_a_status_tells_nothing() -> None:
    found = parse_cluster_status("no space left on device")
    assert (found.nodes, found.demands, found.usage) == (None, (), ())


def test_a_raylet_tells_the_name_of_its_node_and_its_resources() -> None:
    assert parse_node(NODE) == (
        "192.0.2.2",
        (("CPU", 4.0), ("GPU", 1.0), ("memory", 14799000000.0)),
    )
    assert parse_node("") == ("", ())


def test_workers_of_the_job_that_were_not_told_to_end_died() -> None:
    text = EXIT.format(worker="94e8", kind="SYSTEM_ERROR", job="01000000")
    text += EXIT.format(worker="aaaa", kind="INTENDED_USER_EXIT", job="01000000")
    text += EXIT.format(worker="bbbb", kind="SYSTEM_ERROR", job="02000000")
    (dead,) = parse_deaths(text, "01000000")
    assert (dead.worker, dead.kind) == ("94e8", "SYSTEM_ERROR")
    assert dead.detail == "Worker unexpectedly exits with a connection error code 2. End of file."
    assert [one.worker for one in parse_deaths(text)] == ["94e8", "bbbb"]


def test_a_process_of_ray_is_told_by_its_log() -> None:
    folder = "/tmp/ray/session_2026-11-26/logs"
    driver = f"{folder}/python-core-driver-01000000{'f' * 48}_31924.log"
    assert find_logs({3: "socket:[1]", 15: driver}) == (folder, "01000000")
    worker = f"{folder}/python-core-worker-{'27a4441a' * 7}_22549.log"
    assert find_logs({15: worker}) == (folder, "")
    assert find_logs({1: "/tmp/out.txt"}) == ("", "")


def test_all_is_read_from_the_folder_of_the_session(tmp_path: Path) -> None:
    import os

    (tmp_path / "logs").mkdir()
    logs = tmp_path / "logs"
    (logs / "monitor.log").write_text(STATUS.format(active="1 node_f0e6", demands=DEMAND))
    (logs / "debug_state.txt").write_text(NODE)
    died = EXIT.format(worker="94e8", kind="SYSTEM_ERROR", job="01000000")
    (logs / "gcs_server.out").write_text(died)
    (logs / "worker-94e8-01000000-13087.out").write_text(":actor_name:Trainer\nhello\n")
    link = str(logs / f"python-core-driver-01000000{'f' * 48}_1.log")
    found = read_ray_cluster(os.getpid(), {9: link})
    assert found is not None
    assert (found.node, found.demands) == ("192.0.2.2", (DEMAND,))
    assert [(one.pid, one.actor) for one in found.dead] == [(13087, "Trainer")]
    assert read_ray_cluster(os.getpid(), {9: "/tmp/out.txt"}) is None


def test_a_worker_of_ray_without_work_is_left_out_unless_it_is_in_a_hook(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = {201: "epoll_wait", 202: "recvfrom", 203: "futex"}

    def read_thread(pid: int, tid: int, missing: list[str]) -> Kernel:
        return Kernel(tid, "ray::IDLE", "S", "", Syscall(0, calls[pid], ()))

    service = Stat("gcs_server", "S", 1, 0, 0, 5)
    monkeypatch.setattr(ray_cluster, "read_stat", lambda pid: service)
    monkeypatch.setattr(ray_cluster, "words_of", lambda pid: ["ray::IDLE"])
    monkeypatch.setattr(ray_cluster, "read_thread", read_thread)
    assert ray_cluster.leave_out_services(calls) == [202]


IN_USE = (
    "Number of spilled unschedulable leases: 0\nResource usage {\n"
    "    - (language=PYTHON actor_or_taskEnvironment.__init__ pid=6913 worker_id=785d): "
    "{CPU_group_00d9f6ce0ba0fa90671256289e7401000000: 1, "
    "bundle_group_00d9f6ce0ba0fa90671256289e7401000000: 0.001}\n"
    "    - (language=PYTHON actor_or_taskTrainer.__init__ pid=6830 worker_id=bbc6): "
    "{CPU_group_0_00d9f6ce0ba0fa90671256289e7401000000: 1, GPU: 2, "
    "CPU_group_00d9f6ce0ba0fa90671256289e7401000000: 1}\n}\n"
    "Backlog Size per scheduling descriptor :{workerId: num backlogs}:\n"
)


def test_a_raylet_tells_who_has_its_resources() -> None:
    assert parse_holders(NODE + IN_USE) == (
        ResourceHolder(6913, "Environment", (("CPU", 1.0),)),
        ResourceHolder(6830, "Trainer", (("CPU", 1.0), ("GPU", 2.0))),
    )
    assert parse_holders(NODE) == ()


def again(name: str, task: str, number: int) -> str:
    return (
        "[2026-11-28 22:29:57,566 I 1 9] core_worker.cc:5147: Will resubmit task after a 0ms "
        "delay: "
        "Type=NORMAL_TASK, Resources: {disk: 1, CPU: 1, }, function_descriptor="
        f"{{function_name={name}}}, task_id={task}, task_name={name}, job_id=01000000, "
        f"max_retries=-1, depth=1, attempt_number={number}, dependencies={{}}\n"
    )


def test_a_driver_tells_which_tasks_it_has_handed_in_again_and_why() -> None:
    lost = (
        "[2026-11-28 22:29:05,559 I 1 9] task_manager.cc:526: Resubmitting task that produced lost "
        "plasma object, attempt #0: Type=NORMAL_TASK, Resources: {disk: 1, CPU: 1, }, "
        "function_descriptor={}, task_id=c267, task_name=load\n"
    )
    text = again("preprocess", "b151", 1) + again("preprocess", "b151", 2) + lost
    assert parse_retries(text + again("load", "c267", 1)) == (
        RetriedTask("preprocess", 2, False, "disk: 1, CPU: 1"),
        RetriedTask("load", 1, True, "disk: 1, CPU: 1"),
    )


def test_an_actor_that_may_be_restarted_comes_again() -> None:
    text = EXIT.format(worker="94e8", kind="SYSTEM_ERROR", job="0100")
    (dead,) = parse_deaths(text)
    assert not dead.comes_again
    (again,) = parse_deaths(text.replace("remaining_restarts = 0", "remaining_restarts = -1"))
    assert again.comes_again


def test_while_a_driver_waits_in_ray_init_the_services_that_it_starts_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    ticks = os.sysconf("SC_CLK_TCK")
    words = {100: ["python", "train.py"], 201: ["/x/ray/core/src/ray/raylet/raylet"]}
    links: dict[int, str] = {}

    def leave_out(age: float) -> list[int]:
        stats = {
            100: Stat("python", "S", 1, 0, 0, 5),
            201: Stat("raylet", "S", 100, 0, 0, int((now - age) * ticks)),
        }
        monkeypatch.setattr(ray_cluster, "read_stat", stats.get)
        return ray_cluster.leave_out_services(stats)

    monkeypatch.setattr(ray_cluster, "words_of", lambda pid: words[pid])
    monkeypatch.setattr(ray_cluster, "read_links", lambda pid: links)
    assert leave_out(5.0) == [100, 201]
    assert leave_out(300.0) == [100]  # it is not there by now
    links[7] = f"/tmp/ray/session_1/logs/python-core-driver-01000000{'f' * 48}_100.log"
    assert leave_out(5.0) == [100]  # the driver has joined
    links.clear()
    words[100] = ["python", "/usr/bin/ray", "start", "--block"]
    assert leave_out(5.0) == []  # it serves the cluster too
