"""Several machines as one job: nobody is taken for somebody else."""

from __future__ import annotations

from dataclasses import replace

from hangbisect.attach.node_facts import NodeFacts
from hangbisect.attach.nodes.asking import Answer, Node, RemoteJob
from hangbisect.attach.nodes.merge import judge_answers, mark_pids, merge_nodes, unmark_pids
from hangbisect.base.facts import (
    Descriptor,
    Frame,
    Kernel,
    Look,
    RankFacts,
    Sample,
    Socket,
    Syscall,
    Thread,
)
from hypothesis import given
from hypothesis import strategies as st

WAITS = (
    Frame("wait", "/usr/lib/python3.11/subprocess.py", 1264),
    Frame("build", "/home/ada/train.py", 9),
)


def look(pid: int, ppid: int, name: str, call: Syscall | None, *frames: Frame) -> Look:
    threads = (Thread(pid, "MainThread", False, False, frames),) if frames else ()
    kernel = (Kernel(pid, name, "S", "", call),)
    sample = Sample(1.0, pid, 5, "S", 1.0, 10**13, 0)
    return Look(1.0, pid, ppid, name, (name,), 9.0, "S", "py-spy", threads, kernel, sample=sample)


def machine(host: str, *ranks: RankFacts, **more: object) -> NodeFacts:
    made = NodeFacts(host, ("python", "t.py"), 2, False, 9.0, 5.0, 2.5, ranks)
    return replace(made, **more)  # type: ignore[arg-type]


def waits_for_a_child(rank: int) -> RankFacts:
    """A rank of pid 7 that waits for its child 8: the same numbers in each container."""
    call = Syscall(61, "wait4", (8, 0, 0, 0, 0, 0))
    child = look(8, 7, "make", Syscall(0, "read", (0,)))
    looks = (look(7, 1, "python", call, *WAITS),) * 2
    return RankFacts(rank, pid=7, looks=looks, children=((child,) * 2,))


def test_a_child_is_that_of_its_own_rank() -> None:
    answers = [Answer(Node(f"pod-{n}", (), ""), machine("x", waits_for_a_child(n))) for n in (0, 1)]
    found = judge_answers(RemoteJob(tuple(a.node for a in answers), "a job", ""), answers, 100.0)
    assert [(r.rank, r.pid, r.host) for r in found.ranks] == [(0, 7, "pod-0"), (1, 7, "pod-1")]
    wait = found.verdict.waits_for
    assert wait is not None
    assert (wait.kind, wait.pid, wait.process, wait.rank) == ("process", 8, "make", None)
    assert all(len(word) < 8 for edge in found.verdict.chain for word in edge.target.split())


def test_stand_ins_of_one_machine_are_no_ranks_of_another() -> None:
    nodes = merge_nodes(
        [
            machine("a", RankFacts(0, pid=7), RankFacts(1, pid=8), unnumbered=(0, 1), quiet=(0, 1)),
            machine("b", RankFacts(0, pid=9), world=4, moving=(0,)),
        ]
    )
    assert [[r.rank for r in node.ranks] for node in nodes] == [[1, 2], [0]]
    assert (nodes[0].unnumbered, nodes[0].quiet, nodes[1].moving) == ((1, 2), (1, 2), (0,))


def test_a_rank_that_two_machines_have_is_left_out_and_said() -> None:
    nodes = merge_nodes([machine("a", RankFacts(0, pid=7)), machine("b", RankFacts(0, pid=7))])
    assert nodes[1].ranks == ()
    assert nodes[1].notes[0].startswith("rank 0 runs on a and on b: two jobs")


@given(st.integers(1, 4_194_304), st.integers(1, 9999))
def test_marks_come_off_again(pid: int, at: int) -> None:
    end = Socket(3, "tcp", "10.0.0.1:29500", received=5 * 10**12, peer_pids=(pid,))
    call = Syscall(0, "read", (3,), descriptors=(Descriptor(3, "socket", "s", (pid,), end),))
    node = machine("a", RankFacts(1, pid=pid, looks=(look(pid, 1, "python", call),)))
    one = mark_pids(node, at)
    assert one.ranks[0].pid != pid
    assert unmark_pids(one) == node
    assert (
        unmark_pids(f"process {one.ranks[0].pid} (10.0.0.1:29500)")
        == f"process {pid} (10.0.0.1:29500)"
    )
