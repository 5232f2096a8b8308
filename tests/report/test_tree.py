"""stacks/merged.txt."""

from __future__ import annotations

from dataclasses import replace

from hangbisect.base.process_facts import Frame, Kernel, Look, Syscall, Thread
from hangbisect.base.rank_facts import RankFacts
from hangbisect.report.stacks import MOST_LINES, merged_stacks_text

PLACES = {"lib": "/v/site-packages/lib.py", "own": "/home/ada/train.py"}


def look(*names: str, pid: int = 100, name: str = "python") -> Look:
    """A look at a process; frames innermost first, `name:line`."""
    frames = [
        Frame(n.partition(":")[0], PLACES["own"], int(n.partition(":")[2] or 1)) for n in names
    ]
    return Look(
        at=10.0,
        pid=pid,
        ppid=1,
        name=name,
        command=(),
        age=50.0,
        state="S",
        rung="py-spy",
        threads=(Thread(pid, "MainThread", False, False, tuple(frames)),) if names else (),
        kernel=(Kernel(pid, name, "S", "wait_woken", Syscall(45, "recvfrom", ())),),
    )


def rank(number: int, *names: str, children: tuple[Look, ...] = ()) -> RankFacts:
    one = look(*names, pid=100 + number)
    families = tuple((child,) for child in children)
    return RankFacts(number, number, one.pid, looks=(one,), children=families)


def test_what_is_shared_stands_once_with_the_ranks_and_forks_are_marked() -> None:
    same = [rank(r, "wait", "fit", "main") for r in range(3)]
    assert merged_stacks_text([*same, rank(3, "read", "load", "main"), rank(4)]).splitlines() == [
        "[0-3] main (train.py:1)",
        "  --- they part ---",
        "  [0-2] fit (train.py:1)",
        "    wait (train.py:1)",
        "  [3] load (train.py:1)",
        "    read (train.py:1)",
        "[4] no stack: state S, recvfrom, wait_woken",
    ]


def test_the_function_in_which_they_part_is_named() -> None:
    lines = merged_stacks_text(
        [rank(0, "fit:213", "main"), rank(1, "fit:217", "main")]
    ).splitlines()
    assert lines[1:] == [
        "  --- they part in fit (train.py) ---",
        "  [0] fit (train.py:213)",
        "  [1] fit (train.py:217)",
    ]


def test_a_rank_that_goes_less_deep_is_shown_where_it_is() -> None:
    assert (
        "  [0] goes no deeper"
        in merged_stacks_text([rank(0, "main"), rank(1, "f", "main")]).splitlines()
    )


def test_ranks_without_a_process_are_there_with_the_reason() -> None:
    gone = RankFacts(1, alive=False, left=True, status=-9)
    never = RankFacts(2, alive=False, never_started=True)
    assert merged_stacks_text([rank(0, "main"), gone, never]).splitlines()[1:] == [
        "[1] no stack: it has left, status -9",
        "[2] no stack: it never started",
    ]


def test_native_frames_are_marked_and_those_that_start_python_left_out() -> None:
    frames = (
        Frame("gloo::wait", "libtorch_cpu.so", 0, native=True),
        Frame("main", PLACES["own"], 1),
        Frame("_start", "python3.11", 0, native=True),
    )
    one = rank(0, "main")
    one = replace(
        one, looks=(replace(one.looks[0], threads=(Thread(100, "", True, False, frames),)),)
    )
    assert merged_stacks_text([one]).splitlines() == [
        "[0] main (train.py:1)",
        "  native gloo::wait (libtorch_cpu.so)",
    ]


def test_threads_of_pools_are_counted_and_others_shown_below() -> None:
    pool = Frame("_worker", "/usr/lib/python3.11/concurrent/futures/thread.py", 81)
    beside = (
        *(Thread(200 + n, f"pool_{n}", False, False, (pool,)) for n in range(12)),
        Thread(300, "flush", False, False, (Frame("flush", PLACES["own"], 3),)),
    )
    one = rank(0, "main")
    one = replace(one, looks=(replace(one.looks[0], threads=one.looks[0].threads + beside),))
    assert merged_stacks_text([one]).splitlines()[1:] == [
        "",
        "other threads",
        "[0] flush (train.py:3)",
        "[0] 12 idle pool threads",
    ]


def test_children_have_a_tree_for_each_role() -> None:
    def family(n: int) -> tuple[Look, ...]:
        workers = [look("fetch", pid=900 + 10 * n + i, name="pt_data_worker") for i in range(2)]
        return (*workers, look(pid=990 + n, name="wandb-core"))

    ranks = [rank(n, "main", children=family(n)) for n in range(2)]
    assert merged_stacks_text(ranks).splitlines()[1:] == [
        "",
        "DataLoader worker: 4 children of ranks 0-1",
        "[0-1] fetch (train.py:1)",
        "",
        "wandb-core: 2 children of ranks 0-1",
        "[0-1] no Python stack: state S, recvfrom, wait_woken",
    ]


def test_a_very_deep_recursion_is_shown_by_its_ends() -> None:
    lines = merged_stacks_text([rank(0, *["f"] * 5000)]).splitlines()
    assert len(lines) <= MOST_LINES
    assert lines[16].strip() == "... 4968 frames ..."


def test_a_thousand_ranks_with_twelve_stacks_fit_on_a_page() -> None:
    def stack(kind: int) -> tuple[str, ...]:
        # Each kind leaves the common way at another depth, and goes deep by itself.
        way = [f"step{n}" for n in range(3 * kind + 3)]
        return tuple(reversed([*way, *(f"own{kind}_{n}" for n in range(25))]))

    ranks = [
        rank(r, *stack(r % 12), children=(look("fetch", name="pt_data_worker"),))
        for r in range(1024)
    ]
    text = merged_stacks_text(ranks)
    assert len(text.splitlines()) <= MOST_LINES
    assert all(f"own{kind}_0 " in text for kind in range(11))  # where they part
    assert all(f"own{kind}_24 " in text for kind in range(12))  # where they are


def test_the_main_threads_are_never_cut() -> None:
    many = [rank(r, *[f"f{r}_{n}" for n in range(9)]) for r in range(100)]
    lines = merged_stacks_text(many).splitlines()
    assert len([line for line in lines if line.startswith("[")]) == 100
