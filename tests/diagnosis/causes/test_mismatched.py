"""Collectives that do not go together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hangbisect.base.process_facts import Look, Thread
from hangbisect.base.rank_facts import Collective, CollectiveLog, RankFacts
from hangbisect.diagnosis.collectives.collective_mismatch import LogSource
from hangbisect.diagnosis.verdict import judge_job

from ..logs import Call, ran
from ..made_up import ALL_REDUCE, SLEEP, gone, job, look, rank
from .scenes import Facts, Shows, causes_of, with_native

BARRIER = look(
    "barrier SP/torch/distributed/distributed_c10d.py:4900",
    "wrapper SP/torch/distributed/c10d_logger.py:83",
    "Reports.on_fit_start callbacks.py:9",
    "<module> train.py:30",
)
NEW_GROUP = look(
    "_new_group_with_tag SP/torch/distributed/distributed_c10d.py:5600",
    "new_group SP/torch/distributed/distributed_c10d.py:5400",
    "Reports.on_fit_start callbacks.py:9",
    "<module> train.py:30",
)
DDP = look(
    "_verify_param_shape_across_processes SP/torch/distributed/utils.py:286",
    "DistributedDataParallel.__init__ SP/torch/nn/parallel/distributed.py:1064",
    "main train.py:20",
    "<module> train.py:30",
)
WRAPS = look(
    "DistributedDataParallel.__init__ SP/torch/nn/parallel/distributed.py:900",
    "main train.py:20",
    "<module> train.py:30",
)
BACKWARD = look(
    "_engine_run_backward SP/torch/autograd/graph.py:829",
    "_TrainingEpochLoop.advance SP/pytorch_lightning/loops/training_epoch_loop.py:320",
    "_FitLoop.advance SP/pytorch_lightning/loops/fit_loop.py:470",
    "<module> train.py:30",
)
REPORTS = look(
    "Reports.on_train_epoch_end callbacks.py:20",
    "_FitLoop.on_advance_end SP/pytorch_lightning/loops/fit_loop.py:495",
    "<module> train.py:30",
    call="clock_nanosleep",
)
STORE = look(
    "Exchange.on_train_start callbacks.py:12",
    "_call_callback_hooks SP/pytorch_lightning/trainer/call.py:228",
    "<module> train.py:30",
    call="poll",
)


def logged(programs: Sequence[Sequence[Call]], *looks: Look) -> Facts:
    """Ranks with these logs, that are now where these looks show them."""
    with_logs = ran(programs)
    ranks = [
        rank(at, one, collectives=facts.collectives)
        for at, (facts, one) in enumerate(zip(with_logs, looks, strict=True))
    ]
    return job(world=len(ranks)), ranks


def rank_conditional_collective() -> Facts:
    extra = Call("barrier", "callbacks.py:9", condition="if rank == 0")
    meet = [Call("barrier", "trainer.py:88"), Call("all_reduce", "trainer.py:90")]
    return logged([[extra, *meet], meet], BARRIER, ALL_REDUCE)


def collective_mismatch() -> Facts:
    programs = [[Call("all_reduce", "train.py:10")], [Call("broadcast", "train.py:12")]]
    broadcast = look(
        "broadcast SP/torch/distributed/distributed_c10d.py:3000",
        "wrapper SP/torch/distributed/c10d_logger.py:83",
        "<module> train.py:12",
    )
    return logged(programs, ALL_REDUCE, broadcast)


def group_on_some_ranks() -> Facts:
    meet = Call("all_reduce", "trainer.py:90")
    programs = [[Call("new_group", "callbacks.py:9", condition="if rank == 0")], [meet]]
    return logged(programs, NEW_GROUP, ALL_REDUCE)


def ddp_on_some_ranks() -> Facts:
    programs = [[Call("ddp", "train.py:20")], [Call("all_reduce", "train.py:25")]]
    return logged(programs, WRAPS, ALL_REDUCE)


def different_parameters() -> Facts:
    error = (
        "RuntimeError: DDP expects same model across all ranks, but Rank 1 has 4 params, while "
        "rank 0 has inconsistent 5 params."
    )
    return job("crash"), [rank(0, ALL_REDUCE), gone(1, 1, error)]


def uneven_batches() -> Facts:
    step = [Call("backward", "train.py:40", group=""), Call("all_reduce", "ddp.py:1")]
    longer = [*step * 3, Call("barrier", "train.py:50")]
    shorter = [*step, Call("barrier", "train.py:50")]
    return logged([longer, shorter], BACKWARD, REPORTS)


def uneven_rounds() -> Facts:
    """One rank decides by itself to stop; no model is wrapped, and nothing is trained."""
    rounds = [Call("all_reduce", "train.py:7 train")]
    end = Call("barrier", "train.py:10 train")
    return logged([[*rounds * 6, end], [*rounds * 4, end], [*rounds * 6, end]], *[ALL_REDUCE] * 3)


def other_round() -> Facts:
    """Each looks for the others in the epoch with which it began."""

    def looks(epoch: int) -> Look:
        one = look("meet train.py:27", "train train.py:36", call="clock_nanosleep")
        (thread,) = one.threads
        frames = (thread.frames[0], replace(thread.frames[1], counters=(("epoch", epoch),)))
        return replace(one, threads=(replace(thread, frames=frames),))

    return job(), [rank(number, looks(epoch)) for number, epoch in enumerate((3, 4, 3))]


def _in_two_threads(group: str) -> Look:
    """The main thread in a barrier over all, and the thread of an asynchronous save in a gather."""

    def in_call(name: str, over: str) -> Thread:
        stack = look(
            f"{name} SP/torch/distributed/distributed_c10d.py:3631",
            "_exception_logger.<locals>.wrapper SP/torch/distributed/c10d_logger.py:83",
            "save train.py:32",
        )
        (thread,) = stack.threads
        inner, wrapper, own = thread.frames
        told = replace(wrapper, locals=(("group", over),))
        return replace(thread, frames=(inner, told, own))

    saver = replace(in_call("gather_object", group), os_id=991, name="AsyncCheckpointExecutor_0")
    return replace(ALL_REDUCE, threads=(in_call("barrier", "None"), saver))


def collectives_in_two_threads() -> Facts:
    return job(), [rank(number, _in_two_threads("None")) for number in (0, 1, 2)]


def store_key_missing() -> Facts:
    asks = with_native(STORE, "c10d::TCPStore::doWait", "c10d::TCPStore::get")
    return job(), [rank(0, ALL_REDUCE), rank(1, asks)]


SHOWS: Shows = {
    "rank-conditional-collective": rank_conditional_collective,
    "collective-mismatch": collective_mismatch,
    "group-on-some-ranks": group_on_some_ranks,
    "ddp-on-some-ranks": ddp_on_some_ranks,
    "different-parameters": different_parameters,
    "uneven-batches": uneven_batches,
    "uneven-rounds": uneven_rounds,
    "other-round": other_round,
    "store-key-missing": store_key_missing,
    "collectives-in-two-threads": collectives_in_two_threads,
}
ALL = frozenset(SHOWS)


def test_a_thread_that_calls_collectives_of_a_group_of_its_own_disturbs_nobody() -> None:
    found = causes_of((job(), [rank(n, _in_two_threads("given")) for n in (0, 1, 2)]))
    assert "collectives-in-two-threads" not in found
    some = [rank(0, _in_two_threads("None")), rank(1, ALL_REDUCE)]
    assert causes_of((job(), some))["collectives-in-two-threads"].level == "guess"
    told = causes_of(collectives_in_two_threads())["collectives-in-two-threads"]
    assert told.level == "fits"
    assert "Ranks 0-2 in barrier, its thread AsyncCheckpointExecutor_0 in gather_object" in told.why


def test_some_that_wait_for_a_thread_in_a_collective_are_told_apart_by_their_stacks() -> None:
    """dcp.async_save on those ranks alone that have something to save."""
    waits = _in_two_threads("given")
    main, saver = waits.threads
    result = look("Future.result STD/concurrent/futures/_base.py:451", "main train.py:40")
    waits = replace(waits, threads=(replace(main, frames=result.threads[0].frames), saver))
    found = causes_of((job(), [rank(0, waits), rank(1, waits), rank(2, ALL_REDUCE)]))
    told = found["rank-conditional-collective"]
    assert told.level == "guess"
    sentence = "Ranks 0-1 in gather_object, in thread AsyncCheckpointExecutor_0, rank 2 not"
    assert told.why.startswith(sentence)
    found = causes_of((job(), [rank(number, waits) for number in (0, 1, 2)]))
    assert "rank-conditional-collective" not in found


def test_who_is_past_a_message_that_another_one_waits_for_has_left_it_out() -> None:
    """A farm of tasks: rank 0 told one rank too few that there are no more, and is at the end."""
    c10d = "SP/torch/distributed/distributed_c10d.py"
    wrapper = "_exception_logger.<locals>.wrapper SP/torch/distributed/c10d_logger.py:83"

    def at(call: str, **told: str) -> Look:
        one = look(f"{call} {c10d}:2799", wrapper, f"{call}_all train.py:20", "main train.py:31")
        (thread,) = one.threads
        inner, around, *outer = thread.frames
        inner = replace(inner, locals=tuple(told.items()))
        around = replace(around, locals=(("group", "None"),))
        return replace(one, threads=(replace(thread, frames=(inner, around, *outer)),))

    ranks = [rank(0, at("barrier")), rank(1, at("barrier")), rank(2, at("recv", src="0"))]
    told = causes_of((job(), ranks))["message-left-out"]
    assert told.level == "guess"
    assert told.why.startswith("Rank 2 waits for a message of rank 0, which is in barrier")


def test_rounds_without_a_backward_are_no_batches() -> None:
    assert "uneven-batches" not in causes_of(uneven_rounds())
    found = causes_of(uneven_rounds())["uneven-rounds"]
    assert "rank 1 went on to barrier (train.py:10 train)".capitalize()[1:] in found.why[1:]
    assert not any("DistributedSampler" in advice for advice in found.avoid)


def test_who_goes_round_once_more_than_the_others_has_not_left_the_loop() -> None:
    """Each rank stops early by a value of its own: rank 2 does not."""
    step, meet = [Call("all_reduce", "train.py:6 train")], Call("all_gather", "train.py:13 train")
    stopped, goes_on = [*step * 9, meet], [*step * 10]
    found = causes_of(logged([stopped, stopped, goes_on, stopped], *[ALL_REDUCE] * 4))
    assert (
        "rank 2 still goes round all_reduce (train.py:6 train) while ranks 0-1,3 went on to "
        "all_gather (train.py:13 train)"
    ) in found["uneven-rounds"].why.lower()


def test_rounds_of_a_metric_within_a_training_are_no_batches() -> None:
    """Each rank reduces the classes that it has seen; rank 2 has seen one less than the others."""
    epoch = [Call("backward", "train.py:44 train", group="")] * 4
    classes = [Call("all_reduce", "train.py:31 accuracy")]
    meet = Call("barrier", "train.py:46 train")
    begins = [Call("ddp", "train.py:41 train"), *epoch, *classes * 6, meet, *epoch]
    all_seen, less_seen = [*begins, *classes * 6, meet], [*begins, *classes * 5, meet]
    reduces = [ALL_REDUCE, ALL_REDUCE, BARRIER, ALL_REDUCE]
    found = causes_of(logged([all_seen, all_seen, less_seen, all_seen], *reduces))
    assert "uneven-batches" not in found
    assert "rank 2 went on to barrier" in found["uneven-rounds"].why.lower()


def test_rounds_of_a_loss_that_is_reduced_after_each_backward_are_batches() -> None:
    step = [
        Call("backward", "train.py:44 train", group=""),
        Call("all_reduce", "train.py:46 train"),
    ]
    meet = Call("barrier", "train.py:50 train")
    found = causes_of(
        logged([[*step * 4, meet], [*step * 3, meet], [*step * 4, meet]], *[ALL_REDUCE] * 3)
    )
    assert "uneven-batches" in found
    assert "uneven-rounds" not in found


def _recorded(kinds: Sequence[tuple[str, str, str]], waits: bool) -> CollectiveLog:
    """Return a log of a source ("ring" with sites, else without): kind, group, site."""
    source: LogSource = "ring" if any(site for _, _, site in kinds) else "torch"
    numbers: dict[str, int] = {}
    made = []
    for at, (kind, group, site) in enumerate(kinds):
        numbers[group] = numbers.get(group, 0) + 1
        done = not waits or at < len(kinds) - 1
        made.append(Collective(group, kind, numbers[group], site, at=100.0 + at, done=done))
    return CollectiveLog(source, tuple(made), {"0": (0, 1, 2)} if source == "ring" else {})


def test_a_rank_that_made_the_same_backward_without_its_reduction_has_no_fewer_batches() -> None:
    """Rank 2's loss left out some layers, and DDP reduced nothing in its third backward."""
    backward, meet = ("backward", "", "train.py:41 main"), ("barrier", "0", "train.py:44 main")
    called = [("ddp", "0", "train.py:36 main"), backward, meet, backward, backward]
    reduced = [("broadcast", "0", ""), ("all_reduce", "0", ""), ("barrier", "0", "")]
    ranks = []
    for number in range(3):
        left_out = number == 2
        mine = [*called, meet] if left_out else called
        made = [*reduced, reduced[1], ("barrier" if left_out else "all_reduce", "0", "")]
        logs = (_recorded(mine, waits=True), _recorded(made, waits=True))
        here = BARRIER if left_out else BACKWARD
        (thread,) = here.threads
        stands = look("main train.py:44" if left_out else "main train.py:41").threads[0].frames
        inside = [f for f in thread.frames if "/torch/" in f.file]
        here = replace(here, threads=(replace(thread, frames=(*inside, *stands)),))
        ranks.append(rank(number, here, collectives=logs))
    verdict = judge_job(job(world=3), ranks)
    assert verdict.ranks.culprit == (2,)
    found = causes_of((job(world=3), ranks))
    assert "uneven-batches" not in found
    assert "uneven-rounds" not in found
    assert "rank 2 left out a call" in found["rank-conditional-collective"].why.lower()


