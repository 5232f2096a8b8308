"""Ranks that all wait in collectives, of which no log tells: only frames do, as `attach` sees them.

Another frame alone is no mismatch: one call of the job's may be several collectives, and a
collective with a root lets some ranks go on before all have come. So who waits on the path that
all share is not named, and what frames cannot tell is a guess, or is not said.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hangbisect.base.process_facts import Frame, Look
from hangbisect.base.rank_facts import JobFacts, RankFacts
from hangbisect.base.verdict_facts import Verdict
from hangbisect.diagnosis.verdict import judge_job
from hypothesis import given
from hypothesis import strategies as st

from .made_up import job, look, rank

C10D = "SP/torch/distributed/distributed_c10d.py"
WRAPPER = "_exception_logger.<locals>.wrapper SP/torch/distributed/c10d_logger.py:83"
LOOP = "SP/pytorch_lightning/loops"
FIT = (
    "Trainer.fit SP/pytorch_lightning/trainer/trainer.py:584",
    "main train.py:191",
    "<module> train.py:260",
)
EPOCH = (
    f"_TrainingEpochLoop.run {LOOP}/training_epoch_loop.py:153",
    f"_FitLoop.advance {LOOP}/fit_loop.py:469",
    f"_FitLoop.run {LOOP}/fit_loop.py:217",
    *FIT,
)
# Where the ranks of a training stand that nobody is to blame for.
BROADCAST = look(
    f"broadcast {C10D}:3151",
    WRAPPER,
    f"_TrainingEpochLoop._broadcast_sigterm_tensor {LOOP}/training_epoch_loop.py:265",
    f"_TrainingEpochLoop.advance {LOOP}/training_epoch_loop.py:300",
    *EPOCH,
)
BACKWARD = look(
    "_engine_run_backward SP/torch/autograd/graph.py:979",
    "Tensor.backward SP/torch/_tensor.py:623",
    f"_TrainingEpochLoop.advance {LOOP}/training_epoch_loop.py:352",
    *EPOCH,
)
BARRIER = look(
    f"barrier {C10D}:5356",
    WRAPPER,
    "Strategy.barrier SP/pytorch_lightning/strategies/ddp.py:300",
    f"_TrainingEpochLoop.on_advance_end {LOOP}/training_epoch_loop.py:400",
    *EPOCH,
)
# Where a hook of the job's own calls a collective.
AT_THE_START = look(
    f"all_gather {C10D}:4287",
    WRAPPER,
    "Debugging.on_train_start callbacks.py:27",
    "_call_callback_hooks SP/pytorch_lightning/trainer/call.py:228",
    f"_FitLoop.on_run_start {LOOP}/fit_loop.py:431",
    f"_FitLoop.run {LOOP}/fit_loop.py:213",
    *FIT,
)
AFTER_A_BATCH = look(
    f"all_reduce {C10D}:3252",
    WRAPPER,
    "_sync_ddp SP/lightning_fabric/utilities/distributed.py:213",
    "LightningModule.log SP/pytorch_lightning/core/module.py:531",
    "Spikes.on_train_batch_end callbacks.py:24",
    "_call_callback_hooks SP/pytorch_lightning/trainer/call.py:228",
    f"_TrainingEpochLoop.advance {LOOP}/training_epoch_loop.py:375",
    *EPOCH,
)
ON_THE_PATH = (BROADCAST, BACKWARD, BARRIER)
IN_A_HOOK = (AT_THE_START, AFTER_A_BATCH)


def attached(world: int) -> JobFacts:
    """A job that `attach` looks at: no pipeline, no steps."""
    return replace(job("still", world), pipeline="", table=())


def still(number: int, one: Look) -> RankFacts:
    return rank(number, one, replace(one, at=103.0), replace(one, at=106.0), reached=0)


def judged(*looks: Look, reached: dict[int, int] | None = None) -> Verdict:
    """`reached`: what `attach` makes of stacks in which a training is seen, by rank."""
    ranks = [
        replace(still(n, one), reached=(reached or {}).get(n, 0)) for n, one in enumerate(looks)
    ]
    return judge_job(attached(len(looks)), ranks)


def in_call(name: str, line: int, *inside: str, group: str = "None") -> Look:
    """A rank in a call of torch.distributed at a line of train.py, and in what it calls."""
    inner = [text for one in inside for text in (f"{one} {C10D}:99", WRAPPER)]
    one = look(*inner, f"{name} {C10D}:2799", WRAPPER, f"train train.py:{line}", "main train.py:90")
    (thread,) = one.threads
    frames = [
        replace(f, locals=(("group", group),)) if f.name.endswith("wrapper") else f
        for f in thread.frames
    ]
    return replace(one, threads=(replace(thread, frames=tuple(frames)),))


def cause(verdict: Verdict) -> tuple[str, str]:
    return (verdict.cause.id, verdict.cause.level) if verdict.cause else ("", "")


# ---- a collective of some ranks, in a hook -------------------------------------------------------


def test_who_left_the_path_of_the_others_is_named_and_who_is_a_round_ahead_is_not() -> None:
    """Rank 0, the root of a broadcast, is let go, and only waits in the next round: it stands in
    another call than ranks 1 and 3 as well (a callback of one rank, zoo J22).
    """
    verdict = judged(BROADCAST, BACKWARD, AT_THE_START, BACKWARD, reached={1: 1, 3: 1})
    assert verdict.ranks.culprit == (2,)
    assert verdict.ranks.waiting == (0, 1, 3)
    assert verdict.guessed
    assert cause(verdict) == ("rank-conditional-collective", "guess")


def test_of_two_the_one_in_code_of_its_own_is_named() -> None:
    """The other one waits in a library, below a line in which both are (zoo H31)."""
    verdict = judged(BROADCAST, AFTER_A_BATCH)
    assert verdict.ranks.culprit == (1,)
    assert verdict.ranks.waiting == (0,)
    assert verdict.guessed
    assert verdict.waits_for is not None
    assert verdict.waits_for.kind == "collective"
    assert cause(verdict) == ("rank-conditional-collective", "guess")
    assert verdict.candidates[0].level == "guess"


def test_the_one_that_left_a_call_of_all_others_out_is_named() -> None:
    verdict = judged(AT_THE_START, AT_THE_START, BROADCAST, AT_THE_START)
    assert verdict.ranks.culprit == (2,)
    assert cause(verdict) == ("rank-conditional-collective", "guess")


@given(st.integers(2, 8), st.data())
def test_who_waits_on_the_path_that_all_share_is_never_named(
    world: int, data: st.DataObject
) -> None:
    """Wherever on it: the root of a broadcast and those that are no root of a reduce go ahead."""
    culprit = data.draw(st.integers(0, world - 1))
    hook = data.draw(st.sampled_from(IN_A_HOOK))
    looks = [data.draw(st.sampled_from(ON_THE_PATH)) for _ in range(world)]
    looks[culprit] = hook
    reached = {n: 1 for n, one in enumerate(looks) if one is BACKWARD}
    verdict = judged(*looks, reached=reached)
    assert verdict.ranks.culprit == (culprit,)
    assert verdict.cause is None or verdict.cause.level == "guess"


# ---- no mismatch ---------------------------------------------------------------------------------

PHASES = {
    "an object collective": (
        in_call("gather_object", 20, "all_gather"),
        in_call("gather_object", 20, "gather"),
    ),
    "one of objects that are broadcast": (
        in_call("scatter_object_list", 20, "broadcast"),
        in_call("scatter_object_list", 20, "scatter"),
    ),
    "a training": (BROADCAST, BACKWARD),
    "the end of a round": (BACKWARD, BARRIER),
}


@pytest.mark.parametrize("world", [2, 3, 8])
@pytest.mark.parametrize("phases", PHASES)
def test_phases_of_one_call_are_no_mismatch(phases: str, world: int) -> None:
    first, second = PHASES[phases]
    verdict = judged(*[first] * (world // 2), *[second] * (world - world // 2))
    assert cause(verdict)[0] not in ("collective-mismatch", "rank-conditional-collective")


def from_root(root: int, line: int) -> Look:
    """A rank in a broadcast, of which it is not the root."""
    one = in_call("broadcast", line)
    (thread,) = one.threads
    frames = [
        replace(f, locals=(("src", str(root)),)) if f.name == "broadcast" else f
        for f in thread.frames
    ]
    return replace(one, threads=(replace(thread, frames=tuple(frames)),))


def test_of_what_one_line_has_called_two_that_wait_for_each_other_are_a_mismatch() -> None:
    """`trainer.fit(...)`, say: a rank without validation trains, the others set theirs up."""
    waits = in_call("barrier", 20)
    assert cause(judged(waits, from_root(0, 20), waits))[0] == "collective-mismatch"
    other = in_call("all_gather", 20)
    assert cause(judged(waits, other, waits))[0] == "collective-mismatch"


def test_of_what_one_line_has_called_a_root_that_is_not_there_may_be_behind() -> None:
    waits = in_call("barrier", 20)
    assert cause(judged(waits, from_root(1, 20), waits))[0] != "collective-mismatch"


def test_two_kinds_of_barrier_are_no_mismatch() -> None:
    verdict = judged(in_call("monitored_barrier", 20), in_call("barrier", 40))
    assert cause(verdict)[0] != "collective-mismatch"


@pytest.mark.parametrize("name", ["recv", "send", "batch_isend_irecv"])
def test_a_send_or_receive_is_no_mismatch(name: str) -> None:
    verdict = judged(in_call(name, 20), in_call("all_reduce", 40), in_call("all_reduce", 40))
    assert cause(verdict)[0] != "collective-mismatch"


def test_a_group_that_is_made_is_no_mismatch() -> None:
    verdict = judged(in_call("new_group", 20), in_call("all_reduce", 40))
    assert cause(verdict)[0] != "collective-mismatch"


def test_of_two_the_one_that_makes_a_group_in_code_of_its_own_is_named() -> None:
    """new_group is for all ranks: the other one waits on the path that both share (zoo I20c)."""
    made = look(
        f"_new_process_group_helper {C10D}:2169",
        f"new_group {C10D}:5400",
        "Reports.on_train_batch_end callbacks.py:24",
        "_call_callback_hooks SP/pytorch_lightning/trainer/call.py:228",
        f"_TrainingEpochLoop.advance {LOOP}/training_epoch_loop.py:375",
        *EPOCH,
    )
    for one in (made, below("if is_main", made, "on_train_batch_end")):
        verdict = judged(one, BROADCAST)
        assert verdict.ranks.culprit == (0,)
        assert cause(verdict) == ("group-on-some-ranks", "guess")


# ---- what frames cannot tell ---------------------------------------------------------------------


def test_of_two_in_different_lines_of_one_function_both_are_named_and_it_is_a_guess() -> None:
    verdict = judged(in_call("all_reduce", 20), in_call("broadcast", 22))
    assert verdict.ranks.culprit == (0, 1)
    assert cause(verdict) == ("collective-mismatch", "guess")


@pytest.mark.parametrize("many", [2, 3, 6])
def test_of_several_that_stand_apart_in_different_calls_none_is_named(many: int) -> None:
    """One of them made the call too many, the other is the root that was let go: the same as in a
    library's loop, but all is in one function of the job's own.
    """
    step = look(
        "_engine_run_backward SP/torch/autograd/graph.py:979",
        "Tensor.backward SP/torch/_tensor.py:623",
        "train train.py:22",
        "main train.py:90",
    )
    looks = [in_call("broadcast", 20), in_call("all_gather", 25), *[step] * many]
    verdict = judged(*looks, reached=dict.fromkeys(range(2, many + 2), 1))
    assert verdict.ranks.culprit == ()
    said = " ".join(verdict.notes)
    assert "rank 0 in broadcast (train (train.py:20))" in said
    assert "rank 1 in all_gather (train (train.py:25))" in said
    assert verdict.cause is None or verdict.cause.level == "guess"


def test_the_few_in_one_other_call_are_named() -> None:
    for world, place in ((3, 1), (4, 3), (8, 0)):
        looks = [in_call("all_reduce", 20)] * world
        looks[place] = in_call("broadcast", 40)
        verdict = judged(*looks)
        assert verdict.ranks.culprit == (place,)
        assert verdict.guessed
        assert cause(verdict) == ("collective-mismatch", "guess")


CALLS = st.builds(
    in_call,
    st.sampled_from(["all_reduce", "broadcast", "gather_object", "barrier", "recv", "new_group"]),
    st.integers(20, 23),
    group=st.sampled_from(["None", "given"]),
)


@given(
    st.lists(st.one_of(CALLS, st.sampled_from([*ON_THE_PATH, *IN_A_HOOK])), min_size=2, max_size=8)
)
def test_frames_alone_never_make_more_than_a_guess(looks: list[Look]) -> None:
    found = judged(*looks).cause
    unsure = ("collective-mismatch", "rank-conditional-collective")
    assert found is None or found.id not in unsure or found.level == "guess"


@pytest.mark.parametrize("world", [2, 4, 8])
def test_phases_of_one_call_are_said_to_come_of_an_earlier_collective(world: int) -> None:
    """An extra barrier of one rank met the next one of the other: no stack has it (zoo I20)."""
    first, second = PHASES["an object collective"]
    barrier, reduces = (
        look(f"{name} {C10D}:{line}", WRAPPER, "_sync_ddp SP/lightning_fabric/u.py:213", *FIT)
        for name, line in (("barrier", 5356), ("all_reduce", 3252))
    )
    verdict = judged(*[barrier] * (world // 2), *[reduces] * (world // 2))
    said = " ".join(verdict.notes)
    assert "in different collectives of one call, main (train.py:191)" in said
    assert "hangbisect run" in said
    assert verdict.ranks.culprit == ((0, 1) if world == 2 else ())
    assert not judged(*[first] * (world // 2), *[second] * (world // 2)).notes
    assert not judged(*[barrier] * world).notes


@pytest.mark.parametrize("name", ["reduce", "gather", "gather_object"])
def test_the_root_that_waits_for_what_others_give_is_not_named(name: str) -> None:
    """All but the root go on at once: one of them that left the call out looks like the rest."""
    verdict = judged(in_call(name, 20), *[in_call("all_reduce", 25)] * 3)
    assert verdict.ranks.culprit == ()
    said = " ".join(verdict.notes)
    assert f"rank 0 waits in {name} (train (train.py:20))" in said
    assert "which of ranks 1-3" in said
    assert judged(in_call(name, 20), in_call("all_reduce", 25)).ranks.culprit == (0, 1)
    conditional = below("if rank == 0", in_call(name, 20))
    assert judged(conditional, *[in_call("all_reduce", 25)] * 3).ranks.culprit == (0,)


@pytest.mark.parametrize("rank_in_it", [1, 2])
def test_who_is_not_its_root_waits_for_no_gifts(rank_in_it: int) -> None:
    """The frame names the root, rank 0: another one that waits in it gives, and goes on once the
    others come. They stand in a call before it that this one left out.
    """
    inside = in_call("reduce", 26)
    (thread,) = inside.threads
    told = (("dst", "0"), ("group_dst", "0"))
    frames = (
        replace(thread.frames[0], locals=told),
        replace(thread.frames[1], locals=(("group", "None"),)),
        *thread.frames[2:],
    )
    inside = replace(inside, threads=(replace(thread, frames=frames),))
    looks = [in_call("scatter_object_list", 25)] * 4
    looks[rank_in_it] = inside
    assert judged(*looks).ranks.culprit == (rank_in_it,)
    looks = [in_call("scatter_object_list", 25)] * 4
    looks[0] = inside
    assert judged(*looks).ranks.culprit == ()


# ---- what the source around a frame shows --------------------------------------------------------


def below(condition: str, one: Look, name: str = "train") -> Look:
    """The same look; the job's own line in the function `name` stands below a condition."""
    (thread,) = one.threads
    frames = [
        replace(f, condition=condition) if f.name.endswith(name) else f for f in thread.frames
    ]
    return replace(one, threads=(replace(thread, frames=tuple(frames)),))


