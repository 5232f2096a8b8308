"""One rank compiles and the others wait: which, what, how far, and who gives up first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hangbisect.attach.judgement import judge_nodes
from hangbisect.attach.node_facts import NodeFacts
from hangbisect.base.process_facts import Build, Kernel, Look, Sample, Syscall
from hangbisect.base.rank_facts import RankFacts
from hangbisect.diagnosis.compilation import describe_compilations, find_compilations
from hangbisect.diagnosis.process.time_limits import find_first_limit
from hangbisect.report.verdict_rows import word_verdict
from hypothesis import given
from hypothesis import strategies as st

from .made_up import ALL_REDUCE, RECV, look, rank

NINJA, NVCC = 4001, 4002
BUILD = Build("ninja", "fused", "/x/fused", done=2, steps=5, files=4, size=1000)
BATON = look("FileBaton.wait SP/torch/utils/file_baton.py:48", call="clock_nanosleep")


def seconds(*looks: Look) -> tuple[Look, ...]:
    return tuple(replace(one, at=100.0 + n) for n, one in enumerate(looks))


def program(pid: int, name: str, parent: int, *builds: Build, cpu: float = 0.0) -> tuple[Look, ...]:
    """Looks at a compiler, a second apart, one for each of `builds`."""
    made = look(pid=pid, ppid=parent, name=name, rung="proc")
    return tuple(
        replace(
            made,
            at=100.0 + n,
            age=32.0 + n,
            build=one,
            sample=Sample(100.0 + n, pid, 5, "S", cpu * n, 0, 0),
        )
        for n, one in enumerate(builds)
    )


def builder(number: int = 0, cpu: float = 0.9, **more: Any) -> RankFacts:
    """A rank below which ninja has one of five files compiled by nvcc."""
    waits = look("Popen._try_wait STD/subprocess.py:2004", "main train.py:8", call="wait4")
    ninja = program(NINJA, "ninja", 100 + number, BUILD, BUILD)
    file = Build("nvcc", "flash.cu")
    nvcc = program(NVCC, "nvcc", NINJA, file, file, cpu=cpu)
    moved = "its child nvcc (4002) compiles flash.cu" if cpu else ""
    return rank(number, *seconds(waits, waits), children=(ninja, nvcc), moved=moved, **more)


def in_gloo(number: int, left: float | None) -> RankFacts:
    """A rank in all_reduce, whose thread of gloo has so many seconds left."""
    limit = Kernel(7, "pt_gloo_runloop", "S", "", Syscall(0, "futex", (), timeout=left))
    one = replace(ALL_REDUCE, kernel=(*ALL_REDUCE.kernel, limit))
    return rank(number, *seconds(one, one))


def test_it_is_told_what_is_compiled_by_whom_since_when_and_how_far_it_is() -> None:
    told = describe_compilations([builder(), in_gloo(1, 290.0)])
    assert told == [
        "rank 0 compiles fused by ninja (4001) for 33 s; 2 of 5 files done; "
        "now flash.cu by nvcc (4002)",
        "rank 1 waits and compiles nothing: has that in its cache, or needs no such thing",
        "first to give up: rank 1, in 290 s (its operation of gloo)",
    ]


def test_who_waits_for_the_lock_of_the_build_does_not_have_it() -> None:
    told = describe_compilations([builder(), rank(1, BATON), rank(2, BATON)])
    assert "ranks 1-2 wait for the lock file of a build" in told
    assert told[-1] == "the wait for a lock file has no time limit"
    unknown = describe_compilations([builder(), in_gloo(1, None)])
    assert "the kernel knows no time limit of those that wait" in unknown[-1]


def test_a_cache_that_grows_is_told() -> None:
    looks = [
        replace(
            look("make_llir SP/triton/backends/nvidia/compiler.py:412", call="", state="R"),
            build=Build("Triton", "compiler.py:412", "/c", files=3 + n, size=1 << (10 + n)),
        )
        for n in range(2)
    ]
    (one,) = find_compilations([rank(0, *seconds(*looks), moved="compiles (/c grows)")])
    assert one.text.endswith("by Triton (100); /c grew by 1 file, 1 KiB")


def test_a_compiler_that_stands_still_compiles_nothing() -> None:
    assert find_compilations([builder(cpu=0.0)]) == ()
    assert describe_compilations([builder(cpu=0.0), in_gloo(1, 9.0)]) == []


def test_a_worker_of_inductor_without_work_compiles_nothing_whatever_else_the_rank_does() -> None:
    worker = Build("inductor's compile worker")
    idle = program(NVCC, "python", 100, worker, worker)
    busy = rank(0, *seconds(ALL_REDUCE, ALL_REDUCE), children=(idle,), moved="reads 41 MiB/s")
    assert find_compilations([busy]) == ()


def test_of_several_workers_the_one_is_told_that_compiles() -> None:
    worker, file = Build("inductor's compile worker"), Build("g++", "kernel.cpp")
    idle = program(3001, "python", 100, worker, worker)
    asked = program(3002, "python", 100, worker, worker)
    works = program(NVCC, "g++", 3002, file, file, cpu=0.9)
    (found,) = find_compilations([rank(0, *seconds(ALL_REDUCE), children=(idle, asked, works))])
    assert found.pid == 3002
    assert "now kernel.cpp by g++ (4002)" in found.text


def test_the_first_limit_is_that_of_whoever_gives_up_first() -> None:
    limit = find_first_limit([in_gloo(0, 290.0), in_gloo(1, 60.0), in_gloo(2, None)])
    assert limit is not None
    assert (limit.rank, limit.left, limit.call) == (1, 60.0, "gloo")
    assert find_first_limit([in_gloo(0, None)]) is None


# ---- attach --------------------------------------------------------------------------------------


def judged(*ranks: RankFacts, quiet: tuple[int, ...] = ()) -> Any:
    node = NodeFacts(
        host="n01",
        command=("torchrun", "train.py"),
        world=len(ranks),
        whole=True,
        age=90.0,
        at=102.0,
        span=2.1,
        ranks=ranks,
        moving=tuple(r.rank for r in ranks if r.moved),
        quiet=quiet,
    )
    return judge_nodes([node], now=102.0)


def test_a_job_that_waits_for_a_compiler_is_slow_with_these_rows() -> None:
    found = judged(builder(), in_gloo(1, 290.0))
    assert found.verdict.outcome == "slow"
    assert not found.only_moves
    rows = word_verdict(found.verdict, found.facts, found.ranks).rows
    told = next(row for row in rows if row.label == "compiles")
    assert told.text.startswith("rank 0 compiles fused by ninja (4001)")
    assert "first to give up" in told.detail[-1]


def test_a_job_of_which_a_rank_waits_for_something_of_its_own_only_moves() -> None:
    """It does not wait for the compiler: that is said of it, and no more."""
    assert judged(builder(), in_gloo(1, 290.0), rank(2, RECV), quiet=(2,)).only_moves


def test_a_job_of_which_all_compile_only_moves() -> None:
    assert judged(builder(0), builder(1)).only_moves


def test_a_job_whose_compiler_stands_still_is_judged_as_any_that_does() -> None:
    assert judged(builder(cpu=0.0), in_gloo(1, 290.0)).verdict.outcome in ("hang", "silent")


# ---- whatever the looks --------------------------------------------------------------------------

builds = st.builds(
    Build,
    st.sampled_from(["ninja", "nvcc", "Triton", ""]),
    st.text(max_size=5),
    st.sampled_from(["", "/b"]),
    *(st.one_of(st.none(), st.integers(0, 9)) for _ in range(4)),
)
processes = st.lists(
    st.tuples(st.integers(1, 6), st.integers(0, 6), st.lists(builds, min_size=1, max_size=3)),
    max_size=4,
)


@given(processes, st.floats(0, 1), st.booleans())
def test_any_family_can_be_asked(
    family: list[tuple[int, int, list[Build]]], cpu: float, moves: bool
) -> None:
    children = tuple(program(pid, "x", parent, *made, cpu=cpu) for pid, parent, made in family)
    one = rank(0, *seconds(ALL_REDUCE), children=children, moved="x" * moves)
    told = describe_compilations([one, in_gloo(1, 3.0)])
    assert all(isinstance(line, str) and line for line in told)
