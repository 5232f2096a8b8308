"""Ranks that are counted on and never come, or that left."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hangbisect.base.checkpoints import UserStep
from hangbisect.base.rank_facts import RankFacts
from hangbisect.diagnosis.verdict import judge_job

from ..made_up import ALL_REDUCE, GROUP, SLEEP, gone, job, look, rank
from .scenes import MAKES_GROUP, MAKES_STORE, TORCHRUN, Facts, Shows, causes_of, with_locals

SLURM = {"SLURM_NTASKS": "2", "SLURM_JOB_NAME": "train", "SLURM_PROCID": "0"}


def not_there(number: int) -> RankFacts:
    return RankFacts(number, number, reached=-1, alive=False, never_started=True)


def world_size_too_large() -> Facts:
    counted = {**TORCHRUN, "WORLD_SIZE": "3"}
    return job(), [rank(0, GROUP, environment=counted), rank(1, GROUP, environment=counted)]


def slurm_environment() -> Facts:
    return job(), [rank(0, GROUP, environment=SLURM), not_there(1)]


def exported_rank_variables() -> Facts:
    alone = job(world=1)
    return alone, [rank(0, GROUP, environment={"LOCAL_RANK": "0", "MASTER_PORT": "29500"})]


def rank_left() -> Facts:
    return job("left"), [rank(0, GROUP, environment=TORCHRUN), gone(1, 0)]


def rank_died() -> Facts:
    return job("left"), [rank(0, ALL_REDUCE), gone(1, -9)]


def test_of_one_that_is_gone_nobody_need_have_seen_how_it_ended() -> None:
    """Its parent alone was told, and is over as well."""
    found = causes_of((job("late"), [rank(0, ALL_REDUCE), gone(1, None)]))
    assert next(iter(found)) == "rank-died"
    assert found["rank-died"].level == "guess"
    assert "rank 1 is gone" in found["rank-died"].matched[0]


def rank_never_started() -> Facts:
    return job(), [rank(0, GROUP, environment=TORCHRUN), not_there(1)]


HEARS = "process 90 (python), which starts the ranks, waits for what process 100 is to tell it"


def started_one_by_one() -> Facts:
    """The world is right: who starts the ranks waits for the first before it starts the next."""
    ready = with_locals(look(*MAKES_STORE, call="poll"), "init_process_group", rank=0, world_size=2)
    return job(world=1, starter_hears=HEARS), [rank(0, ready)]


SHOWS: Shows = {
    "started-one-by-one": started_one_by_one,
    "world-size-too-large": world_size_too_large,
    "slurm-environment": slurm_environment,
    "exported-rank-variables": exported_rank_variables,
    "rank-left": rank_left,
    "rank-died": rank_died,
    "rank-never-started": rank_never_started,
}


def test_who_waits_for_the_first_rank_before_it_starts_the_next_made_no_world_too_large() -> None:
    about, ranks = started_one_by_one()
    assert "world-size-too-large" not in causes_of((about, ranks))
    silent = replace(about, starter_hears="")
    assert "started-one-by-one" not in causes_of((silent, ranks))
    verdict = judge_job(about, list(ranks))
    assert tuple(verdict.ranks.waiting) == (0,)


def test_a_world_of_the_right_size_is_not_too_large() -> None:
    ranks = [rank(0, GROUP, environment=TORCHRUN), rank(1, SLEEP, environment=TORCHRUN)]
    assert "world-size-too-large" not in causes_of((job(), ranks))


def test_ranks_of_other_nodes_do_not_make_a_world_too_large() -> None:
    counted = {**TORCHRUN, "GROUP_WORLD_SIZE": "2", "WORLD_SIZE": "4"}
    ranks = [rank(0, GROUP, environment=counted), rank(1, GROUP, environment=counted)]
    assert "world-size-too-large" not in causes_of((job(world=4, local_ranks=(0, 1)), ranks))


def test_a_world_that_lightning_was_told_is_read_from_its_frames() -> None:
    one = look(*MAKES_GROUP, call="poll")
    counting = with_locals(one, "_new_process_group_helper", group_rank=0, group_size=3)
    found = causes_of((job(), [rank(0, counting), rank(1, counting)]))
    assert "3 ranks" in found["world-size-too-large"].matched[0]


def test_a_rank_that_only_frames_count_on_is_who_is_missing() -> None:
    """The script has set WORLD_SIZE=3 over torchrun's: no environment shows that from outside."""
    one = look(*MAKES_GROUP, call="poll")
    counting = with_locals(one, "_new_process_group_helper", group_rank=0, group_size=3)
    told = {name: value for name, value in TORCHRUN.items() if name != "GROUP_WORLD_SIZE"}
    by_size = {**told, "LOCAL_WORLD_SIZE": "2"}
    for environment in (TORCHRUN, by_size):
        ranks = [rank(n, counting, environment=environment) for n in (0, 1)]
        assert judge_job(job("still"), ranks).ranks.culprit == (2,)
    verdict = judge_job(job("still"), ranks)
    assert verdict.ranks.waiting == (0, 1)
    assert verdict.cause is not None
    assert verdict.cause.id == "world-size-too-large"