@given(st.integers(2, 8), st.data())
def test_who_is_in_a_call_by_which_only_some_ranks_come_is_named(
    world: int, data: st.DataObject
) -> None:
    """The source shows it (`if rank == 2`), and no other rank is below that condition: wherever
    else they are, they wait for one that does not come.
    """
    culprit = data.draw(st.integers(0, world - 1))
    others = st.sampled_from([in_call("broadcast", 20), in_call("all_reduce", 22)])
    looks = [data.draw(others) for _ in range(world)]
    looks[culprit] = below("if rank == 2", in_call("all_gather", 25))
    verdict = judged(*looks)
    assert verdict.ranks.culprit == (culprit,)
    assert cause(verdict) == ("rank-conditional-collective", "fits")
    assert verdict.cause is not None
    assert "`if rank == 2`" in " ".join(verdict.cause.matched)


def in_loop(one: Look) -> Look:
    """The same look; the job's own line stands in a loop."""
    (thread,) = one.threads
    frames = [replace(f, loop=(18, 22)) if f.name == "train" else f for f in thread.frames]
    return replace(one, threads=(replace(thread, frames=tuple(frames)),))


def test_who_makes_several_groups_in_a_loop_may_have_the_right_list_of_them() -> None:
    past = (in_call("all_reduce", 40), in_call("all_reduce", 40))
    one = in_call("new_group", 20, "_new_process_group_helper")
    assert judged(past[0], one, past[1]).ranks.culprit == (1,)
    verdict = judged(past[0], in_loop(one), past[1])
    assert verdict.ranks.culprit == ()
    assert any("another list of them" in note for note in verdict.notes)


