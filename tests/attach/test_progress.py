"""How far a rank came, and which checkpoint that is, as far as its stack tells."""

from __future__ import annotations

import pytest
from hangbisect.attach.judgement import judge_nodes
from hangbisect.attach.node_facts import TRAINING_PROGRESS, UNKNOWN_PROGRESS, find_progress
from hangbisect.base.process_facts import Frame
from hangbisect.base.rank_facts import RankFacts
from hangbisect.dumps.facts_in_stack import place_of_call
from hangbisect.rank.watched.known_calls import KNOWN_CALLS, KnownCall

from .test_words import BARRIER, SITE, SLEEP, node, rank

BACKWARD = Frame("_engine_run_backward", SITE + "torch/autograd/graph.py", 979)
NEW_GROUP = Frame("new_group", SITE + "torch/distributed/distributed_c10d.py", 5863)
FIT = Frame("Trainer.fit", SITE + "lightning/pytorch/trainer/trainer.py", 584)
PREPARE = Frame(
    "_DataConnector.prepare_data",
    SITE + "lightning/pytorch/trainer/connectors/data_connector.py",
    90,
)


def test_training_is_further_than_anything_else_that_is_known() -> None:
    assert find_progress(rank(0, BACKWARD, "futex")) == TRAINING_PROGRESS
    assert find_progress(rank(0, NEW_GROUP, "futex")) == UNKNOWN_PROGRESS
    assert find_progress(rank(0, SLEEP, "clock_nanosleep")) == UNKNOWN_PROGRESS
    assert find_progress(RankFacts(0)) == UNKNOWN_PROGRESS


@pytest.mark.parametrize("package", ["pytorch_lightning", "lightning/pytorch"])
def test_who_is_between_two_steps_of_lightnings_loop_trains(package: str) -> None:
    """Under both names of the package: the one in backward is no further."""
    loop = Frame("_TrainingEpochLoop.advance", f"{SITE}{package}/loops/training_epoch_loop.py", 300)
    assert find_progress(rank(0, loop, "futex")) == TRAINING_PROGRESS


def test_of_two_that_wait_for_one_another_the_one_that_came_less_far_is_to_blame() -> None:
    def at(number: int, frame: Frame) -> RankFacts:
        made = rank(number, frame, "futex")
        return rank(number, frame, "futex", reached=find_progress(made))

    found = judge_nodes([node(at(0, NEW_GROUP), at(1, BACKWARD))], now=102.0)
    assert found.verdict.ranks.culprit == (0,)


@pytest.mark.parametrize(
    ("frames", "name", "phase"),
    [
        ((SLEEP, FIT), "training", None),
        ((SLEEP, PREPARE, FIT), "training", "prepare_data"),
        ((BARRIER, FIT), "training", None),
    ],
)
def test_what_stands_around_a_call_tells_the_checkpoint(
    frames: tuple[Frame, ...], name: str, phase: str | None
) -> None:
    place = place_of_call("subprocess.run", frames)
    assert place is not None
    assert (place.name, place.phase) == (name, phase)
    assert place_of_call("subprocess.run", (SLEEP,)) is None


def test_a_call_with_phases_has_the_one_that_its_stack_shows() -> None:
    whole = place_of_call("pytorch_lightning.Trainer.fit", (SLEEP, FIT))
    part = place_of_call("pytorch_lightning.Trainer.fit", (SLEEP, PREPARE, FIT))
    assert (whole and whole.phase, part and part.phase) == (None, "prepare_data")
    other = place_of_call("wandb.init", (SLEEP, PREPARE, FIT))
    assert other is not None
    assert (other.name, other.phase) == ("wandb_logger", None)


@pytest.mark.parametrize("row", [row for row in KNOWN_CALLS if row.checkpoint is not None])
def test_every_known_call_tells_its_checkpoint_by_its_name_and_by_its_place(row: KnownCall) -> None:
    """Whether a batch is the first one is known of those alone who were watched."""
    phase = row.phase if row.phase and not row.phase.startswith("first_") else None
    file = SITE + row.module.replace(".", "/") + ".py"
    for place in (
        place_of_call(row.call),
        place_of_call(None, (SLEEP, Frame(row.attribute, file, 7))),
    ):
        assert place is not None
        assert (place.name, place.phase) == (row.checkpoint, phase)
