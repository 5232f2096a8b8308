"""Servers for models and data: they accept and stay silent, refuse, or are not there."""

from __future__ import annotations

import re

from ...base.addresses import host_of, is_loopback, port_of
from ...base.native_code import CODE_OF_PEERS, CODE_OF_PYTHON
from ...base.process_facts import Look, Socket, tries_to_connect
from ..process.blocked_syscalls import POLL_CALLS
from ..process.frames import format_frame, innermost_python_frame
from ..process.pipe_writers import only_main_thread_acts
from ..process.request_threads import takes_connections
from ..single_ranks import is_gone
from .awaited import asks_a_manager, asks_a_process_beside, what_is_beside_stands_still
from .known_cause import Found, KnownCause, Scene, also, find_frame, need, unless
from .pipes import its_peer_waits_in_turn
from .services import in_wandb
from .signs import (
    THREAD_POOL_WAIT_FILES,
    ended_with,
    find_called_native_function,
    frame_in,
    is_of_libc,
    native_name,
    nothing_came,
    through_a_proxy,
    waits_at_a_queue,
)

_HUB = r"huggingface_hub/\S*\.py|transformers/utils/hub\.py|hf_xet/\S*|hf_transfer/\S*"
_CLIENTS = (
    r"(?:urllib3|requests|httpx2?|httpcore2?|aiohttp|botocore|boto3|s3fs|gcsfs|adlfs|fsspec|grpc"
    r"|s3torch\w+|awscrt|obstore|deltalake|lance|tensorstore|google/(?:api_core|auth|cloud)|azure|oss2|smart_open|mlflow|comet_ml|neptune|clearml"
    r"|swanlab|dvc\w*|kagglehub|modelscope|paramiko|fabric|asyncssh|distributed|pymysql|MySQLdb"
    r"|mysql|psycopg\w*|asyncpg|pymongo|redis|kafka|pika|kombu|etcd3|kazoo|zmq|elasticsearch)"
    r"/\S*\.py|(?:^|/)(?:http/client|urllib/request|ftplib|telnetlib|smtplib|ssl)\.py"
)
# Where Python's own sockets are read.
_PYTHON_SOCKETS = re.compile(r"(?:^|/)(?:socket|ssl|selectors|asyncio/\w+)\.py$")
# Clients whose connections native threads of their own serve: no thread of Python has the socket.
_SERVED_BY_THREADS = r"grpc/\S*\.py|google/cloud/\S*\.py"
# How a client is given a time limit. botocore waits 60 s, and tries five times
# (botocore/config.py, read_timeout and retries); requests and urllib wait for ever.
_TIME_LIMITS = (
    (
        r"(?:botocore|aiobotocore|boto3|s3fs|s3transfer|smart_open)/\S*\.py",
        "botocore waits 60 s and tries again, unless its Config says otherwise (read_timeout)",
    ),
    (
        r"(?:requests|urllib3)/\S*\.py|(?:^|/)(?:http/client|urllib/request)\.py",
        "requests and urllib have none unless told",
    ),
)
_RETRIES = r"huggingface_hub/(?:utils/_http|file_download|lfs|utils/_fixes)\.py"
_XET_NATIVE = re.compile(r"\bhf_xet|\bxet_|hf_transfer|xet_core")
_OTHER_PURPOSES = ("53",)  # ports: a name server is no endpoint


# ---- signs ---------------------------------------------------------------------------------------

_SENDS = re.compile(r"writev?|send(?:to|msg|mmsg|file)")

_asks_the_hub = frame_in(_HUB, r".*", "A rank is in huggingface_hub's code")


# Of huggingface_hub 1.24: what goes up. Nothing of it is in a cache, and offline it fails.
_uploads_to_the_hub = frame_in(
    r"huggingface_hub/(?:hf_api|_commit_api|lfs|_upload_large_folder|_commit_scheduler)\.py",
    r"create_commit|preupload_lfs_files|_?upload_\w+|_?lfs_upload|create_repo|create_branch",
    "A rank uploads to the hub",
)


