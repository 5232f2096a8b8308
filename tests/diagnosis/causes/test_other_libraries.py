"""The same causes by the calls of many libraries: nothing depends on the few that cases use.

The stacks are those of public issues and of the libraries' own files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hangbisect.base.process_facts import Descriptor, FileLock, Frame, Kernel, Look, Socket, Syscall
from hangbisect.diagnosis.causes.catalogue import find_likeliest_cause

from ..made_up import ALL_REDUCE, job, look, rank
from .scenes import TORCHRUN, Facts, causes_of, on, scene_of, tcp
from .seen import FOREVER, LIBC, LOADER, TIMED, beside, first, native, pipe, worker

SERVER = tcp("10.1.2.3:443", received=0)
OWN = Socket(50, "unix", state="ESTABLISHED", peer_pids=(100,))  # an event loop's, both ends
USER = "prepare train.py:9"
LOOP = (
    "EpollSelector.select STD/selectors.py:468",
    "BaseEventLoop._run_once STD/asyncio/base_events.py:1884",
    "BaseEventLoop.run_forever STD/asyncio/base_events.py:607",
)


def waits(*frames: str, **more: object) -> Facts:
    """Rank 0 in these frames, called by the job's own code; rank 1 waits for it."""
    return of(look(*frames, USER, **more))  # type: ignore[arg-type]


def of(one: Look) -> Facts:
    return job(), [first(one, environment=TORCHRUN), rank(1, ALL_REDUCE)]


def reads(*frames: str, socket: Socket = SERVER, call: str = "recvfrom") -> Callable[[], Facts]:
    def facts() -> Facts:
        return waits(*frames, call=call, descriptors=on(socket), sockets=(socket,))

    return facts


def by_thread(
    *frames: str, thread: tuple[str, ...] = LOOP, call: str = "epoll_wait", socket: Socket = SERVER
) -> Callable[[], Facts]:
    """The main thread waits; another one of Python has the connection."""

    def facts() -> Facts:
        one = look(*frames, USER, args=TIMED, sockets=(OWN, socket))
        one = beside(one, ("its thread", thread), call=call)
        return of(_about(one, *on(OWN, 5), *on(socket)))

    return facts


def natively(*frames: str, library: str = "", call: str = "futex") -> Callable[[], Facts]:
    """The main thread waits in a library's native code, and a thread of that has the connection."""

    def facts() -> Facts:
        one = look(*frames, USER, call=call, args=FOREVER, sockets=(SERVER,))
        one = native(one, ("syscall", LIBC), ("wait", library)) if library else one
        task = Kernel(950, "tokio-runtime-w", "S", "ep_poll", Syscall(0, "epoll_wait", (4,)))
        return of(_about(replace(one, kernel=(*one.kernel, task)), *on(SERVER)))

    return facts


def _about(one: Look, *descriptors: Descriptor) -> Look:
    """The same look whose second thread's system call is about these descriptors."""
    main, task = one.kernel
    assert task.syscall is not None
    call = replace(task.syscall, descriptors=descriptors)
    return replace(one, kernel=(main, replace(task, syscall=call)))


def sleeps(*frames: str, **more: object) -> Callable[[], Facts]:
    return lambda: waits(*frames, call="clock_nanosleep", **more)


def locked(path: str) -> tuple[FileLock, ...]:
    return (FileLock(path, 55, 999, "python", waiting=False),)


def forked(*natives: tuple[str, str], python: str = "get data.py:5") -> Callable[[], Facts]:
    return lambda: (job(), [first(LOADER, native(worker(python), *natives)), rank(1, LOADER)])


def in_the_kernel_by_a_thread() -> Facts:
    one = look(
        "Queue.put STD/queue.py:140",
        "_AsyncWriter.write SP/tensorboard/summary/writer/event_file_writer.py:194",
        "SummaryWriter.add_scalar SP/torch/utils/tensorboard/writer.py:381",
        USER,
        args=FOREVER,
    )
    writes = ("RecordWriter.write SP/tensorboard/summary/writer/record_writer.py:40",)
    one = beside(one, ("writer", writes), call="write")
    main, task = one.kernel
    return of(replace(one, kernel=(main, replace(task, state="D", wchan="rpc_wait_bit_killable"))))


def looks_up_in_a_thread() -> Facts:
    server = Socket(80, "udp", "10.0.0.2:5", "10.0.0.53:53", "ESTABLISHED")
    one = look(*LOOP, USER, call="epoll_wait", descriptors=on(OWN), sockets=(OWN, server))
    asks = (
        "getaddrinfo STD/socket.py:962",
        "_worker STD/concurrent/futures/thread.py:83",
    )
    return of(_about(beside(one, ("asyncio_0", asks), call="poll"), *on(server)))


