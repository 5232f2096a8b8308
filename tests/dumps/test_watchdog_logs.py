"""Logs of ranks in which NCCL's watchdog gave up: which rank has not come, by what each says that
it enqueued last in the group.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hangbisect.base.verdict_facts import Verdict
from hangbisect.commands.results import merge
from hangbisect.dumps.contents import Contents
from hangbisect.dumps.files import read_data
from hangbisect.dumps.merge import MergedDumps, describe_divergence, judge_dumps, merge_dumps
from hangbisect.report.merged_dumps import merged_lines
from hypothesis import given
from hypothesis import strategies as st

from ..transcripts import block
from .watchdog_texts import TELLING, VERSIONS, signalled, text, timed_out

TP = ("5", "TENSOR_MODEL_PARALLEL_GROUP")


def merged(files: Mapping[str, bytes]) -> MergedDumps:
    found = Contents()
    for name, data in files.items():
        found += read_data(data, name)
    assert found.unreadable == ()
    return merge_dumps(found)


def judged(*logs: bytes, names: str = "rank{}.log") -> Verdict:
    return judge_dumps(merged({names.format(n): one for n, one in enumerate(logs)}))


# ---- one rank is behind --------------------------------------------------------------------------


@pytest.mark.parametrize("version", TELLING)
def test_who_enqueued_less_than_the_others_wait_in_is_named(version: str) -> None:
    """Rank 2 is at operation 40 and says so when the others' time limit makes it dump."""
    logs = [
        text(signalled(n, 40, 40) if n == 2 else timed_out(n, 41, 43, version)) for n in range(4)
    ]
    verdict = judged(*logs)
    assert verdict.outcome == "hang"
    assert (verdict.ranks.culprit, verdict.ranks.waiting) == ((2,), (0, 1, 3))


def test_the_operation_and_its_group_are_told() -> None:
    logs = [text(signalled(n, 40, 40) if n == 2 else timed_out(n, 41, 43)) for n in range(4)]
    found = merged({f"rank{n}.log": one for n, one in enumerate(logs)})
    assert describe_divergence(found) == (
        "rank 2 never entered operation 41 of group 0, all_reduce, in which ranks 0-1,3 wait"
    )
    lines = merged_lines(found, judge_dumps(found), describe_divergence(found))
    assert any(line.startswith("seen by") and "watchdog" in line for line in lines)


def test_two_that_are_behind_are_both_named() -> None:
    """0 and 4 stand in an operation outside of the group; the others are two ahead."""
    logs = [
        text(signalled(n, 77, 77) if n in (0, 4) else timed_out(n, 78, 79, kind="BROADCAST"))
        for n in range(8)
    ]
    assert judged(*logs).ranks.culprit == (0, 4)


def test_a_rank_that_waits_for_another_is_not_the_one() -> None:
    """1 waits in 41, 0 in 40 for 2, which is at 39."""
    logs = [text(timed_out(0, 40, 40)), text(timed_out(1, 41, 41)), text(signalled(2, 39, 39))]
    assert judged(*logs).ranks.culprit == (2,)


def test_a_rank_that_has_enqueued_nothing() -> None:
    logs = [text(timed_out(n, 1, 1)) for n in range(3)] + [text(signalled(3, -1, -1))]
    assert judged(*logs).ranks.culprit == (3,)


def test_all_ranks_in_one_log_whatever_the_launcher_puts_in_front() -> None:
    lines = [line for n in range(4) if n != 2 for line in timed_out(n, 41, 43)]
    front = "(RayWorkerWrapper pid=4711, ip=10.0.0.2) "
    whole = text([front + line for line in [*lines, *signalled(2, 40, 40)]])
    assert judged(whole, names="slurm-4711.out").ranks.culprit == (2,)
    assert judged(whole, names="driver{}.log").world_size == 4


def test_a_group_of_some_ranks_is_a_group_of_its_own() -> None:
    """Default group: all at 58. In the tensor parallel pair 2, 3 both have enqueued: nobody."""
    pair = [
        [*timed_out(n, 809, 880, group=TP, group_rank=n - 2), *signalled(n, 58, 58)] for n in (2, 3)
    ]
    logs = [text(signalled(n, 58, 58)) for n in (0, 1)] + [text(one) for one in pair]
    verdict = judged(*logs)
    assert verdict.ranks.culprit == ()


def test_the_page_shows_what_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(Path(__file__).parent / "made_up_logs")
    page = "how-to/dumps-you-have.md"
    assert block(page, "hangbisect merge slurm-4711.out")
    assert merge(["slurm-4711.out"]) == 3
    shown = block(page, "collectives, as NCCL's watchdog")
    assert capsys.readouterr().out.strip().splitlines() == shown


# ---- nobody can be told --------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_where_all_have_entered_nobody_is_named(version: str) -> None:
    """The commonest text of public issues: all ranks wait in one operation, and nobody is late."""
    logs = [text(timed_out(n, 1580, 1582, version)) for n in range(4)]
    verdict = judged(*logs)
    assert verdict.outcome == "hang"
    assert (verdict.ranks.culprit, verdict.ranks.waiting) == ((), (0, 1, 2, 3))


