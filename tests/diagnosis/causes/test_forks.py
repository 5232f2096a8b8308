"""Forks of processes that have threads."""

from __future__ import annotations

from dataclasses import replace

from hangbisect.base.process_facts import Look

from ..made_up import held, job, look
from .scenes import Facts, Shows, causes_of
from .seen import (
    FOREVER,
    LIBC,
    LOADER,
    LOCK,
    SHARED,
    TIMED,
    TORCH,
    beside,
    first,
    native,
    with_futex,
    worker,
)

TOKENIZERS = "/venv/lib/python3.11/site-packages/tokenizers/tokenizers.abi3.so"
ITEM = "Texts.__getitem__ data.py:8"
LATCH = "_RNvMs3_NtCsjpdOAJTRuNw_10rayon_core5latchNtB5_9LockLatch14wait_and_reset"
TOKENIZES = native(
    worker(ITEM),
    ("syscall", LIBC),
    ("_RNvMNtNtNtNtCsgHYyB3hU8Ec_3std3sys4sync7condvar5futexNtB2_7Condvar4wait", TOKENIZERS),
    (LATCH, TOKENIZERS),
)
MULTIPLIES = native(
    worker(ITEM, call="", state="R"),
    ("sched_yield", LIBC),
    ("omp_parallel_acopy", f"{TORCH}/libtorch_cpu.so"),
    ("gemm_omp_driver_v2._omp_fn.1", f"{TORCH}/libtorch_cpu.so"),
    ("GOMP_parallel", f"{TORCH}/libgomp.so.1"),
    ("at::native::addmm_impl_cpu_", f"{TORCH}/libtorch_cpu.so"),
)
RESIZES = native(
    worker(ITEM),
    ("cv::ParallelJob::execute", "/venv/lib/python3.11/site-packages/cv2/cv2.abi3.so"),
    ("cv::parallel_for_", "/venv/lib/python3.11/site-packages/cv2/cv2.abi3.so"),
)
READS = worker(
    "Condition.wait STD/threading.py:331",
    "Event.wait STD/threading.py:629",
    "sync SP/fsspec/asyn.py:94",
    "Shards.__getitem__ data.py:9",
    args=TIMED,
)
LOGS = native(worker("Cache.get cache.py:12", ITEM), *LOCK)
LOOP = (
    "EpollSelector.select STD/selectors.py:468",
    "BaseEventLoop._run_once STD/asyncio/base_events.py:1884",
    "BaseEventLoop.run_forever STD/asyncio/base_events.py:607",
    "Thread.run STD/threading.py:982",
)


def parent(child: Look, one: Look = LOADER, **environment: str) -> Facts:
    """A rank that waits for `child`."""
    return job(), [first(one, child, environment=environment), held(1)]


def tokenizers_after_fork() -> Facts:
    return parent(TOKENIZES, TOKENIZERS_PARALLELISM="true")


def rust_pool_after_fork() -> Facts:
    library = "/venv/lib/python3.11/site-packages/polars/polars.abi3.so"
    return parent(native(worker(ITEM), ("syscall", LIBC), (LATCH, library)))


def openmp_after_fork() -> Facts:
    return parent(MULTIPLIES, beside(LOADER, ("QueueFeederThread", ("Queue._feed q.py:2",))))


def opencv_after_fork() -> Facts:
    return parent(RESIZES)


def thread_lost_by_fork() -> Facts:
    return parent(READS, beside(LOADER, ("fsspecIO", LOOP), call="epoll_wait"))


def lock_after_fork() -> Facts:
    return parent(LOGS)


SHOWS: Shows = {
    "tokenizers-after-fork": tokenizers_after_fork,
    "rust-pool-after-fork": rust_pool_after_fork,
    "openmp-after-fork": openmp_after_fork,
    "opencv-after-fork": opencv_after_fork,
    "thread-lost-by-fork": thread_lost_by_fork,
    "lock-after-fork": lock_after_fork,
}
OF_FORKS = frozenset(SHOWS)


def test_each_is_sure_by_two_facts() -> None:
    sure = {"tokenizers-after-fork", "rust-pool-after-fork", "thread-lost-by-fork"}
    for name in sure | {"opencv-after-fork", "lock-after-fork"}:
        assert causes_of(SHOWS[name]())[name].agreement > 0.8, name


def test_a_tokenizer_without_its_threads_is_safe() -> None:
    assert "tokenizers-after-fork" not in causes_of(
        parent(TOKENIZES, TOKENIZERS_PARALLELISM="false")
    )


def test_a_worker_that_computes_with_openmp_is_not_hung() -> None:
    computes = native(
        worker(ITEM, call="", state="R"),
        ("at::native::(anonymous namespace)::cpublas_gemm_impl", f"{TORCH}/libtorch_cpu.so"),
        ("GOMP_parallel", f"{TORCH}/libgomp.so.1"),
    )
    assert "openmp-after-fork" not in causes_of(parent(computes))


