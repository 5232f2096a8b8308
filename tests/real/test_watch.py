"""Whole jobs that hang, and jobs that only look as if they did: healthy ones with the real
libraries are in test_startup_pipeline.py.
"""

from __future__ import annotations

import json

import pytest
from hangbisect.base.checkpoints import STARTUP_BY_NAME
from jobs import Ended

from .verdicts import check
from .whole_jobs import ONE_THREAD, Jobs

FAST = ("--fast-dev-run", "1", "--wandb", "off")


# kind, checkpoint, ranks (None: all), what the first culprit waits for
HANGS = [
    ("sleep", "logs_directory", 1, "sleep"),
    ("gil", "logs_directory", 0, "gil sleep"),
    ("native", "tokenizer", None, "sleep kernel unknown itself"),
    ("stop", "logs_directory", None, "stopped"),
    ("stop", "logs_directory", 1, "stopped"),
    ("socket", "logs_directory", 0, "socket"),
    ("flock", "logs_directory", 1, "lock"),
    ("fifo", "logs_directory", None, "pipe file"),
    ("child", "logs_directory", 0, "process"),
]


@pytest.mark.parametrize(("kind", "checkpoint", "rank", "kinds"), HANGS)
def test_a_hang_is_found_with_its_rank_checkpoint_call_and_wait(
    kind: str, checkpoint: str, rank: int | None, kinds: str, light_jobs: Jobs
) -> None:
    place = f"{kind}@{checkpoint}" + ("" if rank is None else f":rank{rank}")
    ended = light_jobs.run("--timeout", "2", "--inject", place)
    check(ended, "hang", culprit=[0, 1] if rank is None else [rank], checkpoint=checkpoint)
    verdict = ended.verdict
    assert verdict["ranks"]["waiting"] == ([] if rank is None else [1 - rank])
    assert verdict["call"], verdict
    assert verdict["component"], verdict
    assert verdict["waits_for"]["kind"] in kinds.split()
    has_its_stacks(ended, verdict["ranks"]["culprit"])


def has_its_stacks(ended: Ended, ranks: list[int]) -> None:
    for rank in ranks:
        text = (ended.run_dir / "stacks" / f"rank-{rank}.txt").read_text()
        assert f"rank {rank} pid" in text
    assert (ended.run_dir / "stacks" / "merged.txt").read_text()
    evidence = json.loads((ended.run_dir / "evidence.json").read_text())
    assert {f"rank {rank}" for rank in ranks} <= {n["name"] for n in evidence["graph"]["nodes"]}
    assert {rank["rank"] for rank in evidence["ranks"]} == {0, 1}


def test_a_rank_that_spins_is_hung_once_the_slow_limit_is_over(light_jobs: Jobs) -> None:
    ended = light_jobs.run(
        "--timeout", "2", "--slow-limit", "5", "--inject", "spin@logs_directory:rank1"
    )
    check(ended, "hang", culprit=[1], checkpoint="logs_directory")
    assert ended.verdict["waits_for"]["kind"] == "itself"
    assert "SLOW" in ended.err


@pytest.mark.parametrize(
    ("place", "checkpoint", "culprit"),
    [
        ("socket@wandb_logger:rank0", "wandb_logger", [0]),
        ("child@training", "training", [0, 1]),
    ],
)
def test_a_hang_among_the_real_libraries_is_found(
    place: str, checkpoint: str, culprit: list[int], light_jobs: Jobs
) -> None:
    ended = light_jobs.run(*FAST, "--timeout", f"{checkpoint}=3", "--inject", place)
    check(ended, "hang", culprit=culprit, checkpoint=checkpoint)
    assert ended.verdict["ranks"]["waiting"] == sorted({0, 1} - set(culprit))


@pytest.mark.parametrize(
    ("place", "phase", "culprit", "starts"),
    [
        ("native@process_group:rank1", "process_group", 1, "launcher"),
        ("fifo@first_backward:rank1", "first_backward", 1, "Lightning"),
    ],
)
def test_a_rank_that_waits_for_another_in_the_process_group_is_not_blamed(
    place: str, phase: str, culprit: int, starts: str, light_jobs: Jobs
) -> None:
    by_lightning = starts == "Lightning"  # a lone rank is started, and it starts the other one
    words = ("--devices", "2") if by_lightning else ()
    ended = light_jobs.run(
        *(*FAST, "--timeout", "training=4", "--inject", place, *words),
        ranks=0 if by_lightning else 2,
        environ=ONE_THREAD,
    )
    check(ended, "hang", culprit=[culprit], checkpoint="training")
    assert ended.verdict["checkpoint"]["phase"] == phase
    assert ended.verdict["ranks"]["stuck"] == [culprit]
    assert ended.verdict["ranks"]["waiting"] == [1 - culprit]
    if by_lightning:
        assert ended.status == 3


@pytest.mark.parametrize("stuck", [[2], [0, 1, 3]])
def test_of_four_ranks_those_that_are_stuck_are_found_be_it_one_or_three(
    stuck: list[int], light_jobs: Jobs
) -> None:
    places = [word for rank in stuck for word in ("--inject", f"sleep@logs_directory:rank{rank}")]
    ended = light_jobs.run("--timeout", "3", *places, ranks=4)
    check(ended, "hang", culprit=stuck, checkpoint="logs_directory")
    assert ended.verdict["ranks"]["waiting"] == sorted({0, 1, 2, 3} - set(stuck))


@pytest.mark.parametrize("kind", ["slow", "trickle"])
def test_what_is_slow_but_moves_goes_on(kind: str, light_jobs: Jobs) -> None:
    place = f"{kind}@logs_directory:rank{kind == 'trickle':d}"
    ended = light_jobs.run("--timeout", "2", "--until", "logs_directory", "--inject", place)
    check(ended, "ok")
    assert ended.status == 0
    late = [one["checkpoint"] for one in ended.verdict["slow_steps"]]
    assert STARTUP_BY_NAME["logs_directory"].number in late


def test_what_stands_still_is_looked_at_before_any_deadline(light_jobs: Jobs) -> None:
    ended = light_jobs.run("--stall", "5", "--inject", "socket@logs_directory:rank1")
    check(ended, "hang", culprit=[1], checkpoint="logs_directory")
    number = STARTUP_BY_NAME["logs_directory"].number
    looked = ended.err.index(f"Rank 1 stands still at checkpoint {number}: looking")
    assert looked < ended.err.index("SILENT  ") < ended.err.index("HANG  ")


def test_a_job_that_moves_past_its_limit_is_slow(light_jobs: Jobs) -> None:
    limits = ("--limit", "5", "--timeout", "60", "--stall", "60")
    ended = light_jobs.run(*limits, "--inject", "slow@logs_directory:rank1")
    check(ended, "slow", culprit=[1], checkpoint="logs_directory")