def test_with_the_condition_a_hook_of_one_rank_is_no_guess() -> None:
    hook = below("if me == 1", AFTER_A_BATCH, "on_train_batch_end")
    verdict = judged(BROADCAST, hook)
    assert verdict.ranks.culprit == (1,)
    assert cause(verdict) == ("rank-conditional-collective", "fits")


def test_who_alone_is_not_below_a_condition_left_the_call_out() -> None:
    inside = below("if rank != 3", in_call("all_gather", 25))
    verdict = judged(inside, inside, inside, in_call("barrier", 30))
    assert verdict.ranks.culprit == (3,)
    assert cause(verdict) == ("rank-conditional-collective", "fits")


@pytest.mark.parametrize("name", ["gather", "broadcast"])
def test_one_call_in_two_branches_is_one_call(name: str) -> None:
    root, rest = below("if rank == 0", in_call(name, 25)), in_call(name, 27)
    assert cause(judged(root, rest, rest))[0] != "rank-conditional-collective"
    rest = below("else of if rank == 0", rest)
    assert cause(judged(root, rest, rest))[0] != "rank-conditional-collective"


def test_a_condition_around_all_of_them_tells_nothing() -> None:
    one = below("if rank >= 0", in_call("all_reduce", 25), "main")
    other = below("if rank >= 0", in_call("barrier", 30), "main")
    assert judged(one, other).ranks.culprit == (0, 1)