def sqlite() -> Facts:
    one = look(USER, call="clock_nanosleep", locks=locked("/home/ada/runs"))
    library = "/usr/lib/x86_64-linux-gnu/libsqlite3.so.0"
    return of(native(one, ("__nanosleep", LIBC), ("sqlite3_step", library)))


HTTP = ("SSLSocket.read STD/ssl.py:1167", "SocketIO.readinto STD/socket.py:706")
RESOLVER = Socket(81, "unix", peer="/run/x", peer_pids=(7,), peer_names=("systemd-resolve",))
SYN = tcp("10.1.2.3:443", "SYN_SENT")
SITE = "/venv/lib/python3.11/site-packages"
CASES: dict[str, tuple[str, Callable[[], Facts]]] = {
    # servers that are silent
    "requests": ("endpoint-silent", reads(*HTTP, "get SP/requests/api.py:73", call="read")),
    "httpx": ("endpoint-silent", reads("read SP/httpcore/_backends/sync.py:128", call="poll")),
    "boto3": ("endpoint-silent", reads(*HTTP, "send SP/botocore/httpsession.py:464", call="read")),
    "torch.hub": ("endpoint-silent", reads(*HTTP, "urlopen STD/urllib/request.py:216")),
    "pymysql": ("endpoint-silent", reads("_read_bytes SP/pymysql/connections.py:744")),
    "psycopg2": ("endpoint-silent", reads("connect SP/psycopg2/__init__.py:122", call="poll")),
    "redis": ("endpoint-silent", reads("_read_from_socket SP/redis/_parsers/socket.py:65")),
    "aiohttp": (
        "endpoint-silent",
        lambda: waits(
            *LOOP, call="epoll_wait", descriptors=(*on(OWN, 5), *on(SERVER)), sockets=(OWN, SERVER)
        ),
    ),
    "fsspec": (
        "endpoint-silent",
        by_thread("wait STD/threading.py:629", "sync SP/fsspec/asyn.py:9"),
    ),
    "dask": (
        "endpoint-silent",
        by_thread("wait STD/threading.py:629", "sync SP/distributed/x.py:4"),
    ),
    "paramiko": (
        "endpoint-silent",
        by_thread(
            "Event.wait STD/threading.py:629",
            "AuthHandler.wait_for_response SP/paramiko/auth_handler.py:245",
            thread=("Packetizer.read_all SP/paramiko/packet.py:297",),
            call="poll",
        ),
    ),
    "neptune": (
        "endpoint-silent",
        by_thread(
            "Condition.wait STD/threading.py:331",
            "wait SP/neptune/core/operation_processors/async_operation_processor.py:146",
            thread=(*HTTP, "send SP/requests/adapters.py:667"),
            call="read",
        ),
    ),
    "grpc": ("endpoint-silent", natively("_blocking SP/grpc/_channel.py:1160")),
    "grpc stream": (
        "endpoint-silent",
        natively("Condition.wait STD/threading.py:331", "_next SP/grpc/_channel.py:976"),
    ),
    "s3torchconnector": (
        "endpoint-silent",
        natively(
            "get_object SP/s3torchconnector/_s3client/_s3client.py:90",
            library=f"{SITE}/s3torchconnectorclient/_mountpoint_s3_client.abi3.so",
        ),
    ),
    "zmq": (
        "endpoint-silent",
        natively("recv SP/zmq/sugar/socket.py:8", library=f"{SITE}/libzmq.so.5", call="poll"),
    ),
    # ... that cannot be reached, and names that cannot be looked up
    "urllib3 connects": (
        "endpoint-unreachable",
        reads("create_connection SP/urllib3/util/connection.py:73", socket=SYN, call="connect"),
    ),
    "aiohttp connects": ("endpoint-unreachable", reads(*LOOP, socket=SYN, call="epoll_wait")),
    "fsspec connects": (
        "endpoint-unreachable",
        by_thread("wait STD/threading.py:629", "sync SP/fsspec/asyn.py:9", socket=SYN),
    ),
    "aiohttp looks up": ("name-server-silent", looks_up_in_a_thread),
    "resolved": (
        "name-server-silent",
        reads("create_connection STD/socket.py:827", socket=RESOLVER, call="poll"),
    ),
    # tries, and loops of libraries
    "mlflow": (
        "retry-loop",
        sleeps("Retry.sleep SP/urllib3/util/retry.py:378", "request SP/mlflow/rest_utils.py:8"),
    ),
    "ray.init": ("ray-start", sleeps("internal_kv_get_with_retry SP/ray/_private/utils.py:1400")),
    # locks
    "portalocker": (
        "file-lock-held",
        sleeps("Lock.acquire SP/portalocker/utils.py:230", locks=locked("/x")),
    ),
    "sqlite3": ("file-lock-held", sqlite),
    "sqlalchemy": (
        "file-lock-held",
        sleeps("do_execute SP/sqlalchemy/engine/default.py:942", locks=locked("/runs.db")),
    ),
    # workers
    "joblib": (
        "worker-stuck",
        lambda: (
            job(),
            [
                first(
                    look("Parallel._retrieve SP/joblib/parallel.py:1800", USER, call="nanosleep"),
                    look(
                        "work data.py:5",
                        "_process_worker SP/joblib/externals/loky/process_executor.py:463",
                        "BaseProcess.run STD/multiprocessing/process.py:108",
                        pid=300,
                        ppid=100,
                    ),
                ),
                rank(1, ALL_REDUCE),
            ],
        ),
    ),
    "arrow": ("lock-after-fork", forked(("pthread_cond_wait", LIBC), ("wait", "/libarrow.so"))),
    "OpenBLAS": ("lock-after-fork", forked(("futex_wait", LIBC), ("exec_blas", "/libopenblas.so"))),
    "MKL": ("openmp-after-fork", forked(("__kmp_suspend_64", "/venv/lib/libiomp5.so"))),
    # disks, pipes, sockets, devices
    "tensorboard": ("network-filesystem-silent", in_the_kernel_by_a_thread),
    "fuse": (
        "network-filesystem-silent",
        lambda: waits(call="openat", wchan="request_wait_answer", path="/mnt/gcs/x"),
    ),
    "accept": (
        "nobody-sends",
        reads(socket=Socket(9, "tcp", "0.0.0.0:5000", "", "LISTEN"), call="accept4"),
    ),
    "a datagram": ("nobody-sends", reads(socket=Socket(9, "udp", "0.0.0.0:5000"))),
    "msgrcv": ("nobody-sends", lambda: waits(call="msgrcv")),
    "stdin": ("prompt", lambda: waits(call="read", descriptors=(pipe(0, 55),))),
    "click": (
        "prompt",
        lambda: waits(
            "prompt SP/click/termui.py:164",
            call="read",
            descriptors=(Descriptor(0, "tty", "/dev/pts/3"),),
        ),
    ),
    "a driver": (
        "driver-stuck",
        lambda: waits(call="ioctl", descriptors=(Descriptor(5, "device", "/dev/nvidiactl"),)),
    ),
    "horovod": (
        "native-call",
        lambda: of(
            native(
                look("HorovodBasics.init SP/horovod/common/basics.py:50", USER, args=TIMED),
                ("nanosleep", LIBC),
                ("horovod_init", f"{SITE}/horovod/torch/mpi_lib_v2.so"),
            )
        ),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_cause_answers_and_is_the_right_one(name: str) -> None:
    wanted, facts = CASES[name]
    cause = find_likeliest_cause(scene_of(facts()))
    assert cause is not None
    assert cause.id == wanted, causes_of(facts())
    assert cause.agreement > 0.5
    assert "?" not in cause.why, cause.why


# ---- what looks alike ----------------------------------------------------------------------------


def test_an_idle_connection_to_a_proxy_is_not_what_a_sleeper_waits_for() -> None:
    through = {**TORCHRUN, "HTTPS_PROXY": "http://10.1.2.3:443"}
    facts, ranks = waits(call="clock_nanosleep", sockets=(SERVER,))
    found = causes_of((facts, [replace(ranks[0], environment=through), ranks[1]]))
    assert "proxy-silent" not in found
    assert next(iter(found)) == "own-code-sleeps"


def test_a_file_that_is_open_and_locked_by_another_is_no_data_base() -> None:
    facts = waits(call="clock_nanosleep", locks=locked("/home/ada/notes.txt"))
    assert "file-lock-held" not in causes_of(facts)


def test_a_thread_at_a_connection_is_not_asked_by_a_rank_that_computes() -> None:
    facts, ranks = by_thread("step model.py:5")()
    main, task = ranks[0].looks[0].kernel
    runs = replace(ranks[0].looks[0], state="R", kernel=(replace(main, syscall=None), task))
    assert "endpoint-silent" not in causes_of((facts, [replace(ranks[0], looks=(runs,)), ranks[1]]))


def test_a_handler_that_only_python_knows_is_no_frame_of_another_place() -> None:
    one, other = Frame("f", "a.py", 1, handler="except OSError"), Frame("f", "a.py", 1)
    assert one == other
