"""Jobs of which one rank makes a collective too many or leaves one out, run to where they hang as
gloo would run them: whoever is named from the frames alone, it is not one of the others.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from hangbisect.base.rank_facts import RankFacts
from hangbisect.diagnosis.verdict import judge_job
from hypothesis import assume, given
from hypothesis import strategies as st

from .made_up import job, look, rank

C10D = "SP/torch/distributed/distributed_c10d.py"
WRAPPER = "_exception_logger.<locals>.wrapper SP/torch/distributed/c10d_logger.py:83"
LOOP = "SP/pytorch_lightning/loops"
HOOK = "_call_callback_hooks SP/pytorch_lightning/trainer/call.py:228"
ROUNDS = 4

Call = tuple[str, tuple[str, ...]]  # the kind, and the frames, innermost first


def call(kind: str, *outer: str) -> Call:
    return kind, (f"{kind} {C10D}:3000", WRAPPER, *outer)


def backward(*outer: str) -> Call:
    graph = "_engine_run_backward SP/torch/autograd/graph.py:979"
    return "all_reduce", (graph, "Tensor.backward SP/torch/_tensor.py:623", *outer)


def in_own_loop(line: int, *inside: str) -> tuple[str, ...]:
    return (*inside, f"train train.py:{line}", "main train.py:90", "<module> train.py:99")


def in_lightning(line: int, *inside: str) -> tuple[str, ...]:
    return (
        *inside,
        f"_TrainingEpochLoop.advance {LOOP}/training_epoch_loop.py:{line}",
        f"_FitLoop.run {LOOP}/fit_loop.py:217",
        "Trainer.fit SP/pytorch_lightning/trainer/trainer.py:584",
        "main train.py:191",
        "<module> train.py:260",
    )


OWN_LOOP = (
    backward(*in_own_loop(22)),
    call("broadcast", *in_own_loop(20)),
    call("all_reduce", *in_own_loop(24, "mean util.py:7")),
    call("reduce", *in_own_loop(26)),
    call("barrier", *in_own_loop(28)),
)
LIGHTNING = (
    backward(*in_lightning(352)),
    call("broadcast", *in_lightning(300, f"_broadcast_sigterm {LOOP}/training_epoch_loop.py:265")),
    call("reduce", *in_lightning(375, "Metrics.on_train_batch_end callbacks.py:55", HOOK)),
    call("barrier", *in_lightning(390, "Strategy.barrier SP/pytorch_lightning/ddp.py:300")),
)
TOO_MANY = {
    OWN_LOOP: [call("all_gather", *in_own_loop(25)), call("barrier", *in_own_loop(25))],
    LIGHTNING: [
        call(kind, *in_lightning(375, "Debug.on_train_batch_end callbacks.py:27", HOOK))
        for kind in ("all_gather", "all_reduce", "barrier")
    ],
}


def run(programs: Sequence[Sequence[Call]]) -> list[int]:
    """Return how many of its calls each rank has done when none goes on any more: the root of a
    broadcast, and all but the root of a reduce, wait for nobody; rank 0 is the root.
    """
    done = [0] * len(programs)

    def has_come(other: int, at: int, kind: str) -> bool:
        program = programs[other]
        return done[other] >= at and at < len(program) and program[at][0] == kind

    def goes_on(me: int) -> bool:
        at, program = done[me], programs[me]
        if at >= len(program):
            return False
        kind = program[at][0]
        if kind == "broadcast":
            return me == 0 or has_come(0, at, kind)
        if kind == "reduce" and me != 0:
            return True
        return all(has_come(other, at, kind) for other in range(len(programs)))

    while free := [me for me in range(len(programs)) if goes_on(me)]:
        for me in free:
            done[me] += 1
    return done


def stand(number: int, frames: tuple[str, ...]) -> RankFacts:
    one = look(*frames)
    trains = "_engine_run_backward" in frames[0] or LOOP in " ".join(frames)
    looks = (one, replace(one, at=103.0), replace(one, at=106.0))
    return rank(number, *looks, reached=int(trains))


@given(
    st.integers(3, 8),
    st.sampled_from([OWN_LOOP, LIGHTNING]),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_of_several_ranks_that_differ_nobody_is_named_but_the_one_that_is_wrong(
    world: int, calls: tuple[Call, ...], is_extra: bool, choose: random.Random
) -> None:
    culprit = choose.randrange(world)
    others = [calls[0], *(one for one in calls[1:] if choose.random() < 0.5)]
    program = others * ROUNDS
    wrong, at = list(program), choose.randint(1, 2 * len(others))
    if is_extra:
        wrong.insert(at, choose.choice(TOO_MANY[calls]))
    else:
        del wrong[at]
    programs = [wrong if n == culprit else program for n in range(world)]
    done = run(programs)
    assume(all(count < len(one) for count, one in zip(done, programs, strict=True)))
    frames = [one[count][1] for count, one in zip(done, programs, strict=True)]
    assume(len(set(frames)) > 1)  # in one call all look alike: a round apart, or in a dead network
    about = replace(job("still", world), pipeline="", table=())
    verdict = judge_job(about, [stand(n, one) for n, one in enumerate(frames)])
    assert {*verdict.ranks.culprit} <= {culprit}
    assert verdict.ranks.culprit or verdict.notes
    assert verdict.cause is None or verdict.cause.level == "guess"
