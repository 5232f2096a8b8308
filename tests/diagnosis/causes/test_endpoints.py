"""Servers for models and data."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hangbisect.base.process_facts import FileLock, Kernel, Look, Socket, Syscall, Thread
from hangbisect.diagnosis.verdict import judge_job

from ..made_up import ALL_REDUCE, gone, held, job, look, rank, stack
from ..queues import LISTENS, receives, unix
from .scenes import TORCHRUN, Facts, Shows, causes_of, on, tcp, with_native
from .seen import beside, first

SILENT = tcp("127.0.0.1:9999", received=0)


def hub(call: str, *more: str, socket: object = None) -> Look:
    used = [] if socket is None else [socket]
    return look(
        *more,
        "_http_backoff_base SP/huggingface_hub/utils/_http.py:537",
        "get_hf_file_metadata SP/huggingface_hub/file_download.py:1670",
        "_hf_hub_download_to_cache_dir SP/huggingface_hub/file_download.py:1117",
        "cached_files SP/transformers/utils/hub.py:420",
        "from_pretrained SP/transformers/models/auto/tokenization_auto.py:680",
        "<module> train.py:9",
        call=call,
        descriptors=on(socket) if used else (),  # type: ignore[arg-type]  # a Socket if any
        sockets=tuple(used),
    )


READS = ("Socket.recv STD/socket.py:706", "HTTPConnection.read SP/httpcore2/_sync/http11.py:217")


def only_first(one: Look) -> Facts:
    return job(), [rank(0, one, environment=TORCHRUN), held(1)]


def hub_silent() -> Facts:
    return only_first(hub("recvfrom", *READS, socket=SILENT))


def hub_unreachable() -> Facts:
    return only_first(hub("poll", *READS, socket=tcp("18.1.2.3:443", "SYN_SENT")))


def hub_retries() -> Facts:
    return only_first(hub("clock_nanosleep"))


def hub_upload(call: str = "recvfrom", socket: object = SILENT) -> Facts:
    one = look(
        *(READS if call == "recvfrom" else ()),
        "_http_backoff_base SP/huggingface_hub/utils/_http.py:537",
        "preupload_lfs_files SP/huggingface_hub/hf_api.py:5021",
        "create_commit SP/huggingface_hub/hf_api.py:4300",
        "upload_folder SP/huggingface_hub/hf_api.py:5350",
        "Trainer.push_to_hub SP/transformers/trainer.py:5110",
        "<module> train.py:9",
        call=call,
        descriptors=on(socket) if socket else (),  # type: ignore[arg-type]  # a Socket if any
        sockets=(socket,) if socket else (),
    )
    return only_first(one)


def hub_file_missing() -> Facts:
    error = "OSError: We couldn't connect to 'https://huggingface.co' to load the files, and "
    error += "couldn't find them in the cached files. LocalEntryNotFoundError"
    return job("crash"), [gone(n, 1, error, left_at=90.0) for n in (0, 1)]


def xet_stall() -> Facts:
    server = tcp("18.1.2.3:443", received=123456)
    one = look(
        "xet_get SP/huggingface_hub/file_download.py:599",
        "_download_to_tmp_and_move SP/huggingface_hub/file_download.py:2017",
        "from_pretrained SP/transformers/modeling_utils.py:4000",
        "<module> train.py:9",
        call="futex",
        sockets=(server,),
    )
    return only_first(with_native(one, "hf_xet::session::wait"))


def hub_conversion() -> Facts:
    one = look("Thread.join STD/threading.py:1119", "_shutdown STD/threading.py:1583")
    frames = stack("recv STD/socket.py:706", "auto_conversion SP/transformers/x.py:80")
    thread = Thread(205, "Thread-auto_conversion", False, False, frames)
    return only_first(replace(one, threads=(*one.threads, thread)))


def endpoint(socket: object, call: str = "recvfrom") -> Facts:
    one = look(
        "SocketIO.readinto STD/socket.py:706",
        "HTTPResponse.begin STD/http/client.py:286",
        "get SP/requests/api.py:73",
        "<module> train.py:9",
        call=call,
        descriptors=on(socket),  # type: ignore[arg-type]  # a Socket
        sockets=(socket,),
    )
    return only_first(one)


def endpoint_silent() -> Facts:
    return endpoint(SILENT)


def endpoint_unreachable() -> Facts:
    return endpoint(tcp("10.9.9.9:80", "SYN_SENT"), call="connect")


def test_a_handshake_that_is_not_answered_is_told() -> None:
    one = look(
        "SSLSocket.do_handshake STD/ssl.py:1383",
        "ask train.py:38",
        call="read",
        descriptors=on(SILENT),
        sockets=(SILENT,),
    )
    assert "does it speak TLS?" in " ".join(causes_of(only_first(one))["endpoint-silent"].matched)
    assert "TLS" not in " ".join(causes_of(endpoint_silent())["endpoint-silent"].matched)


def queue_unserved() -> Facts:
    one = replace(receives(0, retries=0.1), unserved=("ipc:///tmp/a.sock",))
    return only_first(with_native(one, "poll", "zmq_msg_recv"))


OWN_PORT = "127.0.0.1:8000"
OWN = Socket(31, "tcp", "127.0.0.1:50000", OWN_PORT, "ESTABLISHED", received=0, peer_pids=(100,))
AT_IT = Socket(32, "tcp", OWN_PORT, "", "LISTEN")


def test_a_client_whom_it_has_accepted_is_no_server_that_it_asks() -> None:
    listens = Socket(33, "tcp", "127.0.0.1:8000", "", "LISTEN")
    client = Socket(34, "tcp", "127.0.0.1:8000", "127.0.0.1:40000", "ESTABLISHED", received=0)
    one = look(
        "EpollSelector.select STD/selectors.py:468",
        "BaseEventLoop._run_once STD/asyncio/base_events.py:1884",
        "<module> train.py:9",
        call="epoll_wait",
        descriptors=on(client),
        sockets=(listens, client),
    )
    assert "endpoint-silent" not in causes_of(only_first(one))
    asked = replace(one, sockets=(client,))
    assert "endpoint-silent" in causes_of(only_first(asked))


def asks_itself(*sockets: Socket) -> Look:
    """A handler of an asyncio server asks another endpoint of that server, by requests."""
    return look(
        "SocketIO.readinto STD/socket.py:706",
        "HTTPResponse._read_status STD/http/client.py:286",
        "request SP/requests/api.py:71",
        "post SP/requests/api.py:134",
        "tokenize serve.py:16",
        "handle_generate serve.py:26",
        "BaseEventLoop._run_once STD/asyncio/base_events.py:1922",
        "BaseEventLoop.run_forever STD/asyncio/base_events.py:607",
        "<module> serve.py:59",
        call="recvfrom",
        descriptors=on(OWN),
        sockets=sockets,
    )


def server_asks_itself() -> Facts:
    return job(world=1), [rank(0, asks_itself(OWN, AT_IT))]


SHOWS: Shows = {
    "hub-silent": hub_silent,
    "hub-unreachable": hub_unreachable,
    "hub-retries": hub_retries,
    "hub-upload": hub_upload,
    "hub-file-missing": hub_file_missing,
    "xet-stall": xet_stall,
    "hub-conversion": hub_conversion,
    "endpoint-silent": endpoint_silent,
    "endpoint-unreachable": endpoint_unreachable,
    "endpoint-unserved": queue_unserved,
    "server-asks-itself": server_asks_itself,
}


def test_a_hub_that_sends_is_less_certain_than_one_that_sends_nothing() -> None:
    sends = hub("recvfrom", *READS, socket=tcp("127.0.0.1:9999", received=400))
    found = causes_of(only_first(sends))["hub-silent"]
    assert found.agreement < causes_of(hub_silent())["hub-silent"].agreement


def test_nothing_between_two_looks_is_silence_too() -> None:
    one = hub("recvfrom", *READS, socket=tcp("127.0.0.1:9999", received=400))
    ranks = [rank(0, one, replace(one, at=110.0), environment=TORCHRUN), held(1)]
    found = causes_of((job(), ranks))["hub-silent"]
    assert any("nothing comes" in fact for fact in found.matched)


def test_a_lock_of_the_hub_is_not_its_server() -> None:
    waits = look(
        "_poll_until_acquired SP/filelock/_api.py:1177",
        "acquire SP/filelock/_api.py:1000",
        "WeakFileLock SP/huggingface_hub/utils/_fixes.py:98",
        "from_pretrained SP/transformers/models/auto/tokenization_auto.py:680",
        call="clock_nanosleep",
    )
    found = causes_of(only_first(waits))
    assert not {"hub-silent", "hub-retries", "endpoint-silent"} & set(found)


def test_an_idle_connection_while_a_lock_is_awaited_is_not_the_cause() -> None:
    waits = look(
        "_poll_until_acquired SP/filelock/_api.py:1177",
        "_hf_hub_download_to_cache_dir SP/huggingface_hub/file_download.py:1230",
        "from_pretrained SP/transformers/models/auto/tokenization_auto.py:680",
        call="clock_nanosleep",
        sockets=(SILENT,),
    )
    assert not {"hub-silent", "hub-retries"} & set(causes_of(only_first(waits)))


def test_a_wrapper_of_the_hub_around_a_lock_is_no_retry() -> None:
    waits = look(
        "_poll_until_acquired SP/filelock/_api.py:1177",
        "acquire SP/filelock/_api.py:1037",
        "WeakFileLock SP/huggingface_hub/utils/_fixes.py:99",
        "flag_as_download_call.<locals>._inner SP/huggingface_hub/utils/_http.py:276",
        "cached_files SP/transformers/utils/hub.py:420",
        "<module> train.py:9",
        call="clock_nanosleep",
    )
    assert "hub-retries" not in causes_of(only_first(waits))


def test_downloads_in_threads_are_seen_while_the_main_thread_waits_for_them() -> None:
    waits = look(
        "Condition.wait STD/threading.py:327",
        "Future.result STD/concurrent/futures/_base.py:451",
        "snapshot_download SP/huggingface_hub/_snapshot_download.py:331",
        "<module> train.py:9",
        call="futex",
        sockets=(SILENT,),
    )
    unseen = causes_of(only_first(waits))["hub-silent"].agreement
    assert 0.5 < unseen <= 0.8
    loads = beside(waits, ("ThreadPoolExecutor-0_0", READS), call="recvfrom")
    main, task = loads.kernel
    assert task.syscall is not None
    reads = replace(task, syscall=replace(task.syscall, descriptors=on(SILENT)))
    ranks = [first(replace(loads, kernel=(main, reads)), environment=TORCHRUN), held(1)]
    assert causes_of((job(), ranks))["hub-silent"].agreement > 0.8


def test_threads_that_wait_for_a_lock_do_not_wait_for_the_hub() -> None:
    waits = look(
        "Condition.wait STD/threading.py:327",
        "Future.result STD/concurrent/futures/_base.py:451",
        "snapshot_download SP/huggingface_hub/_snapshot_download.py:331",
        "<module> train.py:9",
        call="futex",
        sockets=(SILENT,),
        locks=(FileLock("/c/x.lock", 5, 999, "python", waiting=False),),
    )
    asks = (
        "_poll_until_acquired SP/filelock/_api.py:1177",
        "acquire SP/filelock/_api.py:1000",
        "_hf_hub_download_to_cache_dir SP/huggingface_hub/file_download.py:1230",
    )
    loads = beside(waits, ("ThreadPoolExecutor-0_0", asks), call="clock_nanosleep")
    found = causes_of((job(), [first(loads, environment=TORCHRUN), held(1)]))
    assert "hub-silent" not in found
    assert found["file-lock-held"].agreement > 0.8


def test_a_peer_in_the_group_is_no_endpoint() -> None:
    one = replace(ALL_REDUCE, sockets=(SILENT,))
    found = causes_of((job(), [rank(n, one, environment=TORCHRUN) for n in (0, 1)]))
    assert not {"endpoint-silent", "hub-silent"} & set(found)


def test_another_process_of_the_job_is_no_endpoint() -> None:
    inner = tcp("127.0.0.1:45000", peer_pids=(101,))
    facts, ranks = endpoint(inner)
    assert "endpoint-silent" not in causes_of((facts, [ranks[0], held(1)]))


def test_an_address_that_nobody_serves_is_named_and_never_more_than_fits() -> None:
    cause = causes_of(queue_unserved())["endpoint-unserved"]
    assert "ipc:///tmp/a.sock" in cause.why
    assert cause.level == "fits"  # that it is the address in question is read out of memory


def test_a_queue_with_a_connection_or_that_listens_is_served() -> None:
    stale = ("ipc:///tmp/old.sock",)
    for one in (receives(0, unix(999)), receives(0, LISTENS)):
        found = causes_of(only_first(replace(one, unserved=stale)))
        assert "endpoint-unserved" not in found


OF_A_MODEL = ("torchrun", "--nproc_per_node=2", "-m", "bisect", "--tokenizer", "gpt2")


@pytest.mark.parametrize(
    "facts",
    [
        hub_upload(),
        hub_upload("poll", tcp("18.1.2.3:443", "SYN_SENT")),
        hub_upload("clock_nanosleep", None),
    ],
)
def test_of_an_upload_nobody_is_advised_to_work_offline(facts: Facts) -> None:
    """HF_HUB_OFFLINE=1 makes it load from the cache: a push fails then."""
    verdict = judge_job(replace(facts[0], command=OF_A_MODEL), facts[1])
    assert verdict.cause is not None
    assert verdict.cause.id == "hub-upload"
    assert not [advice for advice in verdict.cause.avoid if "OFFLINE" in advice]
    assert not [one for one in verdict.try_ if one.toggle == "hub"]


def test_of_a_download_it_is_advised_as_before() -> None:
    facts, ranks = hub_silent()
    verdict = judge_job(replace(facts, command=OF_A_MODEL), ranks)
    assert [one for one in verdict.try_ if one.toggle == "hub"]


@pytest.mark.parametrize(
    ("frame", "limit"),
    [
        ("HTTPAdapter.send SP/requests/adapters.py:644", "requests and urllib have none"),
        ("URLLib3Session.send SP/botocore/httpsession.py:465", "otherwise (read_timeout)"),
        ("ClientCreator._call SP/google/cloud/storage/client.py:70", "whether the client has one"),
    ],
)
def test_which_time_limit_is_missing_depends_on_the_client(frame: str, limit: str) -> None:
    frames = ("Socket.recv STD/socket.py:706", frame, "<module> train.py:9")
    one = look(*frames, call="recvfrom", descriptors=on(SILENT), sockets=(SILENT,))
    verdict = judge_job(*only_first(one))
    assert verdict.cause is not None
    assert verdict.cause.id == "endpoint-silent"
    assert limit in verdict.cause.avoid[0]


IN_USER_CODE = ("connect_all train.py:40", "<module> train.py:9")
OF_PYTHON = "/usr/lib/python3.11/lib-dynload/_socket.cpython-311-x86_64-linux-gnu.so"
SERVER = tcp("10.0.0.1:443", received=0)


def called_by(library: str, *frames: str, socket: Socket = SERVER) -> Facts:
    """A rank that reads from a server, in a call that the code of `library` makes."""
    one = look(
        *(frames or IN_USER_CODE), call="recvfrom", descriptors=on(socket), sockets=(socket,)
    )
    call = one.kernel[0].syscall
    assert call is not None
    made = replace(one.kernel[0], syscall=replace(call, caller=library))
    return only_first(replace(one, kernel=(made,)))


@pytest.mark.parametrize(
    ("facts", "level"),
    [
        (called_by(OF_PYTHON), "fits"),
        (called_by("/opt/conda/bin/python3.11"), "fits"),
        (called_by("", *READS, *IN_USER_CODE), "fits"),  # the frame is Python's own socket.py
        (called_by("", "get SP/requests/api.py:73", *IN_USER_CODE), "fits"),
        (called_by("/usr/lib/libpq.so.5", "connect SP/psycopg2/__init__.py:122"), "fits"),
        (called_by("/opt/vendor/lib/libplace.so"), "guess"),
        (called_by(""), "guess"),
    ],
)
def test_a_silent_server_fits_where_it_is_known_who_asks_it(facts: Facts, level: str) -> None:
    """A library of C may wait in recv() for anybody: a daemon of its own, a peer, a licence."""
    verdict = judge_job(*facts)
    assert verdict.cause is not None
    assert (verdict.cause.id, verdict.cause.level) == ("endpoint-silent", level)


@pytest.mark.parametrize(
    "library",
    [
        "/usr/lib/x86_64-linux-gnu/libmpi.so.40",
        "/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so",
        "/venv/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2",
        "/usr/lib/x86_64-linux-gnu/libucs.so.0",
    ],
)
def test_who_waits_in_a_library_of_messages_waits_for_a_peer_and_no_server(library: str) -> None:
    assert "endpoint-silent" not in causes_of(called_by(library))


def test_a_thread_of_a_library_of_messages_has_no_server_either() -> None:
    """Gloo's own thread is in epoll with the connections to its peers, those of unseen nodes too:
    a main thread that waits for another thread does not wait for them.
    """
    one = look(
        "wait STD/threading.py:327", "result STD/concurrent/futures/_base.py:451", *IN_USER_CODE
    )
    loop = Syscall(0, "epoll_wait", (0,) * 6, descriptors=on(SERVER))
    own = replace(loop, caller="/venv/site-packages/torch/lib/libtorch_cpu.so")

    def facts(call: Syscall) -> Facts:
        kernel = (*one.kernel, Kernel(205, "gloo", "S", "", call))
        about, ranks = only_first(one)
        seen = replace(ranks[0].looks[0], kernel=(ranks[0].looks[0].kernel[0], *kernel[1:]))
        return about, [replace(ranks[0], looks=(replace(seen, sockets=(SERVER,)),)), ranks[1]]

    assert "endpoint-silent" not in causes_of(facts(own))
    assert causes_of(facts(loop))["endpoint-silent"].level == "guess"


def test_where_ranks_were_not_seen_a_peer_elsewhere_may_be_one_of_them() -> None:
    """The other end of a connection to an address of another node may be a rank of the job."""
    about, ranks = called_by(OF_PYTHON)
    far = rank(1, host="n02")
    cause = causes_of((about, [ranks[0], far]))["endpoint-silent"]
    assert cause.level == "guess"
    here = tcp("127.0.0.1:443", received=0)
    about, ranks = called_by(OF_PYTHON, socket=here)
    assert causes_of((about, [ranks[0], far]))["endpoint-silent"].level == "fits"


@pytest.mark.parametrize(("call", "is_silent"), [("recvfrom", True), ("sendto", False)])
def test_a_thread_that_waits_to_send_reads_from_no_server(call: str, is_silent: bool) -> None:
    waits = look(
        "Condition.wait STD/threading.py:327",
        "Future.result STD/concurrent/futures/_base.py:451",
        "put SP/requests/api.py:133",
        "<module> train.py:9",
        sockets=(SILENT,),
    )
    loads = beside(waits, ("ThreadPoolExecutor-0_0", READS), call=call)
    main, task = loads.kernel
    assert task.syscall is not None
    asks = replace(task, syscall=replace(task.syscall, descriptors=on(SILENT)))
    found = causes_of((job(), [first(replace(loads, kernel=(main, asks))), held(1)]))
    assert ("endpoint-silent" in found) == is_silent


@pytest.mark.parametrize(("call", "is_silent"), [("recvfrom", True), ("sendto", False)])
def test_who_waits_to_send_reads_from_no_server(call: str, is_silent: bool) -> None:
    one = look(
        *READS,
        "put SP/requests/api.py:133",
        "<module> train.py:9",
        call=call,
        descriptors=on(SILENT),
        sockets=(SILENT,),
    )
    assert ("endpoint-silent" in causes_of(only_first(one))) == is_silent


def test_a_server_that_asks_itself_is_told_from_one_that_another_thread_answers() -> None:
    found = causes_of(server_asks_itself())
    assert next(iter(found)) == "server-asks-itself"
    assert found["server-asks-itself"].level == "seen"
    assert OWN_PORT in found["server-asks-itself"].why
    one = asks_itself(OWN, AT_IT)
    accepts = beside(one, ("serve", ("accept STD/socket.py:295",)), call="accept4", args=(3, 0))
    for other in (accepts, asks_itself(OWN)):
        assert "server-asks-itself" not in causes_of((job(world=1), [first(other)]))


@pytest.mark.parametrize(
    ("caller", "is_python"),
    [
        ("/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so", False),
        ("/usr/lib/python3.11/lib-dynload/_socket.cpython-311-x86_64-linux-gnu.so", True),
    ],
)
def test_what_a_library_asks_of_its_own_server_a_thread_without_python_answers(
    caller: str, is_python: bool
) -> None:
    """An agent of torchrun asks the store that it serves itself, for what another agent sets."""
    one = asks_itself(OWN, AT_IT)
    (task,) = one.kernel
    assert task.syscall is not None
    asks = replace(one, kernel=(replace(task, syscall=replace(task.syscall, caller=caller)),))
    found = causes_of((job(world=1), [rank(0, asks)]))
    assert ("server-asks-itself" in found) == is_python