def test_the_answer_is_the_call_and_its_condition() -> None:
    found = causes_of(rank_conditional_collective())["rank-conditional-collective"]
    assert "callbacks.py:9" in found.why
    assert any("if rank == 0" in fact for fact in found.matched)
    assert found.agreement > 0.8


def test_ranks_that_call_the_same_are_not_at_odds() -> None:
    program = [Call("all_reduce", "train.py:10")] * 3
    assert not ALL & set(causes_of(logged([program, program], ALL_REDUCE, ALL_REDUCE)))


def test_a_rank_that_is_elsewhere_is_late_and_not_at_odds() -> None:
    program = [Call("all_reduce", "train.py:10")]
    assert not ALL & set(causes_of(logged([program, []], ALL_REDUCE, SLEEP)))


def test_without_logs_stacks_alone_are_never_sure() -> None:
    _, ranks = collective_mismatch()
    bare: list[RankFacts] = [replace(one, collectives=()) for one in ranks]
    found = causes_of((job(), bare))
    assert found["collective-mismatch"].agreement <= 0.8


def crashed_in(error: str, status: int) -> set[str]:
    """The causes of a crash of rank 0 in a collective with another size than on rank 1."""
    logs = ran([[Call("all_reduce", "train.py:10", shape)] for shape in ("f[4]", "f[5]")])
    ranks = [gone(0, status, error, left_at=90.0), gone(1, status, error, left_at=95.0)]
    told = [replace(r, collectives=log.collectives) for r, log in zip(ranks, logs, strict=True)]
    return set(causes_of((job("crash"), told)))


