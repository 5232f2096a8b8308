"""Loops that ranks do not go round together: left early, or in another round.

The logs of collectives show it, else the stacks: of Lightning's loops, and of the job's own by the
counters of their rounds.
"""

from __future__ import annotations

from ...base.words import begin_sentence, format_ranks
from ..collectives.collective_rounds import goes_round_a_training, starts_over
from .collective_places import (
    find_logged_mismatch,
    left_a_loop_by_stacks,
    list_mismatch_values,
    some_stand_apart,
    waits_elsewhere,
)
from .known_cause import Found, KnownCause, Scene, also, need, unless
from .signs import raised_before

_PL = "Lightning-AI/pytorch-lightning"
_LIGHTNING = r"(?:pytorch_lightning|lightning/pytorch)"
_OUT_OF_THE_LOOP = (
    (rf"{_LIGHTNING}/loops/fit_loop\.py", "on_advance_end|on_run_end|teardown"),
    (rf"{_LIGHTNING}/loops/training_epoch_loop\.py", "on_advance_end|on_run_end|teardown"),
    (rf"{_LIGHTNING}/trainer/trainer\.py", "_teardown"),
    (rf"{_LIGHTNING}/trainer/call\.py", "_call_teardown_hook"),
)
# At the end of an epoch a rank may be late, and in time for the next one; not after the last.
_AFTER_ALL_EPOCHS = (
    (rf"{_LIGHTNING}/loops/fit_loop\.py", "on_run_end|teardown"),
    (rf"{_LIGHTNING}/trainer/trainer\.py", "_teardown"),
    (rf"{_LIGHTNING}/trainer/call\.py", "_call_teardown_hook"),
)
_IN_THE_LOOP = (rf"{_LIGHTNING}/loops/training_epoch_loop\.py", "advance")


def left_a_loop_early(scene: Scene) -> Found | None:
    """The logs show that some ranks went round a loop of training less often than others."""
    found = find_logged_mismatch(scene, "uneven")
    if found is None or not goes_round_a_training(found, scene.ranks):
        return None
    # Logs show who left out a round, or made another call in it: a stack, who is still in the loop.
    if {*found.ranks} <= {*scene.ranks_in(*_IN_THE_LOOP)}:
        return None
    # Who trains anew has run out of batches in the round before, or tries again after an error.
    anew = starts_over(found, scene.ranks)
    return Found(found.sentence, list_mismatch_values(found), 0.5 if anew else 1.0, doubtful=anew)


def _made_fewer_rounds(scene: Scene) -> Found | None:
    """Some ranks went round a loop of collectives less often than others: logs show it, else the
    stacks.
    """
    found = find_logged_mismatch(scene, "uneven")
    if found is None:
        return left_a_loop_by_stacks(scene) if some_stand_apart(scene) is None else None
    if goes_round_a_training(found, scene.ranks):
        return None
    return Found(found.sentence, list_mismatch_values(found))


def _out_of_the_loop(scene: Scene) -> Found | None:
    """Some ranks are in the training loop of an epoch, and others are through with it; no log tells
    of a call of some.
    """
    if find_logged_mismatch(scene, "extra", "skipped", "order", "different") is not None:
        return None
    inside = scene.ranks_in(*_IN_THE_LOOP)
    through = tuple(r for file, name in _OUT_OF_THE_LOOP for r in scene.ranks_in(file, name))
    through = tuple(sorted({r for r in through if r not in inside}))
    if not inside or not through:
        return None
    who, rest = format_ranks(through), format_ranks(inside)
    words = f"{who} through with the epoch, {rest} in it"
    ended = {r for file, name in _AFTER_ALL_EPOCHS for r in scene.ranks_in(file, name)}
    # The others may have ended that epoch too: a callback of one rank alone looks so as well.
    doubtful = find_logged_mismatch(scene, "uneven") is None and not {*through} <= ended
    return Found(words, {"sentence": begin_sentence(words)}, doubtful=doubtful)


def _may_still_come(scene: Scene) -> Found | None:
    """The culprit waits for something of its own, and is not seen to be through with all epochs,
    in one of which others wait for it: it may come to them yet.
    """
    inside = scene.ranks_in(*_IN_THE_LOOP)
    waiting = [r for r in inside if (one := scene.situations.get(r)) and one.waits_for_peers]
    through = {r for file, name in _AFTER_ALL_EPOCHS for r in scene.ranks_in(file, name)}
    if waiting and len(waiting) == len(inside) and through >= {*scene.verdict.ranks.culprit}:
        return None
    return waits_elsewhere(scene)


def _some_stand_apart(scene: Scene) -> Found | None:
    """The stacks show some ranks in a call that the others do not come by; but a hook after all
    epochs is what each rank comes by that is through with them.
    """
    through = _out_of_the_loop(scene)
    return None if through is not None and not through.doubtful else some_stand_apart(scene)


def _some_are_through(scene: Scene) -> Found | None:
    """Some ranks are through with a loop that others are still in."""
    found = left_a_loop_early(scene) or _out_of_the_loop(scene)
    return None if found is None else Found("", found.values)


def _in_another_round(scene: Scene) -> Found | None:
    """Ranks stand in the same place, and the counter of a loop of the job's own is another one on
    some of them.
    """
    found = scene.other_round
    if found is None or found.is_passed:
        return None
    return Found(found.sentence, {"sentence": begin_sentence(found.sentence)}, doubtful=True)


# ---- causes --------------------------------------------------------------------------------------

CAUSES = (
    KnownCause(
        id="uneven-batches",
        title="some ranks have fewer batches than others",
        signs=(
            need(_some_are_through, 0.5),
            also(_out_of_the_loop, 0.5),
            also(left_a_loop_early, 0.65),
            unless(_may_still_come),
            unless(_some_stand_apart),
            unless(raised_before),
        ),
        why="{sentence}. In DDP every backward waits for all ranks, also for those that have no "
        "batch left.",
        avoid=(
            "DistributedSampler (Lightning's default), drop_last=True: leaves out some examples",
            "iterable data sets: the same number of batches on every rank (limit_train_batches)",
            "`with model.join():` of DDP: the others go on without the rank that is through",
            "where all have as many: look for what skips one (continue, a caught exception)",
        ),
        references=(f"{_PL}#9851", f"{_PL}#11242", "Lightning-AI/litData#129"),
    ),
    KnownCause(
        id="uneven-rounds",
        title="some ranks go round a loop of collectives less often than others",
        signs=(need(_made_fewer_rounds, 0.85), unless(waits_elsewhere), unless(raised_before)),
        why="{sentence}. What ends the loop differs between the ranks (a decision that each takes "
        "by itself, as early stopping by a metric of its own), or a call in it was left out once.",
        avoid=(
            "decide on one rank and broadcast the decision: all leave the loop in the same round",
            "look for what skips a round: continue, break, an exception that is caught",
        ),
        references=("Lightning-AI/pytorch-lightning#15252",),
        outcomes=("hang", "interrupted", "crash"),
    ),
    KnownCause(
        id="other-round",
        title="a rank is in another round of a loop than the others",
        signs=(need(_in_another_round, 0.9),),
        why="{sentence}. What ranks wait for in one round comes from the others' same round.",
        avoid=(
            "look what each rank begins its loop with: a checkpoint of its own to resume from, a "
            "file that only some have",
            "let one rank decide the round, and broadcast it",
        ),
    ),
)
