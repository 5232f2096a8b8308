"""Runtimes besides torch.distributed: MPI that is asked for although nobody started the ranks with
it; inference servers that wait for their workers, or that are waited for and are not there.
"""

from __future__ import annotations

import re

from ...base.launchers import DIALECTS
from ...base.library_functions import Role, find_role
from ...base.native_code import CODE_OF_MPI
from ...base.process_facts import Look
from ..process.blocked_syscalls import SLEEP_CALLS
from ..process.blocking_reason import describe_asked
from ..process.frames import format_frame, format_innermost_frame
from ..process.spin_waits import find_mpi_call
from ..server_roles import stands_in_serving_loop
from .known_cause import Found, KnownCause, Scene, also, find_frame, need, unless
from .signs import (
    find_blocked_processes,
    find_native_frame,
    format_process,
    frame_in,
    native_name,
)

_PROBES = r"(?:pytorch_lightning|lightning_fabric|lightning/\w+)/\S*environments/mpi\.py"
_MPI4PY = r"mpi4py/\S*\.(?:py|pyx|so)|/mpi4py/\S+"
_MPI = r"^(?:P?MPI_(?:Init\w*|Finalize)|(?:ompi|orte|opal|pmix|prte)_\w+|PMIx?_\w+|MPI[DR]\w*_\w+)"
_STARTED_BY_MPI = tuple(
    name for words in DIALECTS.values() if words.family == "MPI" for name in words.prefixes
)


def _probes_for_mpi(scene: Scene) -> Found | None:
    """Lightning asks whether it runs under MPI (MPIEnvironment.detect imports mpi4py)."""
    frame = scene.frame(_PROBES, "detect|__init__")
    if frame is None:
        return None
    return Found(
        f"Lightning probes for MPI: frame {format_frame(frame)}", {"place": format_frame(frame)}
    )


def _starts_mpi(scene: Scene) -> Found | None:
    """A rank is in MPI_Init, or imports mpi4py.MPI, which calls it, or waits in a system call of
    MPI's libraries.
    """
    if find_mpi_call(scene.frames).partition("_")[0] not in ("", "init", "finalize"):
        return None  # it is up, and waits for others
    native = find_native_frame(scene.frames, _MPI, CODE_OF_MPI.pattern)
    if native is not None:
        return Found(f"native frame {native_name(native)}", {"call": native_name(native)})
    python = find_frame(tuple(f for f in scene.frames if not f.native), _MPI4PY)
    if python is not None:
        return Found(f"frame {format_frame(python)}", {"call": format_frame(python)})
    call = scene.view.call if scene.view is not None else None
    if call is not None and CODE_OF_MPI.search(call.caller):
        library = call.caller.rpartition("/")[2]
        return Found(f"{library} waits in {call.name}", {"call": library})
    return None


def _not_started_by_mpi(scene: Scene) -> Found | None:
    """No variable of mpirun or of Slurm's PMI is set."""
    names = [n for n in scene.environment if n.startswith(_STARTED_BY_MPI)]
    return None if names else Found("no variable of mpirun or srun's PMI is set")


MPI_CAUSES = (
    KnownCause(
        id="mpi-probe",
        title="mpi4py is installed, and Lightning's question for MPI does not come back",
        signs=(
            need(_probes_for_mpi, 0.75),
            also(_starts_mpi, 0.4),
            also(_not_started_by_mpi, 0.3),
        ),
        why="To choose its environment Lightning imports mpi4py.MPI, which starts MPI at once. "
        "Without mpirun that waits for a daemon, a network or a licence that is not there.",
        avoid=(
            "pip uninstall mpi4py, if nothing else needs it",
            "Trainer(plugins=[LightningEnvironment()]): nothing is probed then",
            "MPI4PY_RC_INITIALIZE=0: mpi4py then starts MPI only when told",
        ),
        references=(
            "Lightning-AI/pytorch-lightning#20049",
            "Lightning-AI/pytorch-lightning#19768",
            "https://mpi4py.readthedocs.io/en/stable/mpi4py.html",
        ),
    ),
    KnownCause(
        id="mpi-init",
        title="MPI does not come up",
        signs=(need(_starts_mpi, 0.6), also(_not_started_by_mpi, 0.45), unless(_probes_for_mpi)),
        why="A rank starts MPI ({call}), which waits for its daemons or for the other ranks.",
        avoid=(
            "start the ranks by mpirun or `srun --mpi=pmix`, or start no MPI under torchrun",
            "MPI4PY_RC_INITIALIZE=0 where mpi4py is only imported by the way",
        ),
        references=("KimMeen/Time-LLM#196", "openai/spinningup#358"),
    ),
)