@pytest.mark.parametrize(
    ("error", "status", "is_one"),
    [
        ("", -6, True),  # gloo aborts who gets more than it has room for
        ("RuntimeError: [gloo/transport/tcp/pair.cc:537] Connection reset by peer", 1, True),
        ("ValueError: no such file", 1, False),
    ],
)
def test_sizes_that_differ_are_a_crash_with_gloo(error: str, status: int, is_one: bool) -> None:
    assert ("collective-mismatch" in crashed_in(error, status)) == is_one


def test_ranks_in_one_collective_called_in_two_places_are_not_at_odds() -> None:
    other = look(
        "all_reduce SP/torch/distributed/distributed_c10d.py:3252",
        "wrapper SP/torch/distributed/c10d_logger.py:83",
        "<module> train.py:99",
    )
    assert "collective-mismatch" not in causes_of((job(), [rank(0, ALL_REDUCE), rank(1, other)]))


def test_ranks_that_got_differently_far_without_one_that_waits_elsewhere_are_not_at_odds() -> None:
    """Some ranks leave a broadcast before all are there, and wait for the one in the next call."""
    asks = with_native(STORE, "c10d::TCPStore::doWait", "c10d::TCPStore::get")
    ranks = [rank(0, BARRIER), rank(1, BACKWARD), rank(2, asks), rank(3, BACKWARD)]
    found = causes_of((job(), ranks))
    assert "collective-mismatch" not in found
    assert next(iter(found)) == "store-key-missing"


