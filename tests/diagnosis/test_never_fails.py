"""Whatever the facts are, there is a verdict, and it holds what all verdicts promise."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import hangbisect.base.verdict_facts as facts_module
import jsonschema
import pytest
from hangbisect.base.identity import RankId, UnknownRank, name_rank
from hangbisect.base.json_codec import from_json, to_json
from hangbisect.base.process_facts import (
    Descriptor,
    FileLock,
    Frame,
    Futex,
    Kernel,
    Look,
    Sample,
    Socket,
    Syscall,
    Thread,
)
from hangbisect.base.rank_facts import NOTHING_MOVES, Ended, JobFacts, RankFacts
from hangbisect.diagnosis.verdict import judge_job, judge_job_with_graph
from hangbisect.diagnosis.wait_graph import WaitGraph
from hangbisect.report.rows import format_good_run, word_good_run
from hangbisect.report.run_reader.run_files import make_evidence, read_evidence
from hangbisect.report.stacks import merged_stacks_text, stack_text
from hangbisect.report.terminal import culprit_stack, slow_line, verdict_lines
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ..examples import examples
from .made_up import TABLE, job

SCHEMA = json.loads(
    (Path(facts_module.__file__).parents[1] / "data" / "verdict.schema.json").read_text("utf-8")
)
PIDS = st.integers(98, 106)
ENDINGS: tuple[Ended, ...] = (
    *("done", "late", "still", "busy", "left", "crash", "interrupted", "limit"),
)
FILES = st.sampled_from(
    [
        "/v/site-packages/torch/distributed/distributed_c10d.py",
        "/v/site-packages/torch/distributed/rendezvous.py",
        "/v/site-packages/filelock/_api.py",
        "/v/site-packages/wandb/sdk/wandb_init.py",
        "/usr/lib/python3.11/threading.py",
        "<frozen importlib._bootstrap>",
        "/site-packages/hangbisect/rank/walk.py",
        "/site-packages/hangbisect/pipelines/startup.py",
        "/home/ada/train.py",
        "",
    ]
)
NAMES = st.sampled_from(
    [
        *("init", "barrier", "Condition.wait", "<module>", "fit", "join", "", "on_signal", "_f"),
        *("new_group", "_poll_until_acquired", "_find_and_load", "f.<locals>.g"),
    ]
)
FRAMES = st.builds(Frame, NAMES, FILES, st.integers(0, 99), st.booleans())
SOCKETS = st.builds(
    Socket,
    st.integers(1, 9),
    st.sampled_from(["tcp", "unix", "udp"]),
    peer=st.sampled_from(["", "10.0.0.1:443", ":1"]),
    state=st.sampled_from(["ESTABLISHED", "SYN_SENT", "LISTEN", ""]),
    peer_pids=st.lists(PIDS, max_size=2).map(tuple),
    peer_names=st.lists(st.text(max_size=3), max_size=1).map(tuple),
    received=st.none() | st.integers(0, 3),
)
DESCRIPTORS = st.builds(
    Descriptor,
    st.integers(0, 9),
    st.sampled_from(["file", "pipe", "fifo", "socket", "tty", "device", "anon", "unknown"]),
    st.text(max_size=5),
    st.lists(PIDS, max_size=2).map(tuple),
    st.none() | SOCKETS,
)
CALLS = st.builds(
    Syscall,
    st.integers(0, 9),
    st.sampled_from(
        [
            *("", "futex", "poll", "read", "recvfrom", "openat", "wait4", "waitid", "flock"),
            *("clock_nanosleep", "ioctl", "epoll_wait", "restart_syscall", "mmap", "vfork"),
        ]
    ),
    st.lists(st.integers(0, 2**64 - 1), max_size=6).map(tuple),
    st.none() | st.floats(0, 9),
    st.none() | st.text(max_size=5),
    st.lists(DESCRIPTORS, max_size=2).map(tuple),
    futex=st.none() | st.builds(Futex, st.just(1), st.none(), st.none() | PIDS, st.booleans()),
)
STATES = st.sampled_from(["R", "S", "D", "T", "t", "Z", "X", "I", ""])
LOCKS = st.builds(
    FileLock, st.sampled_from(["", "/a.lock", "/b"]), st.integers(0, 5), st.none() | PIDS
)
LOOKS = st.builds(
    Look,
    at=st.floats(0, 1e6),
    pid=PIDS,
    ppid=PIDS,
    name=st.sampled_from(["python", "wandb-core", "pt_data_worker"]),
    command=st.just(()),
    age=st.floats(0, 99),
    state=STATES,
    rung=st.sampled_from(["py-spy", "pystack", "faulthandler", "proc"]),
    threads=st.lists(
        st.builds(
            Thread,
            st.none() | PIDS,
            st.none() | st.text(max_size=3),
            st.booleans(),
            st.booleans(),
            st.lists(FRAMES, max_size=4).map(tuple),
        ),
        max_size=2,
    ).map(tuple),
    kernel=st.lists(
        st.builds(Kernel, PIDS, st.just("x"), STATES, st.text(max_size=4), st.none() | CALLS),
        max_size=2,
    ).map(tuple),
    locks=st.lists(LOCKS, max_size=1).map(tuple),
    holds=st.lists(LOCKS, max_size=1).map(tuple),
    sockets=st.lists(SOCKETS, max_size=2).map(tuple),
    sample=st.none()
    | st.builds(
        Sample, st.just(1.0), PIDS, st.just(1), STATES, st.just(1.0), st.just(1), st.just(1)
    ),
    dump=st.text(max_size=20),
    missing=st.lists(st.text(max_size=9), max_size=1).map(tuple),
)
PHASES = st.none() | st.sampled_from(["setup", "first_batch", "unheard-of"])
HOSTS = st.sampled_from(["", "n01", "n02"])
RANKS = st.builds(
    RankFacts,
    rank=st.integers(0, 7) | st.builds(UnknownRank, HOSTS, PIDS),
    local_rank=st.integers(0, 7),
    pid=st.none() | PIDS,
    host=HOSTS,
    reached=st.integers(0, 14),
    held=st.booleans(),
    phase=PHASES,
    entered=st.none() | st.floats(0, 100),
    last_line=st.text(max_size=30),
    last_line_at=st.none() | st.floats(0, 1000),
    announced=st.sampled_from(["", "wandb.init", "import torch"]),
    alive=st.booleans(),
    left=st.booleans(),
    status=st.none() | st.sampled_from([0, 1, -9, -15, 143, -11]),
    error=st.sampled_from(["", "ValueError: x\ny", "Connection reset by peer"]),
    finished=st.booleans(),
    never_started=st.booleans(),
    awaits=st.lists(st.integers(0, 9), max_size=2).map(tuple),
    looks=st.lists(LOOKS, max_size=2).map(tuple),
    children=st.lists(st.lists(LOOKS, max_size=2).map(tuple), max_size=2).map(tuple),
    moved=st.sampled_from(["", "reads"]),
    busy=st.booleans(),
    left_at=st.none() | st.floats(0, 100),
    environment=st.sampled_from(
        [{}, {"WORLD_SIZE": "9"}, {"WORLD_SIZE": "x"}, {"GROUP_WORLD_SIZE": "1"}]
    ),
)
JOBS = st.builds(
    lambda ended, world, local, still, late, table: replace(
        job(ended, world), local_ranks=local, still=still, past_deadline=late, table=table
    ),
    st.sampled_from(ENDINGS),
    st.integers(1, 12),
    st.lists(st.integers(0, 7), max_size=4, unique=True).map(tuple),
    st.none() | st.floats(0, 99),
    st.none() | st.floats(0, 99),
    st.sampled_from([TABLE, TABLE[:5], ()]),
)
MANY = st.lists(RANKS, max_size=4, unique_by=lambda facts: facts.rank)


@pytest.mark.timeout(600)
@settings(max_examples=examples(120), deadline=None, suppress_health_check=list(HealthCheck))
@given(JOBS, MANY, st.none() | st.integers(1, 200))
def test_every_verdict_can_be_made_written_and_read(
    facts: JobFacts, ranks: list[RankFacts], width: int | None
) -> None:
    verdict, graph = judge_job_with_graph(facts, ranks)
    evidence = make_evidence(ranks, graph, facts.machine)
    assert read_evidence(json.loads(json.dumps(to_json(evidence)))) == evidence
    assert [note for note in verdict.notes if "could not be looked for" in note] == []

    data = json.loads(json.dumps(to_json(verdict), allow_nan=False))
    jsonschema.validate(data, SCHEMA, jsonschema.Draft202012Validator)
    assert to_json(from_json(type(verdict), data)) == data

    if verdict.outcome == "ok":
        well = word_good_run(verdict, ["W&B online"], "4 Tokenizer loaded 3.4 s", "runs/x")
        lines = format_good_run(well, width)
    else:
        lines = verdict_lines(verdict, facts, ranks, run_dir="runs/x", state="ended", width=width)
    assert 1 <= len(lines) <= 15
    assert all("\n" not in line for line in lines)
    assert all(len(line) <= width for line in lines if width is not None and width > 3)
    assert len(culprit_stack(ranks, verdict, graph)) <= 40
    merged_stacks_text(ranks)
    for one in ranks:
        slow_line(facts.table, ranks, one.rank, "reads", 100.0)
        for look in one.looks:
            assert stack_text(look, one.rank, "rank", graph.find_wait(one.rank, look))
    if verdict.waits_for is not None and verdict.where and all(one.looks for one in ranks):
        waits = [graph.find_wait(one.rank, one.looks[-1]) for one in ranks]
        assert verdict.waits_for in waits


@pytest.mark.timeout(600)
@settings(max_examples=examples(120), deadline=None, suppress_health_check=list(HealthCheck))
@given(JOBS, MANY)
def test_whoever_waits_or_is_held_is_not_blamed(facts: JobFacts, ranks: list[RankFacts]) -> None:
    found = judge_job(facts, ranks).ranks
    assert not set(found.culprit) & set(found.waiting)
    assert not set(found.stuck) & set(found.waiting)
    if facts.ended not in ("crash", "left"):
        assert not set(found.culprit) & {r.rank for r in ranks if r.held and not r.left and r.alive}
    if facts.ended == "done":
        assert found.culprit == ()


def _waits_for(graph: WaitGraph, rank: RankId) -> set[RankId]:
    """The ranks that `rank` waits for, over whatever lies between; brute force."""
    passed, ahead = {name_rank(rank)}, [name_rank(rank)]
    while ahead:
        name = ahead.pop()
        node = graph.nodes.get(name)
        owner = [] if node is None or node.rank is None else [name_rank(node.rank)]
        on = [
            target for (source, target), link in graph.links.items() if source == name and link.firm
        ]
        for other in (*on, *owner):
            if other not in passed:
                passed.add(other)
                ahead.append(other)
    return {graph.nodes[name].rank or 0 for name in passed if name.startswith("rank ")} - {rank}


@pytest.mark.timeout(600)
@settings(max_examples=examples(120), deadline=None, suppress_health_check=list(HealthCheck))
@given(JOBS, MANY)
def test_whoever_is_blamed_waits_for_nobody_but_its_own_ring(
    facts: JobFacts, ranks: list[RankFacts]
) -> None:
    if facts.ended in ("crash", "left", "done"):
        return
    verdict, graph = judge_job_with_graph(facts, ranks)
    finished = {r.rank for r in ranks if r.finished}
    for culprit in verdict.ranks.culprit:
        for other in _waits_for(graph, culprit) - finished:
            assert culprit in _waits_for(graph, other), (culprit, other)


@pytest.mark.timeout(600)
@settings(max_examples=examples(120), deadline=None, suppress_health_check=list(HealthCheck))
@given(JOBS, MANY)
def test_candidates_and_the_chain_are_what_they_promise(
    facts: JobFacts, ranks: list[RankFacts]
) -> None:
    verdict = judge_job(facts, ranks)
    assert len(verdict.candidates) <= 5
    assert all(one.level == "guess" for one in verdict.candidates[1:])
    named = [rank for one in verdict.candidates for rank in one.ranks]
    assert len(named) == len(set(named))
    if verdict.ranks.culprit:
        assert verdict.candidates[0].ranks == verdict.ranks.culprit
    assert all(a.target == b.source for a, b in pairwise(verdict.chain))


@pytest.mark.timeout(600)
@settings(max_examples=examples(120), deadline=None, suppress_health_check=list(HealthCheck))
@given(JOBS, MANY)
def test_where_nothing_moves_who_moved_is_not_blamed(
    facts: JobFacts, ranks: list[RankFacts]
) -> None:
    if facts.ended in NOTHING_MOVES:
        moved = {r.rank for r in ranks if r.moved and r.alive and not r.left}
        assert not moved & {*judge_job(facts, ranks).ranks.culprit}


@pytest.mark.timeout(600)
@settings(max_examples=examples(120), deadline=None, suppress_health_check=list(HealthCheck))
@given(JOBS, MANY)
def test_not_all_are_blamed_where_some_wait_for_the_rest(
    facts: JobFacts, ranks: list[RankFacts]
) -> None:
    """Of those that had more to do, who waits for one that does not wait for it in turn."""
    if facts.ended not in NOTHING_MOVES:
        return
    verdict, graph = judge_job_with_graph(facts, ranks)
    rest = {r.rank for r in ranks if not r.finished}
    if len(rest) < 2 or not {*verdict.ranks.culprit} >= rest:
        return
    for rank in rest:
        for other in _waits_for(graph, rank) & rest:
            assert rank in _waits_for(graph, other), (rank, other)