def _waits_for_the_hub(scene: Scene) -> Found | None:
    """It is connected, or tries to connect, or is between two tries."""
    return _connected(scene) or _unanswered(scene) or _between_two_tries(scene)


def _connected(scene: Scene) -> Found | None:
    """It reads from a connection that is made, or waits for a thread that has one."""
    return _socket_in(scene, "ESTABLISHED", "it is connected to {peer} and waits")


def _unanswered(scene: Scene) -> Found | None:
    """It asks for a connection, and nothing answers (SYN_SENT)."""
    return _socket_in(scene, "SYN_SENT", "{peer} SYN_SENT")


def _socket_in(scene: Scene, state: str, sentence: str) -> Found | None:
    if scene.group is not None or scene.view is None:
        return None
    pid = scene.family[0].pid if scene.family else 0
    known = any(k.syscall is not None and k.tid != pid for k in scene.view.look.kernel)
    sockets = [s for look, s in scene.outward if look.pid == pid and s.family.startswith("tcp")]
    if scene.blocking is not None or known:
        sockets = [s for s in sockets if s in scene.asked]
    if scene.blocking is None and (
        scene.call != "futex" or scene.inside(THREAD_POOL_WAIT_FILES) is None
    ):
        return None  # what it waits for is something else: a lock, a pause
    for socket in sockets:
        if socket.state == state and port_of(socket.peer) not in _OTHER_PURPOSES:
            # Which one the threads are at is not known: it may be one that is not in use.
            trust = 1.0 if socket in scene.asked else 0.6
            return Found(sentence.format(peer=socket.peer), {"peer": socket.peer}, trust)
    return None


def _find_asked_sockets(scene: Scene) -> tuple[Socket, ...]:
    """Return the sockets that its system call is about, else those of the threads it waits for."""
    if scene.group is not None:
        return ()
    if scene.blocking is not None:
        return (scene.blocking,)
    if scene.call == "futex" and scene.inside(f"{THREAD_POOL_WAIT_FILES}|{_SERVED_BY_THREADS}"):
        return scene.blocking_threads
    # A library of C++ or Rust waits for its own threads: AWS CRT, tokio, ZeroMQ.
    native = find_called_native_function(scene.frames)
    foreign = native is not None and not is_of_libc(native)
    return scene.blocking_natively if foreign and scene.call in POLL_CALLS | {"futex"} else ()


def _reads_from_outside(scene: Scene) -> Found | None:
    """It, or the thread it waits for, reads from a server that is not of the job."""
    for socket in _find_asked_sockets(scene):
        where = _server_at(scene, socket)
        caller = _find_caller(scene, socket)
        if not where or CODE_OF_PEERS.search(caller) or _is_sent_to(scene, socket):
            continue
        values = {"peer": where, "limit": _advise_time_limit(scene)}
        doubtful = not _is_a_request(scene, caller) or _may_be_a_rank(scene, socket)
        if scene.blocking is not None:
            return Found(f"{scene.call} from {where}", values, doubtful=doubtful)
        # A connection that is not in use looks the same: threads wait at that as well.
        words = f"it waits, and a thread of it reads from {where}"
        return Found(words, values, trust=0.9, doubtful=doubtful)
    return None


def _is_sent_to(scene: Scene, socket: Socket) -> bool:
    """Return whether it, or a thread of it, waits to send over a socket: its peer does not read."""
    look = scene.view.look if scene.view is not None else None
    calls = [task.syscall for task in look.kernel] if look is not None else []
    path = f"socket:[{socket.inode}]"
    return any(
        call is not None
        and _SENDS.fullmatch(call.name)
        and any(d.path == path or d.socket == socket for d in call.descriptors)
        for call in calls
    )