def test_a_backward_and_a_collective_are_different_calls() -> None:
    gathers = look(
        "all_gather_object SP/torch/distributed/distributed_c10d.py:2700",
        "gather_object SP/accelerate/utils/operations.py:450",
        "<module> train.py:9",
    )
    steps = look(
        "_engine_run_backward SP/torch/autograd/graph.py:829",
        "Accelerator.backward SP/accelerate/accelerator.py:2000",
        "<module> train.py:5",
    )
    found = causes_of((job(), [rank(0, steps), rank(1, gathers)]))
    assert 0.5 < found["collective-mismatch"].agreement <= 0.8
    assert "collective-mismatch" not in causes_of((job(), [rank(n, steps) for n in (0, 1)]))


def test_a_model_that_is_wrapped_below_a_condition_is_no_other_call() -> None:
    """By stacks alone: what stands below it is the making of DDP (zoo J19)."""
    main = WRAPS.threads[0]
    told = [replace(f, condition="if me == 1") if f.name == "main" else f for f in main.frames]
    wraps = replace(WRAPS, threads=(replace(main, frames=tuple(told)),))
    found = causes_of((job(), [rank(0, ALL_REDUCE), rank(1, wraps)]))
    assert found["ddp-on-some-ranks"].level == "fits"
    assert "rank-conditional-collective" not in found


