"""Inference servers."""

from __future__ import annotations

from typing import Any

from hangbisect.base.process_facts import AskedServer, Descriptor, Socket, TakenPort

from ..made_up import job, look, rank
from .scenes import Facts, Shows, causes_of, with_locals


def one(*frames: str, **more: Any) -> Facts:
    return job(world=1), [rank(0, look(*frames, "<module> train.py:9", call="futex"), **more)]


def vllm_workers() -> Facts:
    return one(
        "acquire_read SP/vllm/distributed/device_communicators/shm_broadcast.py:460",
        "dequeue SP/vllm/distributed/device_communicators/shm_broadcast.py:540",
        output=("No available shared memory broadcast block found in 60 seconds.",),
    )


def engine_elsewhere(connect: str = "[0, 1]") -> Facts:
    waits = look(
        "Poller.poll SP/zmq/sugar/poll.py:106",
        "wait_for_engine_startup SP/vllm/v1/engine/utils.py:1398",
        "main SP/vllm/entrypoints/cli/main.py:120",
        call="poll",
    )
    told = with_locals(
        waits, "wait_for_engine_startup", conn_pending=connect, start_pending="[1, 0]"
    )
    return job(world=1), [rank(0, told)]


def waits_for_port(*taken: TakenPort) -> Facts:
    waits = look(
        "wait_port_available SP/sglang/srt/utils/common.py:42",
        "_launch_subprocesses SP/sglang/srt/entrypoints/engine.py:9",
        call="clock_nanosleep",
        taken_ports=taken,
    )
    return job(world=1), [rank(0, waits)]


def port_taken() -> Facts:
    return waits_for_port(TakenPort(30000, 4711, "scheduler TP0"))


URL = "http://localhost:8000/health"


def asks_for_server(asked: AskedServer | None, call: str = "clock_nanosleep") -> Facts:
    waits = look(
        "check_server SP/trl/generation/vllm_client.py:301",
        "__init__ SP/trl/trainer/grpo_trainer.py:1107",
        call=call,
        asked_server=asked,
    )
    return job(world=1), [rank(0, waits)]


def server_not_up() -> Facts:
    return asks_for_server(AskedServer(URL, is_here=True, process=4711, name="API server"))


def fronts(*, taker: int = 8, client: str = "ESTABLISHED") -> Facts:
    """A supervisor reads the ready pipe of a front, whose path another front has bound too."""
    path = "/tmp/answers.sock"
    waits = look(
        "Socket.recv SP/zmq/sugar/socket.py:960",
        "wait_for_engine train.py:43",
        pid=201,
        ppid=100,
        name="ApiServer_0",
        call="poll",
        sockets=(Socket(7, "unix", local=path, state="LISTEN"),),
    )
    serves = look(
        "Connection._recv STD/multiprocessing/connection.py:395",
        pid=202,
        ppid=100,
        name="ApiServer_1",
        call="read",
        sockets=(
            Socket(taker, "unix", local=path, state="LISTEN"),
            Socket(9, "unix", local=path, state=client, peer_pids=(203,)),
        ),
    )
    end = Descriptor(3, "pipe", "pipe:[7]", other_ends=(201,))
    reads = look(
        "Connection._recv STD/multiprocessing/connection.py:395",
        "supervise train.py:58",
        call="read",
        descriptors=(end,),
    )
    return job(world=1), [rank(0, reads, children=((waits,), (serves,)))]


SHOWS: Shows = {
    "address-taken-over": fronts,
    "engine-elsewhere-missing": engine_elsewhere,
    "port-taken": port_taken,
    "server-not-up": server_not_up,
    "vllm-workers": vllm_workers,
}


def test_a_program_that_waits_for_a_queue_of_its_own_waits_for_no_engine() -> None:
    found = causes_of(one("step STD/queue.py:171", "Queue.get STD/queue.py:171"))
    assert not set(SHOWS) & set(found)


def test_who_listens_at_the_port_is_named() -> None:
    (cause,) = [one for one in causes_of(port_taken()).values() if one.id == "port-taken"]
    assert cause.matched[0] == "scheduler TP0 (pid 4711) listens at port 30000"


def test_a_port_that_nobody_is_known_to_have_is_not_taken() -> None:
    assert "port-taken" not in causes_of(waits_for_port())
    assert "port-taken" not in causes_of(waits_for_port(TakenPort(30000, None)))


def test_who_has_taken_an_address_over_is_named() -> None:
    cause = causes_of(fronts())["address-taken-over"]
    assert "ApiServer_0 (201) listens at /tmp/answers.sock" in cause.why
    assert "ApiServer_1 (202) was bound" in cause.why
    assert "address-taken-over" not in causes_of(fronts(taker=7))  # forked: it is the same socket
    assert "address-taken-over" not in causes_of(fronts(client="LISTEN"))


def test_an_engine_of_its_own_that_has_not_come_is_no_other_nodes() -> None:
    for connect in ("[1, 1]", "[1, 0]", "[0, 0]", ""):
        found = causes_of(engine_elsewhere(connect))
        assert "engine-elsewhere-missing" not in found
        assert "vllm-workers" in found
    assert "vllm-workers" not in causes_of(engine_elsewhere())


def test_who_was_started_to_listen_where_nobody_does_is_named() -> None:
    (cause,) = [one for one in causes_of(server_not_up()).values() if one.id == "server-not-up"]
    assert "nobody listens; API server (pid 4711) was started to listen there" in cause.matched[0]
    assert "look whether API server (pid 4711) lives" in cause.avoid[0]


def test_of_a_server_on_another_machine_it_is_a_guess_that_it_is_not_up() -> None:
    away = asks_for_server(AskedServer("http://engine-0:8000/health", is_here=False))
    (cause,) = [one for one in causes_of(away).values() if one.id == "server-not-up"]
    assert cause.level == "guess"
    assert "on another machine" in cause.matched[0]


def test_one_that_reads_an_answer_does_not_wait_for_a_server_to_come_up() -> None:
    asked = AskedServer(URL, is_here=True, listens=True)
    assert "server-not-up" not in causes_of(asks_for_server(asked, "recvfrom"))
    assert "server-not-up" not in causes_of(asks_for_server(None))
