"""What a process of a job of roles does, by its title or its command line: the parts of inference
servers, and Ray's actors and the processes that serve its cluster.

A server starts its ranks itself, as processes of multiprocessing, and gives each a title
(setproctitle), which overwrites its command line and its variables: vllm/utils/system_utils.py,
set_process_title; vllm/v1/executor/multiproc_executor.py, WorkerProc; sglang/srt/managers/
scheduler.py, run_scheduler_process. What was the process of an earlier server has its title still.

A worker gives itself a title with what it runs: "ray::Trainer.train" in a method, "ray::Trainer"
between two, "ray::IDLE" without an actor (ray/_private/worker.py, python/ray/_raylet.pyx).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class ServerProcess(NamedTuple):
    """What one process does in its server."""

    name: str  # "Worker_TP1", "EngineCore_DP0", "scheduler TP1"
    is_rank: bool  # it meets others of its kind in a group
    is_spawned: bool = False  # by multiprocessing in another process of the server
    numbers: tuple[tuple[str, int], ...] = ()  # of its kinds of parallelism: (("TP", 1),)

    @property
    def is_server(self) -> bool:
        """Whether it is what a person starts, and answers requests."""
        return not (self.is_rank or self.is_spawned)

    @property
    def is_engine(self) -> bool:
        """Whether it is what starts vLLM's workers, and gives them work."""
        return self.name.startswith(_ENGINE)


def is_spawned_by_server(role: ServerProcess | None, pid: int, session: int) -> bool:
    """Return whether a process, which by its title does this in a server, was started by another
    one of that server: who leads a session of its own was started as a program.
    """
    return role is not None and role.is_spawned and session != pid


class _Title(NamedTuple):
    pattern: re.Pattern[str]  # of a title; the group `at`: its numbers
    name: str
    is_rank: bool = False
    join: str = "_"  # what stands between its name and its numbers


LONGEST_NAME = 15  # bytes that the kernel keeps of a name (TASK_COMM_LEN, less its end)
_LONGEST_TITLE = 40
_ENGINE = "EngineCore"
# Titles that are longer than the kernel's name of a process, without what may follow in them.
_CUT_TITLES = {
    title[:LONGEST_NAME]: name
    for title, name in (
        (f"VLLM::{_ENGINE}", _ENGINE),
        ("VLLM::DPCoordinator", "DPCoordinator"),
        ("sglang::detokenizer", "detokenizer"),
        ("sglang::data_parallel_controller", "data parallel controller"),
    )
}
_AT = r"(?P<at>(?:_?[A-Z]+\d+)*)"
_TITLES = (
    _Title(re.compile(rf"VLLM::(?:Vllm)?Worker{_AT}$"), "Worker", True),
    _Title(re.compile(rf"VLLM::{_ENGINE}{_AT}$"), _ENGINE),
    _Title(re.compile(r"VLLM::(?:DP_?)?Coordinator(?P<at>)$"), "DPCoordinator"),
    _Title(re.compile(r"VLLM::APIServer_?(?P<at>\w*)$"), "APIServer"),
    _Title(re.compile(rf"sglang::scheduler{_AT}$"), "scheduler", True, " "),
    _Title(re.compile(r"sglang::detokenizer(?P<at>)"), "detokenizer"),
    _Title(re.compile(r"sglang::data_parallel_controller(?P<at>)"), "data parallel controller"),
)
# What a person starts, as a module or a console script: the process that answers requests.
_SERVERS = {
    "vllm.entrypoints.openai.api_server": "API server",
    "vllm.entrypoints.cli.main": "API server",
    "vllm": "API server",
    "sglang.launch_server": "SGLang's server",
    "sglang": "SGLang's server",
    "tensorrt_llm.commands.serve": "TensorRT-LLM's server",
    "trtllm-serve": "TensorRT-LLM's server",
}
# Console scripts that only serve, with the word `serve` after them or without.
_ONLY_SERVE = frozenset(["trtllm-serve"])
VLLM, SGLANG = "vLLM", "SGLang"
# At which port one listens that is told none (vllm/entrypoints/openai/cli_args.py, sglang/srt/
# server_args.py).
_DEFAULT_PORTS = {VLLM: 8000, SGLANG: 30000}
_FRAMEWORKS = {"vllm": VLLM, "sglang": SGLANG}  # by the package
# The steps by which a rank of a server is known (rank/watched/known_calls.py).
RANK_STEPS = ("server_worker", "scheduler_ready")
# How the kernel's name of such a process begins, which is the first part of its title.
SERVER_NAMES = ("VLLM::", "sglang::")
_NUMBER = re.compile(r"([A-Z]+)(\d+)")
_NUMBERED = re.compile(r"\d\W?$")
_SERVER_WORDS = 4  # of a command line, among which a program stands
# The outer kinds of parallelism first: torch numbers the ranks of a group in that order
# (vllm/distributed/parallel_state.py, initialize_model_parallel).
_ORDER = ("DP", "PP", "PCP", "TP", "ATTN", "EP", "MOE")