def test_ranks_that_all_make_ddp_do_not_differ_in_it() -> None:
    found = causes_of((job(), [rank(n, DDP) for n in (0, 1)]))
    assert not {"ddp-on-some-ranks", "different-parameters"} & set(found)


def test_who_still_compares_parameters_waits_for_those_that_do_not() -> None:
    found = causes_of((job(), [rank(0, ALL_REDUCE), rank(1, DDP)]))
    assert found["different-parameters"].agreement <= 0.8


def test_a_store_that_makes_a_group_is_asked_for_ranks_and_not_for_keys() -> None:
    makes = look(
        "_store_based_barrier SP/torch/distributed/distributed_c10d.py:1080",
        "init_process_group SP/torch/distributed/distributed_c10d.py:1899",
        "<module> train.py:12",
        call="poll",
    )
    one = with_native(makes, "c10d::TCPStore::doWait", "c10d::TCPStore::get")
    assert "store-key-missing" not in causes_of((job(), [rank(0, one), rank(1, SLEEP)]))


IN_THE_LOOP = (
    "broadcast SP/torch/distributed/distributed_c10d.py:3151",
    "_TrainingEpochLoop.advance SP/pytorch_lightning/loops/training_epoch_loop.py:300",
    "_FitLoop.run SP/pytorch_lightning/loops/fit_loop.py:217",
    "Trainer._run_stage SP/pytorch_lightning/trainer/trainer.py:1123",
)


@pytest.mark.parametrize(("hook", "is_through"), [("on_run_start", False), ("on_run_end", True)])
def test_a_rank_before_the_loop_is_not_through_with_it(hook: str, is_through: bool) -> None:
    outside = look(
        "save callbacks.py:7",
        f"_FitLoop.{hook} SP/pytorch_lightning/loops/fit_loop.py:431",
        *IN_THE_LOOP[2:],
        call="",
        state="R",
    )
    ranks = [rank(0, look(*IN_THE_LOOP, call="futex")), rank(1, outside)]
    assert ("uneven-batches" in causes_of((job(), ranks))) == is_through


def test_a_rank_that_is_still_in_the_loop_has_no_fewer_batches() -> None:
    """Rank 1 logs a metric more, in a callback of the same step: that is a call too many."""
    step = [Call("broadcast", "train.py:40"), Call("backward", "train.py:40")]
    ends, fit = Call("barrier", "callbacks.py:24"), "<module> train.py:40"
    logs = [[*step, step[0]], [*step, ends]]
    more = look(
        "barrier SP/torch/distributed/distributed_c10d.py:5356",
        "Spikes.on_train_batch_end callbacks.py:24",
        "_TrainingEpochLoop.advance SP/pytorch_lightning/loops/training_epoch_loop.py:375",
        *IN_THE_LOOP[2:],
        fit,
    )
    within = causes_of(logged(logs, look(*IN_THE_LOOP, fit), more))
    assert "uneven-batches" not in within
    # Stacks alone, as attach has them, tell that much: the log must not say another thing.
    assert within["rank-conditional-collective"].level == "guess"
    assert "collective-mismatch" not in within
    assert "uneven-batches" in causes_of(logged(logs, look(*IN_THE_LOOP), REPORTS))


def sleeps_in(hook: str) -> Look:
    file = "callbacks.py:20"
    frames = (
        f"Report.{hook} {file}",
        f"_FitLoop.{hook} SP/pytorch_lightning/loops/fit_loop.py:495",
    )
    return look(*frames, *IN_THE_LOOP[2:], call="clock_nanosleep")


def test_who_is_through_with_all_epochs_brings_no_batch_whatever_it_waits_for() -> None:
    """By frames alone, as attach has them: the others wait in a step that it does not have."""
    ranks = [rank(0, BACKWARD), rank(1, sleeps_in("on_run_end"))]
    verdict = judge_job(job(), ranks)
    assert verdict.ranks.culprit == (1,)
    assert verdict.cause is not None
    assert verdict.cause.id == "uneven-batches"


def test_at_the_end_of_an_epoch_it_may_only_be_late_for_the_next() -> None:
    ranks = [rank(0, BACKWARD), rank(1, sleeps_in("on_advance_end"))]
    assert "uneven-batches" not in causes_of((job(), ranks))