def _find_caller(scene: Scene, socket: Socket) -> str:
    """Return the path of the library whose code is in a system call about a socket, "" if that is
    not known.
    """
    kernel = scene.view.look.kernel if scene.view is not None else ()
    path = f"socket:[{socket.inode}]"
    for one in kernel:
        call = one.syscall
        if call is not None and call.caller and any(d.path == path for d in call.descriptors):
            return call.caller
    return ""


def _is_a_request(scene: Scene, caller: str) -> bool:
    """Return whether it is known that a server is asked: by a client on the stack, or by Python's
    own socket that the main thread reads from. A library of C may wait in the same call for
    anybody.
    """
    if _in_a_client(scene) is not None:
        return True
    inner = innermost_python_frame(scene.frames)
    by_python = CODE_OF_PYTHON.search(caller) or (inner and _PYTHON_SOCKETS.search(inner.file))
    return scene.blocking is not None and bool(by_python)


def _may_be_a_rank(scene: Scene, socket: Socket) -> bool:
    """Return whether the other end may be a rank that no look showed: it is not on this machine,
    and there are such ranks.
    """
    if socket.family == "unix" or socket.peer_pids or is_loopback(host_of(socket.peer)):
        return False
    shown = sum(bool(one.looks) or is_gone(one) or one.never_started for one in scene.ranks)
    return shown < max(scene.job.world_size, len(scene.ranks))


def _advise_time_limit(scene: Scene) -> str:
    """Return how the client in its frames is given a time limit."""
    for pattern, words in _TIME_LIMITS:
        if scene.inside(pattern) is not None:
            return words
    return "look whether the client has one"


def _server_at(scene: Scene, socket: Socket) -> str:
    """Return where a connection to something that is not of the job leads, "" for any other."""
    if socket.family == "unix":
        # One end of a pair has no address, nor has a client whom it has accepted itself.
        stranger = bool(socket.peer) and set(socket.peer_pids).isdisjoint(scene.job_pids)
        names = ", ".join(dict.fromkeys(socket.peer_names)) or "another process"
        return f"{socket.peer} ({names})" if stranger else ""
    outside = any(socket == s and not _has_accepted(look, s) for look, s in scene.outward)
    other = port_of(socket.peer) in _OTHER_PURPOSES
    return socket.peer if outside and socket.state == "ESTABLISHED" and not other else ""


def _has_accepted(look: Look, socket: Socket) -> bool:
    """Return whether a connection came to the port at which its process listens: from a client."""
    listening = {port_of(one.local) for one in look.sockets if one.state == "LISTEN"}
    return port_of(socket.local) in listening - {""}


def _opens_to_outside(scene: Scene) -> Found | None:
    """It, or the thread it waits for, opens a connection that nothing answers (SYN_SENT)."""
    for socket in _find_asked_sockets(scene):
        if socket.state == "SYN_SENT":
            who = scene.call if scene.blocking is not None else "the connection of a thread"
            return Found(f"{who} to {socket.peer} SYN_SENT", {"peer": socket.peer})
    return None


def _it_stands_still_beside(scene: Scene) -> Found | None:
    """The server was started beside the ranks, and is seen to stand still itself."""
    return asks_a_process_beside(scene) and what_is_beside_stands_still(scene)


def _in_a_client(scene: Scene) -> Found | None:
    """Its frames are those of a client for HTTP, gRPC, a store or a data base."""
    frame = scene.inside(_CLIENTS)
    return None if frame is None else Found(f"frame {format_frame(frame)}")


def _the_other_end_is_here(scene: Scene) -> Found | None:
    """Another process of this machine, not of the job, is known to have the other end."""
    for socket in scene.awaited_peers:
        names = ", ".join(dict.fromkeys(name for name in socket.peer_names if name))
        pids = ", ".join(str(pid) for pid in socket.peer_pids)
        return Found(f"{names or 'a process'} ({pids}) has the other end")
    return None


def _in_a_handshake(scene: Scene) -> Found | None:
    """It waits for the answer to its first message of TLS: a server that speaks no TLS may take it
    for the beginning of something longer.
    """
    frame = scene.frame(r"(?:^|/)ssl\.py", "do_handshake")
    if frame is None:
        return None
    return Found(
        f"its handshake of TLS is not answered, in {format_frame(frame)}: does it speak TLS?"
    )


