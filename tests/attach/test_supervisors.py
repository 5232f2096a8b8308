"""Programs that keep a rank alive: which process is the rank, and what fails below them again and
again.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hangbisect.attach.processes import Process
from hangbisect.attach.ranks import Rank, ranks_from_environment, replace_supervisors
from hangbisect.attach.restarts import are_tries
from hangbisect.evidence.left_logs import find_repeated_failure

from .made_up import PYTHON, process, table

VARIABLES = {"RANK": "1", "WORLD_SIZE": "3", "MASTER_ADDR": "n1", "MASTER_PORT": "29400"}
KEEPER = (PYTHON, "keep_alive.py")
TRAIN = (PYTHON, "train.py")


def ranks(*processes: Process, torch: set[int]) -> list[Rank]:
    """The ranks among these, of which some have loaded torch."""
    there = table(*processes)
    found = ranks_from_environment(there)
    return replace_supervisors(there, found, lambda one: one.pid in torch)


def one(pid: int, ppid: int, *words: str) -> Process:
    """A process that has the variables of a rank."""
    return process(pid, ppid, *words, environ=VARIABLES)


def test_what_a_program_keeps_alive_is_the_rank() -> None:
    (found,) = ranks(one(100, 1, *KEEPER), one(101, 100, *TRAIN), torch={101})
    assert (found.number, found.pid, found.keeper) == (1, 101, 100)


def test_a_shell_may_stand_between() -> None:
    between = one(101, 100, "/bin/bash", "-c", "python train.py")
    (found,) = ranks(one(100, 1, *KEEPER), between, one(102, 101, *TRAIN), torch={102})
    assert (found.pid, found.keeper) == (102, 100)


@pytest.mark.parametrize(
    ("child", "torch"),
    [
        (TRAIN, {100, 101}),  # a program that a rank has started
        (TRAIN, set[int]()),  # which of them meets others nobody knows
        (KEEPER, {101}),  # it was forked
        (
            (
                PYTHON,
                "-c",
                "from multiprocessing.spawn import spawn_main; spawn_main()",
                "--multiprocessing-fork",
            ),
            {101},
        ),
    ],
)
def test_what_a_rank_has_started_is_none(child: tuple[str, ...], torch: set[int]) -> None:
    (found,) = ranks(one(100, 1, *KEEPER), one(101, 100, *child), torch=torch)
    assert (found.pid, found.keeper) == (100, None)


def test_of_several_programs_none_is_chosen() -> None:
    (found,) = ranks(
        one(100, 1, *KEEPER), one(101, 100, *TRAIN), one(102, 100, *TRAIN, "b"), torch={101, 102}
    )
    assert found.pid == 100


TRACEBACK = """\
Traceback (most recent call last):
  File "train.py", line %d, in <module>
    train()
KeyError: 'layers'
training ended with status 1: again in 5 s
"""


def test_an_error_by_which_python_has_ended_is_counted(tmp_path: Path) -> None:
    log = tmp_path / "said"
    log.write_text("step 1\n" + TRACEBACK % 7 + "step 1\n" + TRACEBACK % 8 + "step 1\n")
    found = find_repeated_failure(str(log))
    assert found is not None
    assert (found.error, found.times) == ("KeyError: 'layers'", 2)
    log.write_text("ValueError: that is what a page says\nERROR retrying\nERROR retrying\n")
    assert find_repeated_failure(str(log)) is None
    assert find_repeated_failure(str(tmp_path)) is None


def test_what_lives_longer_than_those_before_it_may_go_on() -> None:
    assert are_tries(until=20.0, since=5.0, times=2)
    assert not are_tries(until=20.0, since=60.0, times=2)
    assert not are_tries(until=0.1, since=1.0, times=1)  # the first one
