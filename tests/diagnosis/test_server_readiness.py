"""A server that is ready is quiet; and what its processes are called."""

from __future__ import annotations

from dataclasses import replace

from hangbisect.base.process_facts import Look, Socket
from hangbisect.base.rank_facts import RankFacts
from hangbisect.diagnosis.server_roles import find_roles, is_ready, put_roles

from .made_up import look, rank

QUEUE = "MessageQueue.acquire_read SP/vllm/distributed/device_communicators/shm_broadcast.py:118"
LOOP = "WorkerProc.worker_busy_loop SP/vllm/v1/executor/multiproc_executor.py:160"
TAKES = (
    "Queue.get STD/queue.py:171",
    "EngineCoreProc._process_input_queue SP/vllm/v1/engine/core.py:9",
)
INITIALIZES = (QUEUE, "EngineCore._initialize_kv_caches SP/vllm/v1/engine/core.py:22")
LISTENS = Socket(1, "tcp", "127.0.0.1:8000", state="LISTEN")
API = ("python", "-m", "vllm.entrypoints.openai.api_server")


def worker(number: int, *frames: str) -> Look:
    return look(*(frames or (QUEUE, LOOP)), command=(f"VLLM::Worker_TP{number}",))


def server(
    workers: tuple[Look, ...] = (worker(0), worker(1)),
    engine: tuple[str, ...] = TAKES,
    sockets: tuple[Socket, ...] = (LISTENS,),
) -> list[RankFacts]:
    """Return the ranks of a server of vLLM, beside the first of which are engine and API server."""
    beside = (
        (look(*engine, pid=90, command=("VLLM::EngineCore_DP0",)),),
        (look("run STD/asyncio/runners.py:1", pid=80, command=API, sockets=sockets),),
    )
    first, *others = (rank(number, one) for number, one in enumerate(workers))
    return [replace(first, children=beside), *others]


def test_a_server_is_ready_where_all_of_it_waits_for_requests_and_it_listens() -> None:
    assert is_ready(server())


def test_it_is_not_where_a_worker_is_at_work_for_the_engine() -> None:
    work = worker(1, "profile SP/vllm/v1/worker/gpu_worker.py:33", LOOP)
    assert not is_ready(server(workers=(worker(0), work)))
    loads = worker(1, "load_model SP/vllm/v1/worker/gpu_worker.py:33")
    assert not is_ready(server(workers=(worker(0), loads)))


def test_nor_where_the_engine_has_not_come_so_far_or_nobody_listens() -> None:
    assert not is_ready(server(engine=INITIALIZES))
    assert not is_ready(server(sockets=()))


def test_nor_any_other_job() -> None:
    assert not is_ready([rank(0, look("main train.py:3"))])
    assert not is_ready([])


def test_schedulers_of_sglang_wait_for_one_another_in_their_loop() -> None:
    loop = "Scheduler.event_loop_normal SP/sglang/srt/managers/scheduler.py:43"
    hears = ("broadcast SP/torch/distributed/distributed_c10d.py:9", loop)
    work = ("Scheduler.run_batch SP/sglang/srt/managers/scheduler.py:80", loop)
    main = look("f SP/x.py:1", command=("python", "-m", "sglang.launch_server"), sockets=(LISTENS,))

    def ready(*frames: str) -> bool:
        one = rank(0, look(*frames, command=("sglang::scheduler_TP0",)))
        return is_ready([replace(one, children=((main,),))])

    assert ready(*hears)
    assert not ready(*work)


def test_ranks_are_called_by_their_roles() -> None:
    roles = find_roles(server())
    assert roles == {0: "Worker_TP0 of EngineCore_DP0", 1: "Worker_TP1 of EngineCore_DP0"}
    said = put_roles("rank 1 waits for rank 10, ranks 0-1 and rank 0", roles)
    assert said == (
        "Worker_TP1 of EngineCore_DP0 waits for rank 10, ranks 0-1 and Worker_TP0 of EngineCore_DP0"
    )


def test_one_that_died_is_called_as_the_others_are() -> None:
    first = rank(0, look("f SP/x.py:1", command=("sglang::scheduler_TP0",)))
    dead = rank(1, alive=False, left=True, status=-9)
    assert find_roles([first, dead]) == {0: "scheduler TP0", 1: "scheduler TP1"}


def test_any_other_job_has_none() -> None:
    assert find_roles([rank(0, look("main train.py:3"))]) == {}
    assert put_roles("rank 0", {}) == "rank 0"


def test_workers_that_do_not_know_their_place_yet_are_told_apart_by_their_numbers() -> None:
    workers = [rank(n, look("wait x.py:1", command=("VLLM::Worker",))) for n in (0, 1)]
    assert find_roles(workers) == {0: "Worker 0", 1: "Worker 1"}
    placed = [rank(n, look("wait x.py:1", command=(f"VLLM::Worker_TP{n}",))) for n in (0, 1)]
    assert find_roles(placed) == {0: "Worker_TP0", 1: "Worker_TP1"}