def test_where_nobody_waits_for_it_in_a_step_it_is_not_short_of_batches() -> None:
    loads = look("read data.py:3", *IN_THE_LOOP[1:], call="recvfrom")
    ranks = [rank(0, loads), rank(1, sleeps_in("on_run_end"))]
    assert "uneven-batches" not in causes_of((job(), ranks))


def with_source(facts: Facts, calls: tuple[str, ...], given: tuple[str, ...]) -> Facts:
    """The same, with what the source says of the line that asks the store."""
    told, ranks = facts
    last = ranks[-1]
    (one, *more) = last.looks
    (thread, *threads) = one.threads
    frames = tuple(
        f if f.native or f.file.startswith("/venv") else replace(f, calls=calls, given=given)
        for f in thread.frames
    )
    looks = (replace(one, threads=(replace(thread, frames=frames), *threads)), *more)
    return told, [*ranks[:-1], replace(last, looks=looks)]


@pytest.mark.parametrize(
    ("calls", "given", "says"),
    [
        (("store.get",), ("address-of-the-evaluator",), 'the key "address-of-the-evaluator"'),
        (("_get_default_store", "_get_default_store().wait"), ("a", "b"), 'the keys "a", "b"'),
        (("store.get",), (), "a key"),  # in a variable
        (("announce",), ("a word",), "a key"),  # something else that asks the store inside
    ],
)
def test_the_key_is_said_where_the_source_has_it(
    calls: tuple[str, ...], given: tuple[str, ...], says: str
) -> None:
    found = causes_of(with_source(store_key_missing(), calls, given))["store-key-missing"]
    assert f"store for {says}" in found.why


@pytest.mark.parametrize(
    ("calls", "given", "says"),
    [
        (("wait_for",), ("index/ready",), 'the key "index/ready"'),
        (("wait_for",), ("index/ready", "training"), "a key"),  # one of two
        (("wait_for", "print"), ("index/ready",), "a key"),  # given to one of two
    ],
)
def test_the_key_is_said_where_the_line_has_it_that_calls_a_helper_of_the_jobs_own(
    calls: tuple[str, ...], given: tuple[str, ...], says: str
) -> None:
    told, (first_rank, last) = store_key_missing()
    outer = replace(look("<module> train.py:20").threads[0].frames[0], calls=calls, given=given)
    helper = replace(outer, name="wait_for", line=12, calls=("store.wait",), given=())
    looks = [
        replace(one, threads=(replace(one.threads[0], frames=(*native, helper, outer)),))
        for one in last.looks
        if (native := [f for f in one.threads[0].frames if f.native])
    ]
    found = causes_of((told, [first_rank, replace(last, looks=tuple(looks))]))
    assert f"store for {says}" in found["store-key-missing"].why


@pytest.mark.parametrize(("hook", "level"), [("on_advance_end", "guess"), ("on_run_end", "fits")])
def test_by_stacks_alone_an_epochs_end_may_be_a_call_of_one_ranks_callback(
    hook: str, level: str
) -> None:
    """The others may have ended that epoch too, and be in the next."""
    outside = look(
        "barrier SP/torch/distributed/distributed_c10d.py:5356",
        "Stops.on_validation_end callbacks.py:7",
        f"_FitLoop.{hook} SP/pytorch_lightning/loops/fit_loop.py:495",
        *IN_THE_LOOP[2:],
    )
    ranks = [rank(0, look(*IN_THE_LOOP)), rank(1, outside), rank(2, look(*IN_THE_LOOP))]
    assert causes_of((job(), ranks))["uneven-batches"].level == level


@pytest.mark.parametrize(("hook", "found"), [("on_advance_end", False), ("on_run_end", True)])
def test_a_hook_after_all_epochs_is_no_call_that_the_others_do_not_come_by(
    hook: str, found: bool
) -> None:
    """One line of the job's own calls fit() on both, and the callback is the job's own too."""
    outside = look(
        "barrier SP/torch/distributed/distributed_c10d.py:5356",
        "Report.on_train_end callbacks.py:7",
        f"_FitLoop.{hook} SP/pytorch_lightning/loops/fit_loop.py:495",
        *IN_THE_LOOP[2:],
        "main train.py:9",
    )
    ranks = [rank(0, look(*IN_THE_LOOP, "main train.py:9")), rank(1, outside)]
    assert ("uneven-batches" in causes_of((job(), ranks))) == found