def _between_two_tries(scene: Scene) -> Found | None:
    """It sleeps between two tries (http_backoff)."""
    inner = tuple(frame for frame in scene.inner if not frame.native)[:1]
    frame = find_frame(inner, _RETRIES)
    if frame is None or "nanosleep" not in scene.call:
        return None
    return Found(f"it sleeps in {format_frame(frame)}")


def _nobody_serves_its_address(scene: Scene) -> Found | None:
    """Its message queues have no connection and try again and again, and no socket of this machine
    listens at an address that its memory names.
    """
    look = scene.view.look if scene.view is not None else None
    if look is None or not look.unserved or not tries_to_connect(look.kernel):
        return None
    named = " or ".join(look.unserved)
    words = f"it has no connection and tries again and again; nobody listens at {named}"
    return Found(words, {"address": named})


def _downloads_by_xet(scene: Scene) -> Found | None:
    """A rank is in hf_xet or hf_transfer."""
    frame = scene.inside(r"huggingface_hub/file_download\.py", "xet_get") or scene.inside(
        r"hf_transfer/\S*|hf_xet/\S*"
    )
    if frame is not None:
        return Found(f"frame {format_frame(frame)}", {"library": "hf_xet"})
    for native in scene.frames:
        if native.native and _XET_NATIVE.search(native.name):
            library = "hf_transfer" if "hf_transfer" in native.name else "hf_xet"
            return Found(f"native frame {native_name(native)}", {"library": library})
    return None


def _has_a_connection(scene: Scene) -> Found | None:
    """It has a connection to a server outside of the job."""
    for _, socket in scene.outward:
        return Found(f"connection to {socket.peer} {socket.state}", {"peer": socket.peer})
    return None


def _converts_in_a_thread(scene: Scene) -> Found | None:
    """A thread of transformers asks the hub to convert the model to safetensors."""
    threads = scene.view.threads if scene.view else ()
    for thread in threads:
        if "auto_conversion" in (thread.name or ""):
            return Found(f"thread {thread.name} runs")
    return None


def _waits_for_threads(scene: Scene) -> Found | None:
    """The main thread waits for threads."""
    frame = scene.frame(r"threading\.py|<frozen threading>", "join|_shutdown|_wait_for_tstate_lock")
    return None if frame is None else Found(f"frame {format_frame(frame)}")


_not_in_the_cache = ended_with(
    r"(?P<said>LocalEntryNotFoundError|OfflineModeIsEnabled|offline mode is enabled"
    r"|couldn't connect to 'https?://[^']+' to load|outgoing traffic has been disabled"
    r"|Cannot find the requested files in the (?:local|disk) cache)",
    "It ended because a file of the hub is not in the cache",
)


def _asks_itself(scene: Scene) -> Found | None:
    """A process waits for the answer of a port at which it listens itself, in code of Python's. An
    event loop that only waits takes the request meanwhile.
    """
    view, socket = scene.view, scene.blocking
    if view is None or view.running or socket is None or scene.group is not None:
        return None
    if view.main is not None and takes_connections(view.main):
        return None
    caller = view.call.caller if view.call is not None else ""
    if caller and not CODE_OF_PYTHON.search(caller):
        return None  # a library's server, as a store of torch's, has a thread without Python
    own = {port_of(one.local) for one in view.look.sockets if one.state == "LISTEN"}
    port = port_of(socket.peer)
    if {*socket.peer_pids} != {view.look.pid} or not port or port not in own:
        return None
    frame = innermost_python_frame(view.frames)
    place = format_frame(frame) if frame is not None else view.call_name
    words = f"it waits in {place} for an answer of {socket.peer}, at which it listens itself"
    return Found(words, {"address": socket.peer, "place": place})


