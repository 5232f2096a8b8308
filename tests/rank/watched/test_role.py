"""Which process of a watched job is a rank, and when it says so."""

from __future__ import annotations

import pytest
from hangbisect.rank.watched.process_role import (
    Claim,
    ProcessFacts,
    Role,
    decide_role,
    is_started_by_script,
    read_claim,
)
from hypothesis import given
from hypothesis import strategies as st

TORCHRUN = ProcessFacts(
    pid=100,
    parent=10,
    claim=None,
    launched=True,
    joined=False,
    numbered=True,
    job="j",
    rank=1,
    launcher=10,
)
PLAIN = TORCHRUN._replace(launched=False, numbered=False, rank=0, launcher=10)
OF_RANK_1 = Claim("j", 1, 50, trains=True, numbered=True)
OF_PLAIN = Claim("j", 0, 50, trains=True, numbered=False)


def test_what_a_launcher_started_itself_is_a_rank_at_once() -> None:
    assert decide_role(TORCHRUN) is Role.RANK


def test_what_a_script_in_a_task_starts_says_hello_when_it_trains() -> None:
    assert decide_role(TORCHRUN._replace(launcher=9)) is Role.LATER


def test_a_plain_python_says_hello_when_it_trains() -> None:
    assert decide_role(PLAIN) is Role.LATER


def test_a_child_of_a_rank_is_none() -> None:
    assert decide_role(TORCHRUN._replace(claim=OF_RANK_1, parent=50)) is Role.NONE


def test_a_child_of_a_rank_that_has_only_started_it_so_far_may_be_the_rank() -> None:
    wrapper = OF_RANK_1._replace(trains=False)
    assert decide_role(TORCHRUN._replace(claim=wrapper, parent=50)) is Role.LATER


def test_a_process_that_became_another_program_is_the_rank_it_was() -> None:
    assert decide_role(TORCHRUN._replace(claim=OF_RANK_1._replace(pid=100))) is Role.RANK


def test_lightnings_own_children_are_ranks_and_theirs_are_none() -> None:
    child = PLAIN._replace(claim=OF_PLAIN, joined=True, numbered=True, rank=1)
    assert decide_role(child) is Role.RANK
    assert decide_role(child._replace(claim=OF_RANK_1)) is Role.NONE


def test_spawned_children_may_join_a_group() -> None:
    assert decide_role(PLAIN._replace(claim=OF_PLAIN, joined=True)) is Role.HELPER


def test_what_a_spawned_rank_starts_is_none_though_nobody_numbered_it() -> None:
    assert decide_role(PLAIN._replace(claim=OF_RANK_1, joined=True)) is Role.NONE


def test_torchrun_below_a_script_that_counted_gpus_starts_ranks() -> None:
    below = TORCHRUN._replace(rank=0, job="k", claim=OF_PLAIN, joined=True)
    assert decide_role(below) is Role.RANK


def test_what_a_rank_starts_that_set_its_own_variables_is_none() -> None:
    spawned = TORCHRUN._replace(job="k", claim=OF_RANK_1, parent=50, launcher=50)
    assert decide_role(spawned) is Role.NONE


def test_ranks_whose_variables_a_watched_script_has_set_belong_to_its_job() -> None:
    """`subprocess.Popen([sys.executable, ...], env={**os.environ, "RANK": ...})`."""
    below = TORCHRUN._replace(rank=0, job="k", claim=OF_PLAIN, parent=50, launcher=50)
    assert decide_role(below) is Role.RANK
    assert is_started_by_script(below)
    assert not is_started_by_script(below._replace(launcher=51))  # a launcher stands in between
    assert not is_started_by_script(below._replace(claim=OF_RANK_1))
    assert not is_started_by_script(TORCHRUN)
    elsewhere = below._replace(has_others=True)  # each machine has such a script, and none has all
    assert not is_started_by_script(elsewhere)
    assert decide_role(elsewhere) is Role.RANK


claims = st.builds(
    Claim,
    st.text("0123456789abcdef", min_size=1),
    st.integers(0, 10**6),
    st.integers(1, 10**6),
    st.booleans(),
    st.booleans(),
)


@given(claims)
def test_a_claim_is_read_as_it_was_written(claim: Claim) -> None:
    assert read_claim(str(claim)) == claim


@pytest.mark.parametrize("text", ["", "a", "a:b:c:d:e", "a:1:2:3", "::::"])
def test_what_is_no_claim_is_none(text: str) -> None:
    assert read_claim(text) is None