def test_who_asks_the_others_after_the_evaluation_of_all_is_not_short_of_batches() -> None:
    """One rank alone has the callback for early stopping: the others are in the next epoch."""
    batch = [Call("broadcast", "train.py:40 main"), Call("backward", "train.py:40 main")]
    evaluation = [Call("all_reduce", "train.py:41 main")] * 2
    asks = Call("barrier", "train.py:42 main")
    usual = [Call("ddp", "train.py:20 main"), *batch * 3, *evaluation]
    fit = "<module> train.py:40"
    stops = look(
        "barrier SP/torch/distributed/distributed_c10d.py:5356",
        "EarlyStopping.on_validation_end SP/pytorch_lightning/callbacks/early_stopping.py:190",
        "_TrainingEpochLoop.on_advance_end SP/pytorch_lightning/loops/training_epoch_loop.py:410",
        *IN_THE_LOOP[2:],
        fit,
    )
    inside = look(*IN_THE_LOOP, fit)
    logs = [[*usual, batch[0]], [*usual, asks], [*usual, batch[0]]]
    found = causes_of(logged(logs, inside, stops, inside))
    assert "uneven-batches" not in found
    assert {"collective-mismatch", "rank-conditional-collective"} & found.keys()


def test_who_raised_before_its_barrier_is_not_short_of_batches() -> None:
    """`try: fit() finally: barrier()`: the step that raised is on no stack any more."""
    step = [Call("backward", "train.py:40")]
    programs = [[*step * 6], [*step * 3, Call("barrier", "train.py:50")], [*step * 6]]
    about, ranks = logged(programs, BACKWARD, BARRIER, BACKWARD)
    raised = replace(ranks[1], raised="lightning.pytorch.Trainer.fit")
    found = causes_of((about, [ranks[0], raised, ranks[2]]))
    assert next(iter(found)) == "swallowed-exception"
    assert any("Trainer.fit raised" in fact for fact in found["swallowed-exception"].matched)
    assert "uneven-batches" not in found


@pytest.mark.parametrize("raised", [True, False])
def test_a_collective_that_raised_on_one_rank_is_why_the_others_wait_in_it(raised: bool) -> None:
    """What is to be gathered does not pickle: the error is caught, and that rank goes on."""
    usual = [Call("all_reduce", "train.py:40"), Call("all_gather_object", "train.py:44")]
    programs = [usual * 4, [*usual * 4, usual[0]], usual * 4]
    about, ranks = logged(programs, ALL_REDUCE, ALL_REDUCE, ALL_REDUCE)
    made = [list(one.collectives[0].operations) for one in ranks]
    made[0][-1], made[2][-1] = (replace(made[n][-1], done=False) for n in (0, 2))
    made[1][7] = replace(made[1][7], done=True, raised=raised)
    seen = [
        replace(one, collectives=(replace(one.collectives[0], operations=tuple(operations)),))
        for one, operations in zip(ranks, made, strict=True)
    ]
    found = causes_of((about, seen))
    assert ("swallowed-exception" in found) is raised
    if raised:
        matched = found["swallowed-exception"].matched
        assert "all_gather_object (train.py:44) raised an exception before" in matched
        assert next(iter(found)) == "swallowed-exception"
        assert judge_job(about, seen).ranks.culprit == (1,)


def test_who_raised_and_waits_for_nobody_of_its_peers_is_told_by_its_wait() -> None:
    about, ranks = logged([[Call("all_reduce", "a.py:1")], []], ALL_REDUCE, SLEEP)
    raised = [ranks[0], replace(ranks[1], raised="wandb.init")]
    assert set(causes_of((about, raised))) == set(causes_of((about, ranks)))


def test_where_all_ranks_raised_the_same_it_tells_nothing() -> None:
    """A download that fails is done without: every rank has seen that."""
    step = [Call("backward", "train.py:40")]
    programs = [[*step * 6], [*step * 3, Call("barrier", "train.py:50")], [*step * 6]]
    about, ranks = logged(programs, BACKWARD, BARRIER, BACKWARD)
    raised = [replace(one, raised="huggingface_hub.hf_hub_download") for one in ranks]
    assert "swallowed-exception" not in causes_of((about, raised))


# ---- a loop that some are through with, by stacks alone ------------------------------------------

GOES_ROUND = (
    "_engine_run_backward SP/torch/autograd/graph.py:829",
    "Tensor.backward SP/torch/_tensor.py:500",
    "train_epoch train.py:24",
    "main train.py:35",
)
IS_THROUGH = ("barrier SP/torch/distributed/distributed_c10d.py:4900", "main train.py:36")


def with_loop(one: Look, function: str, lines: tuple[int, ...]) -> Look:
    (thread,) = one.threads
    frames = tuple(replace(f, loop=lines) if f.name == function else f for f in thread.frames)
    return replace(one, threads=(replace(thread, frames=frames),))