def test_a_spawned_worker_has_copied_no_lock() -> None:
    spawned = look(
        "Cache.get cache.py:12",
        "_worker_loop SP/torch/utils/data/_utils/worker.py:374",
        "_main STD/multiprocessing/spawn.py:135",
        "spawn_main STD/multiprocessing/spawn.py:122",
        pid=300,
        ppid=100,
        name="pt_data_worker",
        args=FOREVER,
    )
    assert not OF_FORKS & set(causes_of(parent(spawned)))


def test_a_lock_that_processes_share_may_be_freed_by_another_one() -> None:
    assert "lock-after-fork" not in causes_of(parent(worker("take data.py:3", args=SHARED)))


def test_a_worker_with_threads_may_be_woken_by_one() -> None:
    busy = beside(LOGS, ("reader", ("read data.py:3", "Thread.run STD/threading.py:982")))
    assert "lock-after-fork" not in causes_of(parent(busy))


def test_an_owner_that_does_not_exist_is_a_proof_even_beside_other_threads() -> None:
    busy = beside(LOGS, ("reader", ("read data.py:3", "Thread.run STD/threading.py:982")))
    found = causes_of(parent(with_futex(busy, owner=4711, exists=False)))
    assert found["lock-after-fork"].agreement > 0.85


def test_a_wait_with_a_time_limit_ends_by_itself() -> None:
    assert "lock-after-fork" not in causes_of(parent(worker("take data.py:3", args=TIMED)))


def test_an_idle_worker_is_not_hung() -> None:
    idle = worker("Queue.get STD/multiprocessing/queues.py:113", call="poll")
    assert not OF_FORKS & set(causes_of(parent(idle)))


def test_a_rank_that_was_never_forked_has_copied_no_lock() -> None:
    waits = native(look("Cache.get cache.py:12", "<module> train.py:3", args=FOREVER), *LOCK)
    assert not OF_FORKS & set(causes_of((job(), [first(waits), held(1)])))


def test_without_native_frames_the_tokenizer_is_known_by_its_python() -> None:
    one = worker(
        "TokenizersBackend._encode_plus SP/transformers/tokenization_utils_tokenizers.py:600",
        "Texts.__getitem__ data.py:8",
    )
    found = causes_of(parent(one, TOKENIZERS_PARALLELISM="true"))
    assert found["tokenizers-after-fork"].agreement > 0.8


def test_a_thread_that_stayed_in_the_parent_is_joined_at_once() -> None:
    """After a fork Python takes the threads of the parent for ended (threading._after_fork): who
    is in join() waits for a thread that its own process started, here one with a full pipe.
    """
    exits = worker(
        "Thread._wait_for_tstate_lock STD/threading.py:1167",
        "Thread.join STD/threading.py:1147",
        "Queue._finalize_join STD/multiprocessing/queues.py:217",
        "_exit_function STD/multiprocessing/util.py:360",
    )
    feeder = ("QueueFeederThread", ("Queue._feed STD/multiprocessing/queues.py:270",))
    found = causes_of(parent(native(beside(exits, feeder), *LOCK)))
    assert not {"thread-lost-by-fork", "lock-after-fork"} & {*found}
    assert "thread-lost-by-fork" in causes_of(thread_lost_by_fork())


def test_who_is_at_a_barrier_of_processes_waits_for_no_thread() -> None:
    """Multiprocessing's Barrier is on that of threads, and another process lets it go."""
    meets = worker(
        "Condition.wait STD/multiprocessing/synchronize.py:268",
        "Condition.wait_for STD/multiprocessing/synchronize.py:320",
        "Barrier._wait STD/threading.py:732",
        "Barrier.wait STD/threading.py:697",
        "train train.py:19",
    )
    assert "thread-lost-by-fork" not in causes_of(parent(meets))


def test_what_runs_between_fork_and_exec_has_the_locks_of_its_parent() -> None:
    start = ("Popen.__init__ STD/subprocess.py:1026", "run STD/subprocess.py:548", "pack t.py:42")
    waits = look(
        "Journal.note t.py:23", "prepare t.py:39", "Popen._execute_child STD/subprocess.py:1883",
        *start, call="futex", wchan="futex_do_wait", args=FOREVER,
    )  # fmt: skip
    child = replace(native(waits, *LOCK), pid=4711)
    reads = look(
        "Popen._execute_child STD/subprocess.py:1906", *start, call="read", wchan="pipe_read"
    )
    writes = ("sleep t.py:27", "Journal.note t.py:27", "report t.py:33")
    found = causes_of(parent(child, beside(reads, ("reporter", writes))))
    assert "lock-after-fork" in found
    assert "self-deadlock" not in found
    assert "lock-after-fork" not in causes_of(parent(reads, reads))


def test_what_the_job_has_forked_itself_is_known_by_the_kernel() -> None:
    """os.fork leaves no frame, and setproctitle no word of the command."""
    imports = native(
        look(
            "_ModuleLock.acquire <frozen>:120",
            "serve train.py:25",
            "main train.py:42",
            pid=300,
            ppid=100,
            args=FOREVER,
        ),
        *LOCK,
    )
    forked = replace(imports, is_forked=True)
    assert "lock-after-fork" in causes_of(parent(forked))
    assert "lock-after-fork" not in causes_of(parent(imports))
