"""Which hang is the one in question, and which is another."""

from __future__ import annotations

from dataclasses import replace

from hangbisect.base.process_facts import Frame, Look, Thread
from hangbisect.base.rank_facts import RankFacts
from hangbisect.base.verdict_facts import CheckpointPlace, HangPlace, Ranks, Verdict
from hangbisect.search.trial_results import (
    crash_place_of,
    hang_place_of,
    is_same_place,
    main_stack,
    shows_known_hang,
)

BARE = Verdict("hang", "startup", (), 0, 2, None, Ranks())
WAITS = (("threading.py", "wait"), ("wandb_init.py", "init"))
READS = (("ssl.py", "read"), ("client.py", "get"))
HERE = HangPlace("wandb_logger", None, "wandb.init", "wandb", (WAITS,))


def look(*frames: tuple[str, str], pid: int = 10, native: str = "") -> Look:
    shown = [Frame(name, file, 1) for file, name in frames]
    if native:
        shown.insert(0, Frame(native, "libc.so", 0, native=True))
    thread = Thread(pid, None, False, False, tuple(shown))
    return Look(1.0, pid, 1, "python", (), 1.0, "S", "py-spy", threads=(thread,))


def test_the_place_of_a_hang_is_that_of_its_verdict_with_the_stacks_of_those_that_are_stuck() -> (
    None
):
    ranks = [
        RankFacts(0, looks=(look(*READS),)),
        RankFacts(1, looks=(look(*WAITS), look(*WAITS, native="futex"))),
    ]
    verdict = replace(
        BARE,
        checkpoint=CheckpointPlace(9, "wandb_logger", ""),
        ranks=Ranks(culprit=(1,), stuck=(1,), waiting=(0,)),
        call="wandb.init",
        component="wandb",
    )
    assert hang_place_of(verdict, ranks) == HERE


def test_a_run_without_a_place_or_evidence_has_an_empty_one() -> None:
    assert hang_place_of(BARE, ()) == HangPlace(None)


def test_the_same_call_in_the_same_step_is_the_same_hang_whatever_its_stack() -> None:
    assert is_same_place(HERE, replace(HERE, stacks=(READS,)))


def test_the_same_stack_in_the_same_step_is_the_same_hang_whatever_it_was_called() -> None:
    assert is_same_place(HERE, replace(HERE, call="threading.wait"))


def test_another_step_or_phase_is_another_hang() -> None:
    assert not is_same_place(HERE, replace(HERE, checkpoint="trainer"))
    assert not is_same_place(HERE, replace(HERE, phase="wrap"))


def test_another_call_with_another_stack_is_another_hang() -> None:
    assert not is_same_place(HERE, replace(HERE, call="requests.get", stacks=(READS,)))


def test_where_no_stack_could_be_seen_the_component_tells() -> None:
    blind = HangPlace("wandb_logger", None, None, "wandb")
    assert is_same_place(blind, blind)
    assert not is_same_place(blind, replace(blind, component="hub"))


def test_a_stack_is_pythons_alone_and_without_classes() -> None:
    assert main_stack(look(("a.py", "Run.wait"), native="futex")) == (("a.py", "wait"),)
    assert shows_known_hang(
        HangPlace("x", stacks=((("a.py", "wait"),),)), [look(("a.py", "Run.wait"))]
    )


def test_a_crash_is_known_by_its_step_and_the_kind_of_its_error() -> None:
    where = CheckpointPlace(12, "training", "", "first_backward")
    verdict = replace(BARE, checkpoint=where, ranks=Ranks(culprit=(1,)), component="fit")
    ranks = [
        RankFacts(0, error="RuntimeError: Connection closed by peer"),
        RankFacts(1, error="ValueError: 3 of 8 (train.py:12)"),
    ]
    place = crash_place_of(verdict, ranks)
    assert place == HangPlace("training", "first_backward", component="fit", crash="ValueError")
    assert is_same_place(place, replace(place, component=None))
    assert not is_same_place(place, replace(place, crash="RuntimeError"))
    assert not is_same_place(place, replace(place, phase="first_step"))
    assert not is_same_place(place, replace(place, crash=""))  # a hang there is no crash


def test_a_crash_without_a_word_is_an_exit() -> None:
    assert crash_place_of(BARE, ()).crash == "an exit"
