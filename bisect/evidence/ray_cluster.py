"""What Ray's own logs say of its cluster: what is asked for and cannot be had, what there is, and
which workers died.

Every process of Ray has its log open, /tmp/ray/session_*/logs/python-core-driver-*.log or
python-core-worker-*.log; the others lie beside it. The head's autoscaler writes what `ray status`
prints to monitor.log every five seconds, the GCS each end of a worker to gcs_server.out, and each
raylet the resources of its node to debug_state.txt. Nothing is asked of a process of Ray. Whatever
opens these files may block with their disk: call it with a limit.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence

from ..base import process_roles
from ..base.proc import Stat, list_pids, read_stat
from ..base.process_facts import DeadWorker, RayCluster, ResourceHolder, RetriedTask
from .descriptors import read_links
from .kernel import read_thread
from .process import words_of

_CORE_LOG = re.compile(r"^(.*/logs)/python-core-(driver|worker)-([0-9a-f]{8})?[0-9a-f]*_\d+\.log$")
# Where a worker's output goes: its id, the job that it works for, and its pid.
_OUTPUT = re.compile(r"/logs/worker-[0-9a-f]+-([0-9a-f]{8})-\d+\.(?:out|err)$")
_NO_JOB = "f" * 8
_DRIVER_LOG = re.compile(r"^python-core-driver-[0-9a-f]+_(\d{1,7})\.log$")
_TAIL = 1 << 16  # bytes: a status has one or two thousand
_DEATHS_TAIL = 1 << 17
_STATE = 1 << 18  # what a raylet tells of its node comes before what it counts
_MOST_HOLDERS = 64
_MOST_DEMANDS = 8
_MOST_DEATHS = 16
_STATUS = re.compile(
    r"=+ Autoscaler status: [^\n]*=+\n(.*?)(?=\n=+ Autoscaler status|\Z)", re.DOTALL
)
_USAGE = re.compile(r"^ ([\d.]+[KMGT]?i?B?)/([\d.]+[KMGT]?i?B?) (\S+)", re.MULTILINE)
_DEMAND = re.compile(r"^ (\{.*\}.*: \d+\+ pending .*)$", re.MULTILINE)
_ACTIVE = re.compile(r"^ (\d+) \S+$", re.MULTILINE)
_NODE = re.compile(r"^Node name: (\S+)$", re.MULTILINE)
_HAS = re.compile(r"^InitialConfigResources: \{(.*)\}$", re.MULTILINE)
_EXIT = re.compile(
    r"Reporting worker exit, worker id = ([0-9a-f]+), .*?exit_type = (\w+), exit_detail = ([^\n]*)"
)
_IN_USE = re.compile(r"^Resource usage \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_HOLDER = re.compile(r"actor_or_task(\S*) pid=(\d+) worker_id=\w+\): \{([^}]*)\}")
# As Ray names the resources of a placement group, and of one bundle of it.
_OF_A_GROUP = re.compile(r"_group_(?:\d+_)?[0-9a-f]{32,}$")
_LOST = re.compile(r"Resubmitting task that produced lost plasma object.*?, task_id=([0-9a-f]+)")
_AGAIN = re.compile(
    r"Will resubmit task after.*?Resources: \{([^}]*)\}.*? task_id=([0-9a-f]+), task_name=(\S+), "
    r".*?attempt_number=(\d+)"
)
_FAILED = re.compile(
    r"Actor is failed on worker ([0-9a-f]+) .*?(?:remaining_restarts = (-?\d+) )?job_id=([0-9a-f]+)"
)
# How a worker ends that was told to, or whose own code raised: who waits for it is told.
_EXPECTED = ("INTENDED_USER_EXIT", "INTENDED_SYSTEM_EXIT", "USER_ERROR")


def leave_out_services(pids: Iterable[int]) -> list[int]:
    """Return the pids without those that serve a cluster of Ray (raylet, gcs_server, agents): they
    run no code of the job, move all the time, and what they do says nothing of it; unless their
    driver waits in ray.init until they are there, for a minute. A job without Ray costs a read of
    each process's name.
    """
    pids = list(pids)
    stats = {pid: found for pid in pids if (found := read_stat(pid)) is not None}
    serves = [one for one in stats.values() if one.comm in process_roles.RAY_NAMES]
    if not serves:
        return pids
    if any(_is_starting(one) for one in serves):
        return [pid for pid in pids if not process_roles.is_idle_worker(words_of(pid))]
    return [pid for pid in pids if _runs_job_code(pid, words_of(pid))]


_STARTS = 60.0  # seconds for a cluster to start on a busy machine
_TICKS = os.sysconf("SC_CLK_TCK")


def _is_starting(service: Stat) -> bool:
    """Return whether a process of a cluster is young, and its driver, which has started it, has not
    joined the cluster yet: the log of that is opened at the end of ray.init.
    """
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - service.started / _TICKS
    if age > _STARTS:
        return False
    try:
        links = read_links(service.ppid)
    except OSError:
        return False
    is_driver = not any(os.path.basename(word) == "ray" for word in words_of(service.ppid)[:3])
    return is_driver and not find_logs(links)[0]


# In which a worker of Ray waits for its first task (boost's loop, and a lock of the core worker).
_WAITS_OF_IDLE_WORKERS = frozenset(["epoll_wait", "epoll_pwait", "epoll_pwait2", "futex", ""])


def _runs_job_code(pid: int, words: Sequence[str]) -> bool:
    """Return whether a process is to run code of the job's: no service, nor a worker of Ray without
    work, unless that one is in a hook of the job before its first task, by its system call
    (ray/_private/workers/default_worker.py).
    """
    if not process_roles.is_service(words):
        return True
    if not process_roles.is_idle_worker(words):
        return False
    main = read_thread(pid, pid, [])
    call = main.syscall if main is not None else None
    return call is not None and call.name not in _WAITS_OF_IDLE_WORKERS


def find_logs(links: Mapping[int, str]) -> tuple[str, str]:
    """Return the folder of the logs of the session that a process of Ray belongs to, and the job
    that a driver is, by the files that it has open; "" for what is not there.
    """
    for path in links.values():
        if found := _CORE_LOG.match(path):
            return found[1], (found[3] or "") if found[2] == "driver" else ""
    return "", ""


def find_actors(driver: int) -> list[int]:
    """Return the processes of this machine that run actors or tasks of a driver which has not
    started its cluster, so that they are not below it: by the session and the job that files have
    in their names which are open there and here. [] for any other process.

    A worker that Ray has started in advance has no job in its names: it is this driver's where the
    session has no other one here.
    """
    folder, job = _find_logs_of(driver)
    if not job:
        return []
    jobs = {job, _NO_JOB} if find_drivers(folder) == [driver] else {job}
    found = []
    for pid in list_pids():
        about = read_stat(pid)
        if about is None or not about.comm.startswith("ray::") or about.state in "ZX":
            continue
        try:
            links = read_links(pid)
        except OSError:
            continue
        output = (_OUTPUT.search(path) for path in links.values())
        of_job = {one[1] for one in output if one is not None}
        if find_logs(links)[0] == folder and of_job & jobs:
            found.append(pid)
    return found


def find_drivers(folder: str) -> list[int]:
    """Return the drivers of a session that live on this machine, by the logs in its `folder`."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    found = [int(one[1]) for name in names if (one := _DRIVER_LOG.match(name))]
    return sorted(pid for pid in found if _find_logs_of(pid)[0] == folder)