def test_two_branches_of_one_condition_with_other_calls_are_a_mismatch() -> None:
    one = below("if me == 0", in_call("all_reduce", 25))
    other = below("else of if me == 0", in_call("broadcast", 27))
    verdict = judged(one, other)
    assert verdict.ranks.culprit == (0, 1)
    assert cause(verdict)[0] == "collective-mismatch"


def test_members_of_a_group_of_some_are_below_a_condition_for_good_reason() -> None:
    """They wait for a member that stands elsewhere: which rank that is, no look shows."""
    member = below("if rank < 3", in_call("all_reduce", 25, group="given"))
    verdict = judged(member, member, *[in_call("barrier", 40)] * 6)
    assert verdict.ranks.culprit == ()
    assert cause(verdict)[1] != "fits"
    alone = judged(member, *[in_call("barrier", 40)] * 7)
    assert cause(alone)[1] != "fits"


def test_a_call_on_both_sides_leaves_open_who_is_wrong() -> None:
    """The root of a reduce, and two barriers, one of them too many: neither place tells which."""
    reduces, barrier = (
        look(
            f"{name} {C10D}:3000",
            WRAPPER,
            f"{hook}.on_train_batch_end callbacks.py:{line}",
            "_call_callback_hooks SP/pytorch_lightning/trainer/call.py:228",
            f"_TrainingEpochLoop.advance {LOOP}/training_epoch_loop.py:375",
            *EPOCH,
        )
        for name, hook, line in (("reduce", "Metrics", 55), ("barrier", "Debug", 27))
    )
    verdict = judged(reduces, barrier, BARRIER)
    assert verdict.ranks.culprit == ()
    assert verdict.notes


