"""Several machines as one job: nobody is taken for somebody else."""

from __future__ import annotations

import json
import re
from dataclasses import replace

from hangbisect.attach.answer import hang_lines, moving_lines
from hangbisect.attach.judgement import Judgement, judge_nodes
from hangbisect.attach.node_facts import NodeFacts
from hangbisect.attach.nodes import Node, NodeAnswer, RemoteJob, merge_nodes
from hangbisect.attach.session import judge_answers
from hangbisect.base.identity import RankId, UnknownRank
from hangbisect.base.json_codec import from_json, to_json
from hangbisect.base.process_facts import (
    Descriptor,
    FileLock,
    Frame,
    Kernel,
    Look,
    Sample,
    Socket,
    Syscall,
    Thread,
)
from hangbisect.base.rank_facts import Gpu, MachineFacts, RankFacts
from hangbisect.base.verdict_facts import Verdict
from hangbisect.evidence.gpus.gpu_errors import parse_kernel_log
from hangbisect.report.run_reader.run_files import Evidence, make_evidence
from hypothesis import given, settings
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
    answers = [
        NodeAnswer(Node(f"pod-{n}", (), ""), machine("x", waits_for_a_child(n))) for n in (0, 1)
    ]
    found = judge_answers(RemoteJob(tuple(a.node for a in answers), "a job", ""), answers, 100.0)
    assert [(r.rank, r.pid, r.host) for r in found.ranks] == [(0, 7, "pod-0"), (1, 7, "pod-1")]
    wait = found.verdict.waits_for
    assert wait is not None
    assert (wait.kind, wait.pid, wait.process, wait.rank) == ("process", 8, "make", None)
    assert [edge.target for edge in found.verdict.chain] == ["process 8 on pod-0", "the kernel"]


def test_a_rank_that_two_machines_have_is_left_out_and_said() -> None:
    nodes = merge_nodes([machine("a", RankFacts(0, pid=7)), machine("b", RankFacts(0, pid=7))])
    assert nodes[1].ranks == ()
    assert nodes[1].notes[0].startswith("rank 0 runs on a and on b: two jobs")


def agent(serves: bool, *more: str) -> RankFacts:
    """An agent of torchrun's that waits for the others, in the place of a rank."""
    sockets = [Socket(2, "tcp", "10.0.0.2:5000", "10.0.0.1:29400", "ESTABLISHED")]
    if serves:
        sockets = [Socket(1, "tcp", "0.0.0.0:29400", "", "LISTEN")]
    file = "/v/site-packages/torch/distributed/elastic/agent/server/api.py"
    one = look(7, 1, "pt_elastic", None, Frame("SimpleElasticAgent._rendezvous", file, 528))
    command = ("torchrun", "--nnodes=3", "--master-addr=n1", "--master-port=29400", *more, "t.py")
    return RankFacts(0, pid=7, looks=(replace(one, command=command, sockets=tuple(sockets)),) * 2)


def test_agents_that_wait_for_one_another_are_no_rank_twice() -> None:
    """The one that serves the rendezvous tells who has come, wherever it stands."""
    nodes = [machine("b", agent(False, "--node-rank=1")), machine("a", agent(True))]
    first, second = merge_nodes(nodes)
    assert first.ranks == ()
    assert second.ranks == nodes[1].ranks
    assert first.notes == second.notes == ()


def test_a_launcher_that_stands_elsewhere_comes_before_agents_that_wait() -> None:
    """It imports what does not come back: the others wait for it at the rendezvous."""
    nodes = [machine("a", agent(True), launcher=7), machine("c", agent(False), launcher=7)]
    stuck = RankFacts(0, pid=7, looks=(look(7, 1, "torchrun", Syscall(73, "flock", (3, 2))),) * 2)
    found = merge_nodes([*nodes, machine("b", stuck, launcher=7)])
    assert [one.host for one in found if one.ranks] == ["b"]