def _no_other_thread_answers(scene: Scene) -> Found | None:
    """No other thread of it takes connections, or is at work."""
    if scene.view is None or not only_main_thread_acts(scene.view.look):
        return None
    return Found("no other thread of it could answer")


# ---- causes --------------------------------------------------------------------------------------

_OFFLINE = "HF_HUB_OFFLINE=1, set before the job starts: what is loaded must be in the cache"
_TOGGLES = (("hub", "rank0-first"), ("hub", "offline"))

CAUSES = (
    KnownCause(
        id="hub-silent",
        title="the Hugging Face hub accepts the connection and does not answer",
        signs=(
            need(_asks_the_hub, 0.5),
            need(_connected, 0.6),
            also(nothing_came, 0.5),
            unless(through_a_proxy),
            unless(_downloads_by_xet),
            unless(_uploads_to_the_hub),
        ),
        why="{peer} is connected and sends nothing. The hub's time limits are for each request; "
        "with retries, and many files, minutes go by without a line.",
        avoid=(_OFFLINE, "look at HF_ENDPOINT: does `curl -m 5 $HF_ENDPOINT` answer from here?"),
        toggles=(("hub", "offline"),),
        references=("huggingface/setfit#495", "espnet/espnet_model_zoo#76"),
    ),
    KnownCause(
        id="hub-unreachable",
        title="the Hugging Face hub cannot be reached from this machine",
        signs=(
            need(_asks_the_hub, 0.5),
            need(_unanswered, 0.75, proves=True),
            unless(through_a_proxy),
            unless(_uploads_to_the_hub),
        ),
        why="Nothing answers the connection to {peer}: compute nodes often have no way out.",
        avoid=(
            _OFFLINE,
            "`hf download NAME` on a machine with a way out; share its HF_HOME with the nodes",
        ),
        toggles=(("hub", "offline"),),
        references=("huggingface/setfit#495",),
    ),
    KnownCause(
        id="hub-retries",
        title="the Hugging Face hub refuses or fails, and the request is tried again and again",
        signs=(
            need(_asks_the_hub, 0.3),
            need(_between_two_tries, 0.75),
            unless(_uploads_to_the_hub),
        ),
        why="huggingface_hub tries a failed request again, with growing pauses, for every file.",
        avoid=(
            _OFFLINE,
            "look at HF_ENDPOINT and at the hub's own state",
        ),
        toggles=_TOGGLES,
        references=("huggingface/kernels#640", "huggingface/huggingface_hub#3312"),
    ),
    KnownCause(
        id="hub-upload",
        title="an upload to the Hugging Face hub is not answered",
        signs=(
            need(_uploads_to_the_hub, 0.6),
            need(_waits_for_the_hub, 0.6),
            also(nothing_came, 0.4),
            unless(through_a_proxy),
        ),
        why="A rank pushes to the hub, which does not answer; a failed request is tried again, for "
        "every file, with growing pauses.",
        avoid=(
            "push once training is over, from one process: without --push_to_hub, then `hf upload`",
            "look at HF_ENDPOINT: does `curl -m 5 $HF_ENDPOINT` answer from here?",
        ),
        cannot_help=("hub",),
        references=("huggingface/huggingface_hub#3312",),
    ),
    KnownCause(
        id="hub-file-missing",
        title="a file of the hub is wanted offline, and is not in the cache",
        signs=(need(_not_in_the_cache, 0.85, proves=True),),
        why="The hub was not asked, or not reached, and the cache has not what is wanted: {said}.",
        avoid=(
            "download once where the hub can be reached: `hf download NAME`, with the same HF_HOME",
            "a local folder instead of a name",
        ),
        references=("huggingface/transformers#26011",),
        outcomes=("crash",),
    ),
    KnownCause(
        id="xet-stall",
        title="a download by hf_xet or hf_transfer stands still",
        signs=(
            need(_downloads_by_xet, 0.65),
            also(_has_a_connection, 0.4),
            unless(_uploads_to_the_hub),
        ),
        why="{library} downloads in native code with limits of its own; versions 1.5.0 and 1.5.1 "
        "of hf_xet could stand still for ever.",
        avoid=(
            "a newer hf_xet (1.5.2 or later)",
            "HF_HUB_DISABLE_XET=1, and no HF_HUB_ENABLE_HF_TRANSFER, set before the job starts: "
            "slower downloads",
        ),
        toggles=_TOGGLES,
        references=(
            "huggingface/xet-core#850",
            "huggingface/xet-core#869",
            "huggingface/hf_transfer#30",
        ),
    ),
    KnownCause(
        id="hub-conversion",
        title="transformers asks the hub, in a thread, to convert the model",
        signs=(need(_converts_in_a_thread, 0.7), need(_waits_for_threads, 0.6)),
        why="A model without safetensors makes transformers ask for a conversion in a thread; the "
        "process cannot end before that thread does.",
        avoid=(
            "DISABLE_SAFETENSORS_CONVERSION=1, or from_pretrained(..., local_files_only=True)",
            "a model that has safetensors",
        ),
        toggles=(("hub", "offline"),),
        references=("huggingface/transformers#29500", "huggingface/transformers#31004"),
    ),
    KnownCause(
        id="endpoint-silent",
        title="a server accepts the connection and does not answer",
        signs=(
            need(_reads_from_outside, 0.5),
            also(_in_a_client, 0.3),
            also(nothing_came, 0.35),
            also(_the_other_end_is_here, 0.2),
            also(_in_a_handshake, 0.1),
            unless(_it_stands_still_beside),
            unless(its_peer_waits_in_turn),
            unless(_asks_the_hub),
            unless(asks_a_manager),
            unless(in_wandb),
            unless(through_a_proxy),
        ),
        why="The rank reads from {peer}, which sends nothing; without a time limit that lasts for "
        "ever.",
        avoid=(
            "give the request a time limit: {limit}",
            "load from a local copy",
        ),
        references=("huggingface/setfit#495", "espnet/espnet_model_zoo#76"),
    ),
    KnownCause(
        id="endpoint-unreachable",
        title="a server cannot be reached from this machine",
        signs=(
            need(_opens_to_outside, 0.65, proves=True),
            also(_in_a_client, 0.3),
            unless(_asks_the_hub),
            unless(in_wandb),
            unless(through_a_proxy),
        ),
        why="Nothing answers the connection to {peer}: no route, or a firewall is silent.",
        avoid=(
            "look at the address, and whether compute nodes have a way out (a proxy?)",
            "give the connection a time limit",
        ),
        references=("huggingface/setfit#495",),
    ),
    KnownCause(
        id="endpoint-unserved",
        title="nobody serves the address to which a message queue connects",
        signs=(need(waits_at_a_queue, 0.4), need(_nobody_serves_its_address, 0.6)),
        why="In {place} the rank waits for a message. ZeroMQ raises nothing where nobody listens: "
        "it tries {address} again and again, without a word.",
        avoid=(
            "look whether what is to serve {address} was started, lives, and has bound the same "
            "address",
            "socket.setsockopt(zmq.RCVTIMEO, 60000): an error in place of silence",
        ),
        references=(
            "vllm-project/vllm#50039",
            "https://libzmq.readthedocs.io/en/latest/zmq_connect.html",
        ),
    ),
    KnownCause(
        id="server-asks-itself",
        title="a server asks itself, and its only thread waits for the answer",
        signs=(need(_asks_itself, 0.6), need(_no_other_thread_answers, 0.7, proves=True)),
        why="In {place} the server waits for {address}, which is its own: while it waits there, as "
        "in a handler of an event loop that makes a call which blocks, nobody takes the request.",
        avoid=(
            "call the function in place of its endpoint",
            "an async client (aiohttp, httpx.AsyncClient), or asyncio.to_thread for a call that "
            "blocks",
            "a time limit for the request: an error in place of silence",
        ),
        references=("fastapi/fastapi#2601",),
    ),
)