def find_driver(actor: int) -> int | None:
    """Return the driver of an actor's session, None where none or several live on this machine."""
    drivers = find_drivers(_find_logs_of(actor)[0])
    return drivers[0] if len(drivers) == 1 else None


def _find_logs_of(pid: int) -> tuple[str, str]:
    try:
        return find_logs(read_links(pid))
    except OSError:
        return "", ""


def read_ray_cluster(pid: int, links: Mapping[int, str]) -> RayCluster | None:
    """Return what the logs of Ray say that process `pid` belongs to, None where it is none of
    Ray's. Each process may have a root of its own. May block.
    """
    folder, job = find_logs(links)
    if not folder:
        return None
    below = f"/proc/{pid}/root{folder}"
    status = parse_cluster_status(_read_end(f"{below}/monitor.log", _TAIL))
    state = _read_start(f"{below}/debug_state.txt", _STATE)
    node, has = parse_node(state)
    log = next(path for path in links.values() if _CORE_LOG.match(path)) if job else ""
    deaths = parse_deaths(_read_end(f"{below}/gcs_server.out", _DEATHS_TAIL), job)
    return RayCluster(
        folder=folder,
        nodes=status.nodes,
        usage=status.usage,
        demands=status.demands,
        node=node,
        has=has,
        dead=tuple(_add_process(below, one) for one in deaths),
        holders=parse_holders(state),
        retried=parse_retries(_read_end(f"/proc/{pid}/root{log}", _DEATHS_TAIL)) if log else (),
    )