def test_agents_of_one_number_are_told() -> None:
    nodes = [machine(n, agent(n == "a", "--node-rank=0")) for n in ("a", "b")]
    notes = [note for one in merge_nodes(nodes) for note in one.notes]
    assert notes == ["--node-rank is 0 on a and on b: each node needs its own"]


def holds_a_lock(rank: RankId, pid: int) -> RankFacts:
    held = FileLock("/nfs/cache/build.lock", 55, None)
    looks = (replace(look(pid, 1, "python", Syscall(0, "read", (0,)), *WAITS), holds=(held,)),) * 2
    return RankFacts(rank, pid=pid, looks=looks)


POLLS = (
    Frame("acquire", "/v/site-packages/filelock/_api.py", 344),
    Frame("load", "/home/ada/train.py", 12),
)


def polls_for_a_lock(rank: RankId, pid: int) -> RankFacts:
    call = Syscall(230, "clock_nanosleep", (0,))
    return RankFacts(rank, pid=pid, looks=(look(pid, 1, "python", call, *POLLS),) * 2)


def judge(*facts: NodeFacts) -> Judgement:
    answers = [NodeAnswer(Node(f"pod-{n}", (), ""), one) for n, one in enumerate(facts)]
    job = RemoteJob(tuple(one.node for one in answers), "a job", "")
    return judge_answers(job, answers, 100.0)


def test_who_has_a_lock_is_found_on_its_own_machine() -> None:
    """On the waiting rank's machine a child of it has the number of the lock's holder."""
    child = look(7, 9, "make", Syscall(0, "read", (0,)))
    waits = replace(polls_for_a_lock(1, 9), children=((child,) * 2,))
    found = judge(machine("x", holds_a_lock(0, 7)), machine("x", waits))
    assert found.verdict.ranks.culprit == (0,)
    assert found.verdict.ranks.waiting == (1,)
    assert [edge.target for edge in found.verdict.chain][:2] == [
        "lock /nfs/cache/build.lock",
        "rank 0",
    ]


def connects(rank: RankId, pid: int, local: str, peer: str, call: str) -> RankFacts:
    """A rank with one connection, in a system call that is about it ("recvfrom") or not."""
    socket = Socket(7, "tcp", local, peer, "ESTABLISHED")
    about = (Descriptor(3, "socket", "socket:[7]", socket=socket),) if call == "recvfrom" else ()
    one = look(pid, 1, "python", Syscall(45, call, (3,), descriptors=about), *WAITS)
    return RankFacts(rank, pid=pid, looks=(replace(one, sockets=(socket,)),) * 2)


def test_a_connection_leads_to_the_rank_at_its_other_end() -> None:
    """The ranks have the same pid on both machines."""
    reads = connects(1, 7, "10.0.0.2:41234", "10.0.0.1:9100", "recvfrom")
    other = connects(0, 7, "10.0.0.1:9100", "10.0.0.2:41234", "clock_nanosleep")
    found = judge(machine("x", other), machine("x", reads))
    assert found.verdict.ranks.culprit == (0,)
    assert found.verdict.ranks.waiting == (1,)
    assert [edge.target for edge in found.verdict.chain][:2] == ["10.0.0.1:9100", "rank 0"]


def test_ranks_without_a_number_stay_apart_on_two_machines() -> None:
    hidden = [UnknownRank("x", 7), UnknownRank("x", 7)]
    nodes = [
        machine("x", replace(waits_for_a_child(0), rank=one), quiet=(one,), world=4)
        for one in hidden
    ]
    found = judge(*nodes)
    ranks = (UnknownRank("pod-0", 7), UnknownRank("pod-1", 7))
    assert tuple(r.rank for r in found.ranks) == ranks
    assert found.quiet == found.verdict.ranks.culprit == ranks
    assert [(one.rank, one.host, one.pid) for one in found.verdict.where] == [
        (ranks[0], "pod-0", 7),
        (ranks[1], "pod-1", 7),
    ]
    assert (
        "which ranks the processes 7 on pod-0, 7 on pod-1 are could not be read"
        in found.verdict.notes
    )
    chain = [edge.target for edge in found.verdict.chain]
    assert chain[0] == "process 8 on pod-0"