def stands(inside: Look, behind: Look) -> Facts:
    return job(world=3), [rank(0, inside), rank(1, inside), rank(2, behind)]


def test_who_is_through_with_a_loop_that_others_are_in_made_fewer_rounds() -> None:
    """The loop is in a function that the others have called, or around their line."""
    called = with_loop(look(*GOES_ROUND), "train_epoch", (20, 27))
    found = causes_of(stands(called, look(*IS_THROUGH)))
    assert next(iter(found)) == "uneven-rounds"
    assert found["uneven-rounds"].level == "guess"
    around = with_loop(look(*GOES_ROUND), "main", (30, 35))
    assert next(iter(causes_of(stands(around, look(*IS_THROUGH))))) == "uneven-rounds"


def test_who_is_in_the_same_loop_is_not_through_with_it() -> None:
    both = [with_loop(look(*one), "main", (30, 36)) for one in (GOES_ROUND, IS_THROUGH)]
    assert "uneven-rounds" not in causes_of(stands(both[0], both[1]))


REDUCES = (
    "all_reduce SP/torch/distributed/distributed_c10d.py:3252",
    "reconstruct train.py:12",
    "main train.py:35",
)
GATHERS = (
    "all_gather SP/torch/distributed/distributed_c10d.py:4287",
    "contrast train.py:8",
    "main train.py:35",
)


@pytest.mark.parametrize("loop", [(), (30, 36)])
@pytest.mark.parametrize("kept", ["", "reconstruct"])
def test_who_has_not_left_the_loop_has_not_fewer_batches(loop: tuple[int, ...], kept: str) -> None:
    """One line of a loop calls one of two tasks, and rank 2 takes the other one: its log looks as
    if it had gone round once less. Where the function that the others are in has a loop of its own
    they may go round that one.
    """
    step = [Call("all_reduce", "train.py:12"), Call("backward", "train.py:35", group="")]
    programs = [step * 4, step * 4, [*step * 3, Call("all_gather", "train.py:8")]]
    views = [look(*REDUCES), look(*REDUCES), look(*GATHERS)]
    views = [with_loop(one, "main", loop) for one in views]
    views = [with_loop(one, kept, (10, 14)) if kept else one for one in views]
    found = causes_of(logged(programs, *views))
    has_left = not loop or bool(kept)
    assert next(iter(found)) == ("uneven-batches" if has_left else "collective-mismatch")
    assert ("uneven-batches" in found) == has_left


def test_without_a_loop_ranks_are_in_different_calls() -> None:
    found = causes_of(stands(look(*GOES_ROUND), look(*IS_THROUGH)))
    assert "uneven-rounds" not in found
    assert "collective-mismatch" in found


def test_who_is_still_in_the_loop_alone_may_have_made_a_call_too_many() -> None:
    called = with_loop(look(*GOES_ROUND), "train_epoch", (20, 27))
    behind = look(*IS_THROUGH)
    facts = job(world=3), [rank(0, behind), rank(1, behind), rank(2, called)]
    assert "uneven-rounds" not in causes_of(facts)


def test_a_call_below_a_condition_by_rank_says_more_than_a_loop() -> None:
    called = with_loop(look(*GOES_ROUND), "train_epoch", (20, 27))
    (thread,) = look(*IS_THROUGH).threads
    frames = (thread.frames[0], replace(thread.frames[1], condition="if rank == 2"))
    behind = replace(look(*IS_THROUGH), threads=(replace(thread, frames=frames),))
    assert "uneven-rounds" not in causes_of(stands(called, behind))


def test_who_wraps_its_model_again_may_have_tried_again() -> None:
    wraps = Call("ddp", "train.py:20")
    step = [Call("backward", "train.py:40", group="")]
    ranks = [[wraps, *step * 4], [wraps, *step * 3, wraps], [wraps, *step * 4]]
    found = causes_of(logged(ranks, BACKWARD, WRAPS, BACKWARD))
    assert next(iter(found)) == "ddp-on-some-ranks"
    assert found["ddp-on-some-ranks"].level == "fits"
    assert found.get("uneven-batches") is None or found["uneven-batches"].level == "guess"
    other = Call("ddp", "train.py:60")  # another model, behind the loop
    ranks = [[wraps, *step * 4], [wraps, *step * 3, other], [wraps, *step * 4]]
    behind = causes_of(logged(ranks, BACKWARD, WRAPS, BACKWARD))
    assert behind["ddp-on-some-ranks"].agreement < found["ddp-on-some-ranks"].agreement
