"""Which ranks are to be on a machine, and are not: of a job on several machines too."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hangbisect.attach.jobs import Job, make_lone_job
from hangbisect.attach.judgement import judge_nodes
from hangbisect.attach.node_facts import NodeFacts, list_ranks_of_machine
from hangbisect.attach.nodes import merge_nodes
from hangbisect.attach.processes import Process
from hangbisect.attach.ranks import Rank
from hangbisect.base.rank_facts import RankFacts

from .made_up import process, table
from .test_words import BARRIER, SLEEP, node, rank


def job_of(
    world: int, *places: tuple[int, int | None], size: str
) -> tuple[Job, dict[int, Process]]:
    """A job on two machines, of which this one has ranks with these numbers and local numbers."""
    processes = [process(100 + n, environ={"LOCAL_WORLD_SIZE": size}) for n, _ in places]
    ranks = tuple(Rank(100 + n, n, local, world) for n, local in places)
    made = table(*processes)
    return replace(
        make_lone_job(made, 100 + places[0][0]), ranks=ranks, world=world, whole=False
    ), made


@pytest.mark.parametrize(
    ("world", "places", "size", "right"),
    [
        # The launcher counts two here, and they follow one another.
        (4, ((2, 0),), "2", range(2, 4)),
        (4, ((3, 1),), "2", range(2, 4)),
        (8, ((4, 0), (6, 2)), "4", range(4, 8)),
        # Nobody counts, or what is counted does not fit what is there.
        (4, ((2, 0),), "", range(0)),
        (4, ((2, 0),), "two", range(0)),
        (4, ((2, 0),), "3", range(0)),
        (4, ((1, 2),), "2", range(0)),
        (4, ((2, None),), "2", range(0)),
        # One after the other over the machines: which number is missing cannot be told.
        (4, ((1, 0), (3, 1)), "2", range(0)),
    ],
)
def test_the_ranks_of_a_machine_are_those_that_its_launcher_counts(
    world: int, places: tuple[tuple[int, int | None], ...], size: str, right: range
) -> None:
    assert list_ranks_of_machine(*job_of(world, *places, size=size)) == right


def absent(number: int, host: str) -> RankFacts:
    """A rank that is not there, and of which nothing tells whether it ever was."""
    return RankFacts(number, number, None, host, reached=-1, alive=False, never_started=True)


def part(host: str, *ranks: RankFacts) -> NodeFacts:
    """One machine of two, of a job of four."""
    return node(*(replace(r, host=host) for r in ranks), world=4, whole=False, host=host)


def test_a_rank_that_one_machine_misses_and_another_has_is_no_second_job() -> None:
    first = part("n01", rank(0, BARRIER, "futex"), absent(1, "n01"))
    second = part("n02", rank(1, SLEEP, "clock_nanosleep"))
    merged = merge_nodes([first, second])
    assert [[r.rank for r in one.ranks] for one in merged] == [[0], [1]]
    assert not any(one.notes for one in merged)


def test_a_rank_that_two_machines_have_says_so_where_both_name_one_master() -> None:
    places = {"MASTER_ADDR": "n01", "MASTER_PORT": "29500"}
    first, second = (
        part(host, replace(rank(0, BARRIER, "futex"), host=host, environment=places))
        for host in ("n01", "n02")
    )
    kept, left = merge_nodes([first, second])
    assert (kept.ranks[0].twin, kept.ranks[0].twin_host) == (second.ranks[0].pid, "n02")
    assert not left.ranks


def test_a_rank_that_was_never_started_on_another_machine_is_named_with_it() -> None:
    # All that are there wait for all: only one is missed.
    first = part("n01", rank(0, BARRIER, "futex"), rank(1, BARRIER, "futex"))
    second = part("n02", rank(2, BARRIER, "futex"), absent(3, "n02"))
    verdict = judge_nodes(merge_nodes([first, second]), now=102.0).verdict
    assert (verdict.ranks.culprit, verdict.ranks.never_started) == ((3,), (3,))
    assert verdict.ranks.waiting == (0, 1, 2)
    assert [one.host for one in verdict.where if one.rank == 3] == ["n02"]