def test_ranks_without_a_number_are_no_ranks_of_another_machine() -> None:
    hidden = machine("a", RankFacts(UnknownRank("a", 7), pid=7), quiet=(UnknownRank("a", 7),))
    nodes = merge_nodes([hidden, machine("b", RankFacts(0, pid=9), world=4, moving=(0,))])
    assert [[r.rank for r in node.ranks] for node in nodes] == [[UnknownRank("a", 7)], [0]]


PIDS = st.integers(2, 4_194_304)


@st.composite
def two_machines(draw: st.DrawFn) -> tuple[NodeFacts, NodeFacts]:
    pids = draw(st.lists(PIDS, min_size=2, max_size=3, unique=True))  # the same on both
    nodes = []
    for at in range(2):
        ranks = []
        for n, pid in enumerate(pids):
            known = draw(st.booleans())
            rank = at * len(pids) + n if known else UnknownRank("x", pid)
            make = draw(st.sampled_from([holds_a_lock, polls_for_a_lock]))
            child = look(pid - 1, pid, "make", Syscall(0, "read", (0,)))
            children = draw(st.sampled_from([(), ((child,) * 2,)]))
            ranks.append(replace(make(rank, pid), children=children))
        nodes.append(machine("x", *ranks, world=draw(st.integers(0, 9))))
    return nodes[0], nodes[1]


@settings(max_examples=60, deadline=None)
@given(two_machines())
def test_no_number_is_said_that_is_nobodys(nodes: tuple[NodeFacts, NodeFacts]) -> None:
    """Of ranks and processes: the numbers in lines and files are those that the machines told."""
    found = judge(*nodes)
    own = {r.pid for node in nodes for r in node.ranks}
    own |= {one[-1].pid for node in nodes for r in node.ranks for one in r.children}
    numbers = {r.rank for node in nodes for r in node.ranks if isinstance(r.rank, int)}
    verdict = to_json(found.verdict)
    evidence = to_json(make_evidence(found.ranks, found.graph, found.facts.machine))
    lines = [*hang_lines(found, "", "", None), *moving_lines(found)]
    texts = [*lines, json.dumps([verdict, [one["rank"] for one in evidence["ranks"]]])]
    texts += [json.dumps(evidence["graph"])]
    told = {int(number) for text in texts for number in re.findall(r"(?<![\w.])\d{5,}", text)}
    assert told <= own
    named = {r for kind in vars(found.verdict.ranks).values() for r in kind}
    missing = range(found.verdict.world_size)
    assert all(r in missing or r in numbers for r in named if isinstance(r, int))
    assert not re.search(r"(?:rank |\D)-\d{4,}", "\n".join(lines))
    read = from_json(Verdict, json.loads(json.dumps(verdict)))
    assert read.ranks == found.verdict.ranks
    assert from_json(Evidence, json.loads(json.dumps(evidence))).ranks == found.ranks


def test_errors_of_gpus_are_notes_of_their_machine_and_not_another_jobs() -> None:
    lines = [
        f"3,1,4000000,-;NVRM: Xid (PCI:0000:{bus}:00): {code}, pid=1, name=python3, x"
        for bus, code in (("3b", 79), ("3b", 48), ("5e", 79), ("86", 45))
    ]
    gpus = (
        Gpu(0, "H100", pids=(7,), bus="0000:3b:00.0"),
        Gpu(1, "H100", pids=(4711,), bus="0000:5e:00.0"),
    )
    on = MachineFacts(gpus=gpus, gpu_errors=parse_kernel_log(lines))
    nodes = [
        machine("n1", waits_for_a_child(0)),
        machine("n2", replace(waits_for_a_child(1), host="n2"), machine=on),
    ]
    told = [note for note in judge_nodes(nodes).verdict.notes if "Xid" in note]
    assert told == ["n2: GPU 0000:3b:00: Xid 79, GPU has fallen off the bus"]
    assert not [note for note in judge_nodes(nodes[1:]).verdict.notes if "Xid" in note]