def test_what_frames_count_on_may_be_on_another_node() -> None:
    one = look(*MAKES_GROUP, call="poll")
    counting = with_locals(one, "_new_process_group_helper", group_rank=0, group_size=4)
    two_nodes = {**TORCHRUN, "GROUP_WORLD_SIZE": "2"}
    ranks = [rank(n, counting, environment=two_nodes) for n in (0, 1)]
    assert not {2, 3} & {*judge_job(job("still", 2), ranks).ranks.never_started}


@pytest.mark.parametrize(
    "harmless",
    [
        {"SLURM_JOB_NAME": "interactive"},
        {"SLURM_NTASKS": "1"},
        {"SLURM_STEP_NUM_TASKS": "2"},  # srun did start them
        {"TORCHELASTIC_RUN_ID": "x"},  # torchrun in a batch job
    ],
)
def test_slurm_is_no_cause_where_lightning_ignores_it(harmless: dict[str, str]) -> None:
    ranks = [rank(0, GROUP, environment={**SLURM, **harmless}), not_there(1)]
    assert "slurm-environment" not in causes_of((job(), ranks))


def test_a_whole_set_of_variables_may_be_a_launchers() -> None:
    facts, ranks = exported_rank_variables()
    whole = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2"}
    told = [replace(r, environment={**r.environment, **whole}) for r in ranks]
    found = causes_of((facts, told)).get("exported-rank-variables")
    assert found is None or found.agreement <= 0.8


def test_variables_that_a_launcher_set_are_not_exported_by_hand() -> None:
    alone = {**TORCHRUN, "LOCAL_RANK": "0"}
    assert "exported-rank-variables" not in causes_of(
        (job(world=1), [rank(0, GROUP, environment=alone)])
    )


def test_ranks_that_lightning_started_are_not_taken_for_an_export() -> None:
    made = {"LOCAL_RANK": "0", "NODE_RANK": "0", "WORLD_SIZE": "2"}
    ranks = [rank(0, GROUP, environment=made), rank(1, SLEEP, environment=made)]
    assert "exported-rank-variables" not in causes_of((job(), ranks))


def test_a_rank_that_did_all_it_had_to_do_has_not_left() -> None:
    ranks = [rank(0, SLEEP), gone(1, 0, finished=True)]
    assert "rank-left" not in causes_of((job(), ranks))


def test_a_rank_with_a_process_was_started() -> None:
    late = RankFacts(1, 1, pid=101, never_started=True, looks=(look(pid=101, rung="proc"),))
    assert "rank-never-started" not in causes_of((job(), [rank(0, GROUP), late]))


def test_a_rank_that_was_done_is_no_reason_for_one_that_waits_for_something_of_its_own() -> None:
    naps = look("Baton.wait train.py:17", "<module> train.py:25", call="clock_nanosleep")
    script = UserStep("script", "Script", "", 0.0)
    ranks = [gone(0, 0, step=script), rank(1, naps, replace(naps, at=103.0), step=script)]
    assert judge_job(job(), ranks).ranks.culprit == (1,)
    assert "rank-left" not in causes_of((job(), ranks))


def test_lightning_tells_that_it_believes_in_slurm_where_no_variable_is_seen() -> None:
    """A program that sets them in itself: /proc shows nothing of that."""
    believes: dict[str, object] = {"cluster_environment": "<SLURMEnvironment>", "world_size": 2}
    one = with_locals(look(*MAKES_GROUP), "_init_dist_connection", **believes)
    found = causes_of((job(), [rank(0, one), not_there(1)]))
    assert next(iter(found)) == "slurm-environment"
    by_srun = [rank(0, one, environment={"SLURM_STEP_ID": "0"}), not_there(1)]
    assert "slurm-environment" not in causes_of((job(), by_srun))
    own = "<LightningEnvironment>"
    other = with_locals(one, "_init_dist_connection", cluster_environment=own, world_size=2)
    assert "slurm-environment" not in causes_of((job(), [rank(0, other), not_there(1)]))