@pytest.mark.parametrize("loop", [(), (17, 20)])
def test_of_two_the_one_that_left_a_loop_by_its_condition_is_named(loop: tuple[int, ...]) -> None:
    """`if step >= patience: break` stands before the call of the other one, and patience is one of
    a rank. Where no loop is left the one below the condition has made a call more.
    """
    line = Frame(
        "main", "/home/ada/train.py", 18, condition="not left before by: if step", loop=loop
    )
    around = look("_engine_run_backward SP/torch/autograd/graph.py:979", "main train.py:18")
    (thread,) = around.threads
    inside = replace(around, threads=(replace(thread, frames=(thread.frames[0], line)),))
    through = look(f"barrier {C10D}:5356", WRAPPER, "main train.py:21")
    ranks = [rank(n, one, replace(one, at=103.0)) for n, one in enumerate((inside, through))]
    assert judge_job(job("late", 2), ranks).ranks.culprit == ((1,) if loop else (0,))


def _below_a_trainer(root: int, group: str, *between: str) -> Look:
    one = look(
        f"broadcast_object_list {C10D}:4026",
        WRAPPER,
        *between,
        f"main train.py:{49 if between else 50}",
    )
    (thread,) = one.threads
    told = {"broadcast_object_list": (("src", str(root)),), "wrapper": (("group", group),)}
    frames = [
        replace(f, locals=told.get(f.name.rpartition(".")[2], f.locals)) for f in thread.frames
    ]
    return replace(one, threads=(replace(thread, frames=tuple(frames)),))


TESTS = ("Trainer.test SP/pytorch_lightning/trainer/trainer.py:864", "score train.py:33")


@pytest.mark.parametrize(("root", "blamed"), [(0, (1,)), (1, (0, 1, 2))])
def test_who_takes_another_root_by_another_way_is_in_another_call(
    root: int, blamed: tuple[int, ...]
) -> None:
    """Lightning gives the group of all by its name: frames do not tell that it is that one."""
    others = _below_a_trainer(1, "None")
    verdict = judged(others, _below_a_trainer(root, "given", *TESTS), others)
    assert verdict.ranks.culprit == blamed