def parse_cluster_status(text: str) -> RayCluster:
    """Return the last whole status that the autoscaler wrote."""
    found = _STATUS.findall(text)
    last: str = found[-1] if found else ""
    active = last.partition("Active:")[2].partition("Pending:")[0]
    return RayCluster(
        nodes=sum(map(int, _ACTIVE.findall(active))) if active else None,
        usage=tuple((name, used, all_of) for used, all_of, name in _USAGE.findall(last)),
        demands=tuple(_DEMAND.findall(last)[:_MOST_DEMANDS]),
    )


def parse_node(text: str) -> tuple[str, tuple[tuple[str, float], ...]]:
    """Return the name of a node and its resources, by what its raylet wrote of itself."""
    node, has = _NODE.search(text), _HAS.search(text)
    pairs = (one.rpartition(": ") for one in has[1].split(", ")) if has else ()
    found = []
    for name, _, amount in pairs:
        try:
            if not name.startswith("node:"):
                found.append((name, float(amount)))
        except ValueError:
            continue
    return node[1] if node else "", tuple(sorted(found))


def parse_holders(text: str) -> tuple[ResourceHolder, ...]:
    """Return the workers that have resources of a node, by what its raylet wrote of itself in the
    last ten seconds; a resource of a placement group counts once, by its plain name.
    """
    found = []
    section = _IN_USE.search(text)
    for name, pid, inside in _HOLDER.findall(section[1] if section else ""):
        resources: dict[str, float] = {}
        for one in inside.split(", "):
            resource, _, amount = one.rpartition(": ")
            resource = _OF_A_GROUP.sub("", resource)
            with contextlib.suppress(ValueError):
                if resource != "bundle":
                    resources[resource] = max(resources.get(resource, 0.0), float(amount))
        if resources:
            plain = name.removesuffix(".__init__").removesuffix("()")
            found.append(ResourceHolder(int(pid), plain, tuple(sorted(resources.items()))))
    return tuple(found[:_MOST_HOLDERS])


def parse_retries(text: str) -> tuple[RetriedTask, ...]:
    """Return the tasks that a driver has handed in again, by its log (core_worker.cc), each once,
    with the number of its last attempt.
    """
    lost = {*_LOST.findall(text)}
    found: dict[str, RetriedTask] = {}
    for resources, task, name, number in _AGAIN.findall(text):
        asked = resources.strip(" ,")
        found[task] = RetriedTask(name, int(number), task in lost, asked)
    return tuple(found.values())[-_MOST_DEATHS:]


def parse_deaths(text: str, job: str = "") -> tuple[DeadWorker, ...]:
    """Return the workers of actors that ended and were not told to; of one `job` where that is
    known. The last ones, in their order.
    """
    failed = {
        worker: left not in ("", "0")
        for worker, left, of in _FAILED.findall(text)
        if not job or of == job
    }
    found = [
        DeadWorker(
            worker, kind, detail.partition(" Some common causes")[0], comes_again=failed[worker]
        )
        for worker, kind, detail in _EXIT.findall(text)
        if worker in failed and kind not in _EXPECTED
    ]
    return tuple(found[-_MOST_DEATHS:])


def _add_process(folder: str, one: DeadWorker) -> DeadWorker:
    """Return a dead worker with its pid and the name of its actor: the files that its output went
    to have the one in their names, and the other on their first lines.
    """
    try:
        names = [name for name in os.listdir(folder) if name.startswith(f"worker-{one.worker}-")]
    except OSError:
        names = []
    pid, actor = one.pid, one.actor
    for name in sorted(names):
        end = name.rpartition("-")[2].partition(".")[0]
        pid = int(end) if end.isascii() and end.isdigit() else pid
        told = re.search(r"^:actor_name:(.+)$", _read_start(f"{folder}/{name}", 4096), re.MULTILINE)
        actor = told[1].strip() if told else actor
    return DeadWorker(one.worker, one.kind, one.detail, pid, actor, one.comes_again)


def _read_start(path: str, size: int) -> str:
    return _read(path, size, at_end=False)


def _read_end(path: str, size: int) -> str:
    return _read(path, size, at_end=True)


def _read(path: str, size: int, at_end: bool) -> str:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if at_end:
                file.seek(max(0, file.seek(0, os.SEEK_END) - size))
            return file.read(size).decode(errors="replace")
    except (OSError, ValueError):
        return ""