def find_server_process(words: Sequence[str]) -> ServerProcess | None:
    """Return what a process does in its server, by its command line; None for any other one."""
    if not words:
        return None
    title = words[0].strip()
    if "::" in title:
        for row in _TITLES:
            if found := row.pattern.match(title):
                return _read_title(row, found["at"])
        return None
    return _find_server(words)


def _read_title(row: _Title, at: str) -> ServerProcess:
    numbers = tuple((kind, int(number)) for kind, number in _NUMBER.findall(at))
    at = at.strip("_").replace("_", row.join)
    name = f"{row.name}{row.join if at else ''}{at}"
    return ServerProcess(name, row.is_rank, is_spawned=True, numbers=numbers)


def _find_server(words: Sequence[str]) -> ServerProcess | None:
    name = _SERVERS.get(_find_server_program(words))
    return ServerProcess(name, is_rank=False) if name else None


def find_framework(words: Sequence[str]) -> str:
    """Return the framework of the inference server that a command starts, "" if it starts none."""
    package = _find_server_program(words).partition(".")[0]
    return _FRAMEWORKS.get(package, "")


def find_default_port(words: Sequence[str]) -> int | None:
    """Return the port at which the server that a command starts listens if nothing is said."""
    return _DEFAULT_PORTS.get(find_framework(words))


def _find_server_program(words: Sequence[str]) -> str:
    """Return the module or the console script of a server that a command names, else ""."""
    for at, word in enumerate(words[:_SERVER_WORDS]):
        module = word if at and words[at - 1] == "-m" else ""
        script = word.rpartition("/")[2]
        if script not in _ONLY_SERVE and [*words[at + 1 : at + 2]] != ["serve"]:
            script = ""
        if (module or script) in _SERVERS:
            return module or script
    return ""


def name_server_process(words: Sequence[str], otherwise: str) -> str:
    """Return the name of a process in its server. Of any that is in none its title, where that is
    one word, or has a number at its end, and is longer than the name that the kernel keeps of it
    (`otherwise`); else that. Of one that has died the kernel's name alone is left, without numbers.
    """
    found = find_server_process(words)
    if found is not None:
        return found.name
    if not words and otherwise in _CUT_TITLES:
        return _CUT_TITLES[otherwise]
    cut = len(otherwise) == LONGEST_NAME and len(words) == 1 and words[0].startswith(otherwise)
    title = words[0].strip() if cut else ""
    is_name = " " not in title or (len(title) <= _LONGEST_TITLE and _NUMBERED.search(title))
    return title[:_LONGEST_TITLE] if cut and is_name else otherwise


def is_title(words: Sequence[str]) -> bool:
    """Return whether the command line of a process is a title that one of these programs gave it,
    and names nothing that can be started.
    """
    return bool(words) and words[0].startswith((*SERVER_NAMES, TITLE, DASK_WORKER))


def number_ranks(titles: Mapping[int, ServerProcess]) -> dict[int, int]:
    """Return the ranks of processes that one process has started, by pid: a title has a number for
    each kind of parallelism, of which those of the outer ones count first. {} where two would be
    the same.
    """
    keys = {pid: _sort_key(one) for pid, one in titles.items()}
    if len(set(keys.values())) != len(keys):
        return {}
    if all({kind for kind, _ in one.numbers} == {"TP"} for one in titles.values()):
        return {pid: dict(one.numbers)["TP"] for pid, one in titles.items()}
    return {pid: rank for rank, pid in enumerate(sorted(keys, key=lambda pid: keys[pid]))}