_engine = frame_in(
    r"vllm/\S*(?:shm_broadcast|core_client|engine/utils|multiproc_executor|engine/core)\.py",
    r"acquire_read|acquire_write|dequeue|wait_for_engine_startup|wait_for_ready|wait_until_ready"
    r"|_wait_for_engine_startup|collective_rpc|get_response|recv_multipart|wait",
    "A process of vLLM waits for its engine or its workers",
)


def _broadcast_is_empty(scene: Scene) -> Found | None:
    """The engine says that its workers sent nothing for a minute."""
    pattern = r"No available shared memory broadcast block found in \d+ seconds"
    found = scene.wrote(pattern, scene.ranks)
    return None if found is None else Found(f'it said "{found[1][0]}"')


_API_SERVER = r"vllm/v1/engine/utils\.py"


def _engines_elsewhere_are_missing(scene: Scene) -> Found | None:
    """All engines of its own node have connected to the API server, and not all of others: it
    counts both (vllm/v1/engine/utils.py, 0.32).
    """
    last = [looks[-1] for one in scene.ranks for looks in (one.looks, *one.children) if looks]
    stacks = (look.main.frames for look in last if look.main is not None)
    found = (find_frame(frames, _API_SERVER, "wait_for_engine_startup") for frames in stacks)
    told = next((dict(frame.locals) for frame in found if frame is not None), {})
    counts = re.findall(r"\d+", told.get("conn_pending", ""))
    here, elsewhere = map(int, counts) if len(counts) == 2 else (0, 0)
    if here or not elsewhere:
        return None
    number = "1 engine" if elsewhere == 1 else f"{elsewhere} engines"
    return Found(f"the API server waits for {number} of other nodes to connect")


def _waits_for_work(scene: Scene) -> Found | None:
    """It is a worker that has started, and waits in its loop for what it is asked."""
    if scene.view is None or not stands_in_serving_loop(scene.view.frames):
        return None
    return Found(f"it waits for requests in {format_innermost_frame(scene.frames)}")


def _in_a_group(scene: Scene) -> Found | None:
    """A rank waits for its peers in torch.distributed."""
    if scene.group is None:
        return None
    where = format_innermost_frame(scene.frames)
    return Found(f"it waits in {where}")


def _port_is_taken(scene: Scene) -> Found | None:
    """A process waits for a port to become free, and another one listens there."""
    taken = next(iter(scene.view.look.taken_ports), None) if scene.view is not None else None
    if taken is None or taken.holder is None:
        return None
    who = f"{taken.holder_name} (pid {taken.holder})"
    return Found(f"{who} listens at port {taken.port}", {"who": who, "port": str(taken.port)})


def _a_server_waits_for_it(scene: Scene) -> Found | None:
    """A function of a server's waits for the port: what has it does not give it back by itself."""
    frame = find_role(scene.frames, Role.AWAITS_PORT)
    return Found(f"it waits in {format_frame(frame)}") if frame is not None else None


def _asks_a_server(scene: Scene) -> Found | None:
    """It asks an address again and again until a server answers there, and none does."""
    asked = scene.view.look.asked_server if scene.view is not None else None
    if asked is None or scene.call not in SLEEP_CALLS:
        return None
    who = f"{asked.name} (pid {asked.process})" if asked.process is not None else "the server"
    words = f"it asks {describe_asked(asked)}"
    return Found(words, {"url": asked.url, "who": who}, doubtful=not asked.is_here)


def _nobody_listens_there(scene: Scene) -> Found | None:
    """No socket of this machine listens at the port that it asks."""
    asked = scene.view.look.asked_server if scene.view is not None else None
    if asked is None or not asked.is_here or asked.listens:
        return None
    return Found("no socket of this machine listens at that port")


def _its_address_is_anothers(scene: Scene) -> Found | None:
    """A process listens at the path of a Unix socket, to which nobody is connected, and another one
    listens at the same path with a connection there.
    """
    living = [facts.looks[-1] for facts in scene.living if facts.looks]
    others = [*living, *scene.children, *(view.look for view in scene.beside.values())]
    for view in reversed(find_blocked_processes(scene)):
        for address, inode in _list_lonely_addresses(view.look).items():
            for other in others:
                if other.pid != view.look.pid and _has_a_client_at(address, inode, other):
                    who, taker = format_process(view.look), format_process(other)
                    values = {"address": address, "who": who, "taker": taker}
                    words = f"{who} listens at {address}, to which nobody is connected"
                    words = f"{words}; {taker} listens there too, and has a client"
                    # A path that begins in a folder may be another one in another process.
                    return Found(words, values, trust=1.0 if address[0] in "/@" else 0.9)
    return None


