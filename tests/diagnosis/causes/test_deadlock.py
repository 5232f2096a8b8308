"""Rings of locks, pipes, children, threads and ranks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hangbisect.base.process_facts import Descriptor, FileLock, Futex, Kernel, Syscall
from hangbisect.base.rank_facts import RankFacts
from hangbisect.diagnosis.causes.catalogue import find_likeliest_cause
from hangbisect.diagnosis.proof_of_hang import find_proof_of_hang
from hangbisect.diagnosis.snapshot import Snapshot
from hangbisect.diagnosis.verdict import judge_job_with_graph

from ..made_up import ALL_REDUCE, RECV, held, job, look, rank, silent_peer, stack
from .scenes import Facts, Shows, causes_of, scene_of


def locked_in_a_collective() -> Facts:
    """Rank 0 wants a lock that rank 1 has, and rank 1 is in a collective."""
    wants = look("step train.py:5", call="flock", locks=(FileLock("/x.lock", 5, 101, "python"),))
    return job(), [rank(0, wants), rank(1, ALL_REDUCE)]


def full_pipe() -> Facts:
    """A rank waits for the end of a child that writes into a pipe which the rank does not read."""
    pipe = Descriptor(1, "pipe", "pipe:[3]", other_ends=(100,))
    child = look(pid=901, ppid=100, name="git", call="write", descriptors=(pipe,))
    waits = look("Popen.wait STD/subprocess.py:1264", call="wait4", args=(901, 0, 0, 0))
    return job(), [rank(0, waits, children=((child,),)), held(1)]


def two_mutexes() -> Facts:
    """Two threads of a rank, each with the mutex that the other wants."""

    def wants(owner: int) -> Syscall:
        return Syscall(202, "futex", (0,) * 6, futex=Futex(0x7F00, owner, owner, True))

    one = rank(0, look("step train.py:5"))
    kernel = (Kernel(100, "python", "S", "", wants(555)), Kernel(555, "py", "S", "", wants(100)))
    return job(), [replace(one, looks=(replace(one.looks[0], kernel=kernel),)), held(1)]


SHOWS: Shows = {"deadlock": locked_in_a_collective}


def test_a_pipe_that_the_parent_does_not_read_is_one() -> None:
    cause = find_likeliest_cause(scene_of(full_pipe()))
    assert cause is not None
    assert cause.id == "deadlock"
    assert "rank 0 -> process 901 -> pipe:[3] -> rank 0." in cause.why


def test_where_the_kernel_says_that_it_is_full_it_is_told_as_an_output_that_nobody_reads() -> None:
    """`deadlock` advises of locks and collectives; here somebody has to read 64 KiB, and more."""
    about, (waits, other) = full_pipe()
    ((child,),) = waits.children
    (main,) = child.kernel
    full = replace(child, kernel=(replace(main, wchan="anon_pipe_write"),))
    facts = about, [replace(waits, children=((full,),)), other]
    cause = find_likeliest_cause(scene_of(facts))
    assert cause is not None
    assert (cause.id, cause.level) == ("pipe-unread", "seen")
    assert "communicate()" in str(cause.avoid)
    scene = scene_of(facts)
    assert scene.graph is not None
    verdict = replace(scene.verdict, cause=cause)
    assert find_proof_of_hang(verdict, Snapshot(scene.ranks), scene.graph)


def test_two_threads_with_each_others_mutex_are_one() -> None:
    cause = find_likeliest_cause(scene_of(two_mutexes()))
    assert cause is not None
    assert cause.id == "deadlock"
    assert "thread 555" in cause.why


def test_every_edge_is_named() -> None:
    cause = causes_of(locked_in_a_collective())["deadlock"]
    for edge in ("rank 0 -> lock /x.lock", "lock /x.lock -> rank 1", "all_reduce -> rank 0"):
        assert edge in cause.matched[0]


def test_ranks_that_only_meet_one_another_are_none() -> None:
    meet = job(), [rank(r, ALL_REDUCE, reached=11) for r in range(4)]
    assert "deadlock" not in causes_of(meet)


def test_a_lock_whose_owner_waits_for_the_network_is_none() -> None:
    _, ranks = locked_in_a_collective()
    assert "deadlock" not in causes_of((job(), [ranks[0], rank(1, RECV)]))


def test_a_worker_that_waits_for_its_next_task_is_none() -> None:
    pipe = Descriptor(0, "pipe", "pipe:[3]", other_ends=(100,))
    idle = look(
        "Queue.get STD/multiprocessing/queues.py:103",
        "_worker_loop SP/torch/utils/data/_utils/worker.py:250",
        pid=901,
        ppid=100,
        name="pt_data_worker",
        call="read",
        descriptors=(pipe,),
    )
    waits = look(
        "wait STD/multiprocessing/connection.py:947",
        "_try_get_data SP/torch/utils/data/dataloader.py:1291",
        call="poll",
    )
    assert "deadlock" not in causes_of((job(), [rank(0, waits, children=((idle,),)), held(1)]))


def sends(number: int, to: int, name: str = "sendto", reader: bool = False) -> RankFacts:
    """A rank that sends to another one over a connection whose buffers are full, or hears it;
    `reader`: it has a thread that receives.
    """
    peer = silent_peer(f"127.0.0.1:{5000 + to}", peer_pids=(100 + to,), peer_names=("python",))
    one = look("exchange train.py:35", "train train.py:46", call=name, descriptors=(peer,))
    made = rank(number, one, replace(one, at=103.0), pid=100 + number)
    if not reader:
        return made
    takes = Kernel(901, "reader", "S", "", Syscall(0, "recvfrom", ()))
    thread = replace(one.threads[0], os_id=901, frames=stack("receive train.py:20"))
    looks = (
        replace(seen, kernel=(*seen.kernel, takes), threads=(*seen.threads, thread))
        for seen in made.looks
    )
    return replace(made, looks=tuple(looks))


@pytest.mark.parametrize("others", [0, 2])
def test_two_that_each_send_before_they_read_wait_for_one_another(others: int) -> None:
    """Further ranks hear one of the two."""
    hear = [sends(number, 2 + others - 1, "recvfrom") for number in range(others)]
    ranks = [*hear, sends(others, others + 1), sends(others + 1, others)]
    facts = job(world=len(ranks)), ranks
    cause = find_likeliest_cause(scene_of(facts))
    assert cause is not None
    assert (cause.id, cause.level) == ("deadlock", "seen")
    verdict, graph = judge_job_with_graph(*facts)
    assert verdict.ranks.culprit == (others, others + 1)
    assert find_proof_of_hang(verdict, Snapshot(ranks), graph)


@pytest.mark.parametrize("other", [sends(1, 0, "recvfrom"), sends(1, 0, reader=True)])
def test_who_hears_its_peer_or_may_read_by_another_thread_is_in_no_ring(other: RankFacts) -> None:
    cause = find_likeliest_cause(scene_of((job(), [sends(0, 1), other])))
    assert cause is None or cause.id != "deadlock"