def _sort_key(one: ServerProcess) -> tuple[tuple[int, int], ...]:
    at = {kind: order for order, kind in enumerate(_ORDER)}
    return tuple(sorted((at.get(kind, len(at)), number) for kind, number in one.numbers))


# Ray's own folder holds all programs of it; its workers run this one.
_WORKER = re.compile(r"(?:^|/)ray/_private/workers/(?:default_worker|setup_worker)\.py$")
_SERVICE = re.compile(
    r"(?:^|/)ray/(?:core/src/ray/(?:gcs/gcs_server|raylet/raylet)$"
    r"|(?:dashboard|autoscaler|_private|util/client|experimental)/\S*\.py$)"
)
# Actors that Ray itself starts beside those of a job: they manage, and wait for nobody's data.
_MANAGERS = (
    "_AutoscalingCoordinatorActor|AutoscalingRequester|PlacementGroupCleaner|SynchronizationActor"
    "|DatasetManager|PreemptionWatcher|_StatsActor|JobSupervisor|DashboardAgent|RuntimeEnvAgent"
    "|ServeController|ProxyActor"
)
_SERVICE_TITLE = re.compile(
    rf"^(?:ray::(?:IDLE\w*|SPILL\w*|RESTORE\w*|(?:{_MANAGERS})(?:\.\w+)?)$|ray-dashboard\b)"
)
TITLE = "ray::"  # with which those of its workers begin
_MOST_WORDS = 6  # of a command line, in which a program stands: Python's own flags come before it
RAYLET = "raylet"  # as the kernel has the name of the process (comm)
# The kernel's names of processes of which one is there wherever Ray runs.
RAY_NAMES = (RAYLET, "gcs_server")
RAY_SERVICES = frozenset(RAY_NAMES)


# As a worker of Dask calls itself (distributed/nanny.py, WorkerProcess._run). Its main thread is an
# event loop, which tells the scheduler twice a second what it uses; tasks run in other threads.
DASK_WORKER = "dask worker"


def is_dask_worker(words: Sequence[str]) -> bool:
    """Return whether a process is a worker of Dask, as its title says."""
    return bool(words) and words[0].startswith(DASK_WORKER)


def is_worker_program(program: str) -> bool:
    """Return whether a Python that runs this program is to run Ray's actors or tasks."""
    return bool(_WORKER.search(program))


def is_service_program(program: str) -> bool:
    """Return whether a program serves Ray's cluster, and runs no code of the job."""
    return bool(_SERVICE.search(program)) and not is_worker_program(program)


def is_service(words: Sequence[str]) -> bool:
    """Return whether a process, by its command line, serves Ray's cluster or is a worker without
    work: it runs no code of the job, and is never a rank.
    """
    if any(is_service_program(word) for word in words[:_MOST_WORDS]) or _starts_cluster(words):
        return True
    return bool(words) and bool(_SERVICE_TITLE.match(words[0].strip()))


# With what a person starts a node of a cluster; with --block it stays above all that runs there.
_RAY_PROGRAMS = ("ray", "ray.scripts.scripts")


def _starts_cluster(words: Sequence[str]) -> bool:
    first = [word.rpartition("/")[2] for word in words[:_SERVER_WORDS]]
    at = next((n for n, word in enumerate(first) if word in _RAY_PROGRAMS), None)
    return at is not None and [*words[at + 1 : at + 2]] == ["start"]


def is_idle_worker(words: Sequence[str]) -> bool:
    """Return whether a worker of Ray has no task yet, as its title says."""
    return bool(words) and words[0].strip() == f"{TITLE}IDLE"


def is_worker(words: Sequence[str]) -> bool:
    """Return whether a process, by its command line, runs an actor or a task, or is about to."""
    return bool(find_actor(words)) or any(is_worker_program(one) for one in words[:_MOST_WORDS])


def find_actor(words: Sequence[str]) -> str:
    """Return what a worker of Ray runs, as its title says: "Trainer.train", "Trainer" between two
    methods; "" for any other process.
    """
    title = words[0].strip() if words else ""
    if not title.startswith(TITLE) or _SERVICE_TITLE.match(title):
        return ""
    return title.removeprefix(TITLE).removesuffix("()")


def runs_method(actor: str) -> bool:
    """Return whether an actor, as `find_actor` has it, is in a method of its own."""
    return "." in actor