def _list_lonely_addresses(look: Look) -> dict[str, int]:
    """Return the paths at which a process listens and nobody is connected, each with the inode of
    the socket.
    """
    own = [one for one in look.sockets if one.family == "unix" and one.local]
    used = {one.local for one in own if one.state == "ESTABLISHED"}
    return {one.local: one.inode for one in own if one.state == "LISTEN" and one.local not in used}


def _has_a_client_at(address: str, inode: int, other: Look) -> bool:
    """Return whether a process has a socket of its own at that path (a forked one has the same),
    and a connection to it.
    """
    there = [one for one in other.sockets if one.family == "unix" and one.local == address]
    listens = any(one.state == "LISTEN" and one.inode != inode for one in there)
    return listens and any(one.state == "ESTABLISHED" for one in there)


SERVER_CAUSES = (
    KnownCause(
        id="address-taken-over",
        title="another process has taken over the address at which it listens",
        signs=(need(_its_address_is_anothers, 0.85),),
        why="{who} listens at {address}, and {taker} was bound to the same path later: what "
        "connects there comes to that one alone, for a path leads to the socket that was bound "
        "last (ZeroMQ removes the file of an earlier one, without a word).",
        avoid=(
            "an address of its own for each process: its number or its pid in the path",
            "ls -l {address} before bind(): whoever finds it there stops",
        ),
        references=(
            "https://man7.org/linux/man-pages/man7/unix.7.html",
            "https://libzmq.readthedocs.io/en/latest/zmq_ipc.html",
        ),
    ),
    KnownCause(
        id="port-taken",
        title="another process listens at the port that it waits for",
        signs=(need(_port_is_taken, 0.9), also(_a_server_waits_for_it, 0.2, proves=True)),
        why="It asks for port {port} again and again, and {who} listens there: another server, or "
        "what is left of an earlier one, whose processes outlive it where it was killed.",
        avoid=(
            "end {who}, if it is left of an earlier start",
            "another port: --port, and where the ranks meet: --nccl-port, --dist-init-addr",
        ),
        references=("huggingface/trl#3925", "huggingface/trl#3736"),
    ),
    KnownCause(
        id="engine-elsewhere-missing",
        title="engines of another node have not come to vLLM's API server",
        signs=(need(_engines_elsewhere_are_missing, 0.8),),
        why="It was told of more engines (--data-parallel-size) than it starts itself "
        "(--data-parallel-size-local), and waits without an end for the others to connect; what "
        "it waits for it says with VLLM_LOGGING_LEVEL=DEBUG only.",
        avoid=(
            "look at the other nodes: does `vllm serve --headless` run there, with the same "
            "--data-parallel-size?",
            "the same --data-parallel-address and --data-parallel-rpc-port there, and a "
            "--data-parallel-start-rank for each; that port open to them",
        ),
        references=(
            "https://docs.vllm.ai/en/latest/serving/data_parallel_deployment/",
            "vllm-project/vllm#44878",
        ),
    ),
    KnownCause(
        id="server-not-up",
        title="the server that is asked is not up",
        signs=(need(_asks_a_server, 0.6), also(_nobody_listens_there, 0.5)),
        why="It asks {url} again and again until its time limit is over. A server listens once it "
        "has loaded its model; one that was not started, has died, or was given another port or "
        "host never does.",
        avoid=(
            "look whether {who} lives, what it printed last, and what it waits for itself: attach "
            "to its pid",
            "`curl -m 5 {url}` on the machine of the trainer: the same host and port as the server "
            "was started with (0.0.0.0 is no address of another machine)",
            "a longer limit, where it only loads for long: GRPOConfig(vllm_server_timeout=...)",
        ),
        references=("huggingface/trl#3925", "huggingface/trl#3736"),
    ),
    KnownCause(
        id="vllm-workers",
        title="vLLM's engine waits for its workers",
        signs=(
            need(_engine, 0.6),
            also(_broadcast_is_empty, 0.4),
            unless(_in_a_group),
            unless(_engines_elsewhere_are_missing),
            unless(_waits_for_work),
        ),
        why="The engine waits for a worker that still compiles or loads, or is stuck in NCCL; it "
        "says so once a minute.",
        avoid=(
            "who stands still is at the end of the chain: a worker, or the engine itself",
            "wait while they use CPU; enforce_eager=True leaves compilation out: slower later",
        ),
        references=("vllm-project/vllm#27313", "vllm-project/vllm#6370", "vllm-project/vllm#9920"),
    ),
)
