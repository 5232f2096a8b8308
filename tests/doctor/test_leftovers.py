"""Which processes were left behind, and what is said of what they hold."""

from __future__ import annotations

import pytest
from hangbisect.base.launcher_env import Ancestor
from hangbisect.doctor.examination import CheckedProcess
from hangbisect.doctor.leftovers import Left, Seen, is_helper, left_behind, orphans

from .made_up import levels, said, setting

INIT = Ancestor({}, ("/sbin/init",))
PYTHON = ("python", "train.py")
BASE = (
    Seen(1, 0, "init"),
    Seen(2, 1, "systemd"),
    Seen(10, 1, "bash", ("bash",)),
    Seen(11, 1, "slurmstepd"),
)


def seen(*processes: Seen) -> dict[int, Seen]:
    return {one.pid: one for one in (*BASE, *processes)}


def rank(pid: int, parent: int, words: tuple[str, ...] = PYTHON) -> Seen:
    return Seen(pid, parent, "python", words, marked=True)


@pytest.mark.parametrize("parent", [1, 2])
def test_a_rank_whose_launcher_is_gone_and_all_below_it(parent: int) -> None:
    assert orphans(seen(rank(20, parent), rank(21, 20)), INIT) == (20, 21)


def test_ranks_of_a_living_launcher_are_a_job() -> None:
    torchrun = Seen(30, 10, "torchrun", ("python", "/bin/torchrun", "train.py"))
    in_background = Seen(40, 1, "torchrun", ("python", "/bin/torchrun", "train.py"))
    processes = (torchrun, rank(31, 30), in_background, rank(41, 40), rank(51, 11), rank(61, 10))
    assert orphans(seen(*processes), INIT) == ()


def test_a_job_in_the_background_that_is_no_rank_is_none() -> None:
    assert orphans(seen(Seen(20, 1, "python", PYTHON)), INIT) == ()


def test_our_own_monitor_leaves_its_parent_on_purpose() -> None:
    monitor = ("python", "-P", "/lib/hangbisect", "monitor")
    assert orphans(seen(rank(20, 1, monitor), rank(21, 1, ("python", "bisect"))), INIT) == ()


def test_in_a_container_the_first_process_may_be_the_launcher() -> None:
    processes = seen(rank(20, 1))
    assert orphans(processes, Ancestor({}, ("python", "/bin/torchrun"))) == ()
    assert orphans(processes, Ancestor({}, ("python", "train.py"))) == ()
    assert orphans(processes, Ancestor({}, ("bash",))) == (20,)


def test_processes_that_go_round_in_a_circle_end() -> None:
    assert orphans({20: rank(20, 21), 21: rank(21, 20)}, INIT) in ((), (20, 21))


@pytest.mark.parametrize("title", ["VLLM::EngineCore_DP0", "sglang::detokenizer", "ray::IDLE"])
def test_a_title_tells_what_a_server_or_a_cluster_has_left_behind(title: str) -> None:
    """Its variables are gone: the title stands where they were."""
    assert is_helper((title,))
    assert is_helper((title + " " * 40,))


def test_helpers_of_ranks() -> None:
    assert is_helper(("/lib/wandb/bin/wandb-core", "--port-filename"))
    assert is_helper(("python", "-c", "from multiprocessing.spawn import spawn_main"))
    assert not is_helper(("vim", "train.py"))
    assert not is_helper(())


PROCESS = CheckedProcess(4711, "python", PYTHON, 9000.0)


def test_a_gpu_or_the_port_is_a_problem_another_port_or_a_lock_a_warning() -> None:
    assert levels(left_behind, (Left(PROCESS, gpus=(0, 1)),)) == ["problem"]
    port = Left(PROCESS, ports=(29500,), locks=2)
    ((level, value),) = said(left_behind, (port,))
    assert (level, "held is port 29500 and 2 locks" in value) == ("warning", True)
    assert levels(left_behind, (port,), setting(MASTER_PORT="29500")) == ["problem"]
    assert levels(left_behind, (Left(PROCESS),)) == ["ok"]
    assert levels(left_behind, ()) == ["ok"]


def test_processes_of_a_job_are_told_together_and_many_jobs_are_counted() -> None:
    ranks = tuple(
        Left(CheckedProcess(20 + r, "python", PYTHON), ports=(4000 + r,)) for r in range(8)
    )
    ((level, value),) = said(left_behind, ranks)
    assert (level, "python (20" in value, "and 7 like it" in value) == ("warning", True, True)
    (found,) = left_behind(setting(), ranks)
    assert found.next.startswith("kill 20 21 22 23 24 25 26 27 ")
    jobs = tuple(Left(CheckedProcess(n, "python", (f"{n}.py",)), locks=1) for n in range(30))
    assert levels(left_behind, jobs) == ["warning"] * 7