def test_where_all_have_entered_it_is_said_so() -> None:
    found = merged({f"rank{n}.log": text(timed_out(n, 1580, 1582)) for n in range(4)})
    said = "\n".join(merged_lines(found, judge_dumps(found), describe_divergence(found)))
    assert "ranks 0-3: all_reduce of 466119168 elements number 1580 of group 0, not done" in said
    assert "all that tell have entered operation 1580 of group 0" in said


def test_a_rank_without_a_word_of_its_own_is_not_named() -> None:
    """Rank 2 was killed before it said how far it came: nothing but that it is not seen."""
    logs = {f"rank{n}.log": text(timed_out(n, 41, 41)) for n in (0, 1, 3)}
    found = merged(logs)
    verdict = judge_dumps(found)
    assert found.unseen == (2,)
    assert verdict.ranks.culprit == ()


def test_old_versions_name_no_group_so_nobody_is_behind() -> None:
    logs = [text(timed_out(n, 41 - (n == 2), 0, "2.1")) for n in range(4)]
    assert judged(*logs).ranks.culprit == ()


def test_without_a_global_name_two_groups_may_have_one_number() -> None:
    """Before 2.5 a group goes by a number of its process: pairs 0, 1 and 2, 3 are both PG 1."""
    logs = [
        text(timed_out(n, 40 + 7 * (n > 1), 48, "2.4", group=("1", ""), group_rank=n % 2))
        for n in range(3)
    ]
    late = text(signalled(3, 0, 0), ["[rank3]:[E321 02:07:09.1 P.cpp:1] " + _status_of("1", 1, 9)])
    assert judged(*logs, late).ranks.culprit == ()


def _status_of(group: str, group_rank: int, enqueued: int) -> str:
    return (
        f"[PG {group} Rank {group_rank}] Timeout at NCCL work: {enqueued}, "
        f"last enqueued NCCL work: {enqueued}, last completed NCCL work: {enqueued}."
    )


def test_what_was_said_before_the_others_entered_says_nothing() -> None:
    """Rank 2 dumped at 02:07:09; the others entered operation 41 half an hour later."""
    late = [
        line.replace("E321 02:", "E321 03:") for n in (0, 1, 3) for line in timed_out(n, 41, 41)
    ]
    assert judged(text(signalled(2, 40, 40), late), names="all.log").ranks.culprit == ()


def test_of_a_job_that_was_started_again_the_last_start_counts() -> None:
    """Before, rank 1 was behind at 41; now all have entered operation 7."""
    first = [*timed_out(0, 41, 43), *signalled(1, 40, 40)]
    again = [line.replace("E321 02:", "E321 04:") for n in (0, 1) for line in timed_out(n, 7, 7)]
    verdict = judged(text(first, again), names="all.log")
    assert (verdict.ranks.culprit, verdict.ranks.waiting) == ((), (0, 1))


def test_sends_have_numbers_of_their_own() -> None:
    """A pipeline in the default group: 3 is the third send, and no third collective."""
    logs = [text(timed_out(0, 3, 3, kind="SEND")), text(timed_out(1, 41, 41))]
    assert judged(*logs, text(signalled(2, 40, 40))).ranks.culprit == ()


# ---- different operations ------------------------------------------------------------------------


def test_who_calls_another_operation_in_the_same_place_is_named() -> None:
    logs = [text(timed_out(n, 5, 5, kind="ALLGATHER" if n == 2 else "ALLREDUCE")) for n in range(4)]
    verdict = judged(*logs)
    assert verdict.ranks.culprit == (2,)
    assert verdict.cause is not None
    assert verdict.cause.id == "collective-mismatch"


def test_another_size_is_named_and_of_two_ranks_both() -> None:
    logs = [text(timed_out(n, 5, 5, elements=8 if n == 1 else 4)) for n in range(4)]
    assert judged(*logs).ranks.culprit == (1,)
    assert judged(*logs[:2]).ranks.culprit == (0, 1)


# ---- whatever the logs ---------------------------------------------------------------------------


@given(
    st.integers(0, 7),
    st.sets(st.integers(0, 7), max_size=7),
    st.integers(1, 3),
    st.sampled_from(TELLING),
)
def test_with_a_part_of_the_logs_never_another_rank(
    who: int, lost: set[int], ahead: int, version: str
) -> None:
    logs = {
        f"rank{n}.log": text(
            signalled(n, 40, 40) if n == who else timed_out(n, 41, 40 + ahead, version)
        )
        for n in range(8)
        if n not in lost
    }
    named = judge_dumps(merged(logs)).ranks.culprit
    assert named == ((who,) if who not in lost and len(logs) > 1 else ())


@given(st.lists(st.text(max_size=60), max_size=5), st.integers(0, 400))
def test_whatever_stands_in_a_log_nothing_is_raised(lines: list[str], cut: int) -> None:
    whole = text(lines, timed_out(3, 41, 43), lines)
    merge_dumps(read_data(whole[:-cut] if cut else whole, "rank3.log"))
