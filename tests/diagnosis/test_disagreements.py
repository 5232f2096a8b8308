"""Ranks that stand in the same call and do not mean the same by it: another root, or another group
in the same place. Their frames show it, and their logs do not: each made the same calls.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hangbisect.base.process_facts import Look
from hangbisect.base.rank_facts import Collective, CollectiveLog, RankFacts
from hangbisect.base.verdict_facts import Verdict
from hangbisect.diagnosis.process.frames import WRAPPER
from hangbisect.diagnosis.verdict import judge_job

from .causes.scenes import with_native
from .logs import Call, ran
from .made_up import ALL_REDUCE, job, look, rank
from .test_transfers import C10D, SERVER, SLEEP, call, still, within


def judged(*looks: Look) -> Verdict:
    return judge_job(job("late", len(looks)), [still(n, one) for n, one in enumerate(looks)])


def rooted(root: int, name: str = "broadcast", line: int = 20, group: str = "None") -> Look:
    return call(name, line, group, **{"src": root, "group_src": root})


def objects(root: int, line: int = 4026) -> Look:
    """In a broadcast of broadcast_object_list, which hands its own group on."""
    one = look(
        f"broadcast {C10D}:3151",
        "_exception_logger.<locals>.wrapper SP/torch/distributed/c10d_logger.py:83",
        f"broadcast_object_list {C10D}:{line}",
        "_exception_logger.<locals>.wrapper SP/torch/distributed/c10d_logger.py:83",
        "broadcast_object_list SP/accelerate/utils/operations.py:695",
        "main train.py:28",
        "<module> train.py:90",
    )
    told = (("src", str(root)), ("group_src", str(root)))
    return within(one, told[1:], (("group", "given"),), told)


def makes(name: str, members: str, line: int = 33) -> Look:
    """In new_group, as the group of that name."""
    one = look(
        f"_new_process_group_helper {C10D}:2169",
        f"_new_group_with_tag {C10D}:6056",
        f"new_group {C10D}:5863",
        f"main train.py:{line}",
        "<module> train.py:90",
        call="poll",
    )
    named = ("group_name", f'"{name}"')
    helper = (named, ("global_ranks_in_group", members))
    return within(one, helper, (named, ("ranks", members)), (("ranks", members),))


# ---- another root --------------------------------------------------------------------------------


def test_the_one_that_takes_another_rank_for_the_source_is_to_blame() -> None:
    verdict = judged(rooted(0), rooted(2), rooted(0), rooted(0))
    assert verdict.ranks.culprit == (1,)
    assert verdict.ranks.waiting == (0, 2, 3)
    assert verdict.cause is not None
    assert verdict.cause.id == "collective-mismatch"
    assert "rank 1" in verdict.cause.why
    assert "rank 2" in verdict.cause.why


def test_the_outer_call_has_the_number_that_the_job_gave() -> None:
    verdict = judged(objects(0), objects(2), objects(0, line=4045), objects(0))
    assert verdict.ranks.culprit == (1,)


def watched(one: Look) -> Look:
    """The same in a rank below `hangbisect run`: our frames stand between those of torch."""
    (thread,) = one.threads
    inner, *outer = thread.frames
    ours = replace(inner, name="logged", file=WRAPPER, locals=())
    return replace(one, threads=(replace(thread, frames=(inner, ours, *outer)),))


def test_frames_of_a_watched_rank_hide_nothing() -> None:
    verdict = judged(*[watched(rooted(n)) for n in (0, 2, 0, 0)])
    assert verdict.ranks.culprit == (1,)
    looks = [watched(rooted(n, group="given")) for n in (0, 2, 0, 0)]
    assert judged(*looks).ranks.culprit != (1,)


def test_logs_of_the_same_calls_change_nothing() -> None:
    logs = ran([[Call("broadcast", "train.py:20")]] * 3)
    looks = (rooted(0), rooted(0), rooted(1))
    ranks = [
        replace(still(n, one), collectives=facts.collectives)
        for n, (one, facts) in enumerate(zip(looks, logs, strict=True))
    ]
    assert judge_job(job("late", 3), ranks).ranks.culprit == (2,)


def test_of_two_ranks_nobody_can_tell_whose_root_is_wrong() -> None:
    assert judged(rooted(0), rooted(1)).ranks.culprit == (0, 1)


def test_in_groups_of_some_the_roots_may_differ() -> None:
    looks = [rooted(0, group="given"), rooted(0, group="given"), rooted(2, group="given")]
    assert judged(*looks).ranks.culprit != (2,)


def test_who_asks_a_server_is_to_blame_whatever_roots_the_others_have() -> None:
    assert judged(rooted(0), rooted(2), rooted(0), SERVER).ranks.culprit == (3,)
    assert judged(rooted(0), rooted(2), rooted(0), SLEEP).ranks.culprit == (3,)


def _logged(number: int, one: Look, calls: int) -> RankFacts:
    (facts,) = ran([[Call("broadcast", "train.py:20")] * calls])
    (log,) = facts.collectives
    operations = (*log.operations[:-1], replace(log.operations[-1], done=False))
    return replace(still(number, one), collectives=(replace(log, operations=operations),))


def test_in_another_round_of_a_loop_over_roots_a_rank_has_another_one() -> None:
    """`for source in range(world): broadcast(x, source)`: the logs tell which round it is."""
    ranks = [_logged(0, rooted(1), 2), _logged(1, rooted(1), 2), _logged(2, rooted(0), 1)]
    verdict = judge_job(job("late", 3), ranks)
    assert verdict.cause is None or "takes rank" not in verdict.cause.why


def _sends_round(number: int, sources: tuple[int, ...], comes_to: int) -> RankFacts:
    """A rank that broadcasts from these in turn, and stands in the one of that number."""
    operations = tuple(
        Collective("0", "broadcast", n, "train.py:20", at=100 + n, done=n < comes_to, root=root)
        for n, root in enumerate(sources[:comes_to], 1)
    )
    log = CollectiveLog("ring", operations, {"0": (0, 1, 2, 3)})
    return replace(still(number, rooted(sources[comes_to - 1])), collectives=(log,))


def test_where_ranks_have_parted_in_an_earlier_call_that_one_tells_who_is_wrong() -> None:
    """Adapters go round in the order of their files, which is another one on rank 2."""
    there = (0, 1, 2, 3)
    ranks = [
        _sends_round(0, there, 3),
        _sends_round(1, there, 2),
        _sends_round(2, there[::-1], 2),
        _sends_round(3, there, 3),
    ]
    verdict = judge_job(job("late", 4), ranks)
    assert verdict.ranks.culprit == (2,)
    assert verdict.cause is not None
    assert verdict.cause.id == "collective-mismatch"
    assert "rank 2 takes rank 3 for the source, ranks 0-1,3 take rank 0" in verdict.cause.why
    # Once they have called something else, numbers compare nothing any more.
    other = Collective("0", "barrier", 1, "train.py:9", at=101, done=True)
    (log,) = ranks[0].collectives
    ranks[0] = replace(
        ranks[0], collectives=(replace(log, operations=(other, *log.operations[1:])),)
    )
    verdict = judge_job(job("late", 4), ranks)
    assert verdict.cause is None or "takes rank 3 for the source" not in verdict.cause.why


def _in_a_loop(root: int, **known: Any) -> Look:
    """In a broadcast whose line gives another root in each round of the loop around it."""
    one = rooted(root)
    (thread,) = one.threads
    frames = tuple(replace(f, **known) if f.file.endswith("train.py") else f for f in thread.frames)
    return replace(one, threads=(replace(thread, frames=frames),))


def test_without_logs_a_loop_over_the_roots_tells_only_by_its_counters_who_is_wrong() -> None:
    def told(*looks: Look) -> str:
        verdict = judged(*looks)
        return " ".join(verdict.cause.matched) if verdict.cause else ""

    assert "rank 1 takes" not in told(*[_in_a_loop(n, turns=True) for n in (2, 1, 2, 2)])
    same = [_in_a_loop(n, turns=True, counters=(("step", 3),)) for n in (2, 1, 2, 2)]
    assert "ank 1 takes rank 1 for the source" in told(*same)
    assert "ank 1 takes rank 1 for the source" in told(*[_in_a_loop(n) for n in (2, 1, 2, 2)])


# ---- another root in a group of some, which the logs tell ----------------------------------------

EXPERTS = {"0": (0, 1, 2, 3), "e": (1, 2, 3)}


def _in_groups(number: int, one: Look, *made: tuple[str, str, bool]) -> RankFacts:
    """A rank that stands in `one`, and has logged these: kind, group, whether it is done."""
    numbers: dict[str, int] = {}
    operations = []
    for n, (kind, group, done) in enumerate(made):
        numbers[group] = numbers.get(group, 0) + 1
        operations.append(
            Collective(
                group, kind, numbers[group], "train.py:20", at=100 + n + number / 1000, done=done
            )
        )
    members = {name: ranks for name, ranks in EXPERTS.items() if number in ranks}
    log = CollectiveLog("ring", tuple(operations), members)
    return replace(still(number, one), collectives=(log,))


BARRIER = call("barrier", 37)
WAITS_THERE = ("barrier", "0", False)


def test_a_root_that_is_through_with_the_call_was_not_the_root_of_it() -> None:
    """Rank 2 waits for rank 3, which has received from rank 1 and gone on: rank 2 is wrong."""
    sent, waits = ("broadcast", "e", True), ("broadcast", "e", False)
    ranks = [
        _in_groups(0, BARRIER, WAITS_THERE),
        _in_groups(1, rooted(1, group="given"), waits),
        _in_groups(2, rooted(3, group="given"), waits),
        _in_groups(3, BARRIER, sent, WAITS_THERE),
    ]
    verdict = judge_job(job("late", 4), ranks)
    assert verdict.ranks.culprit == (2,)
    assert verdict.ranks.waiting == (0, 1, 3)
    assert verdict.cause is not None
    assert verdict.cause.id == "collective-mismatch"
    assert "rank 2" in verdict.cause.why


def test_in_one_group_of_some_the_fewer_are_to_blame() -> None:
    waits = ("broadcast", "e", False)
    ranks = [
        _in_groups(0, BARRIER, WAITS_THERE),
        _in_groups(1, rooted(1, group="given"), waits),
        _in_groups(2, rooted(3, group="given"), waits),
        _in_groups(3, rooted(1, group="given"), waits),
    ]
    assert judge_job(job("late", 4), ranks).ranks.culprit == (2,)


def test_in_two_groups_of_some_the_roots_may_differ() -> None:
    ranks = [
        _in_groups(n, rooted(n // 2 * 2, group="given"), ("broadcast", "ab"[n // 2], False))
        for n in range(4)
    ]
    verdict = judge_job(job("late", 4), ranks)
    assert verdict.cause is None or "takes rank" not in verdict.cause.why


# ---- another group in its place ------------------------------------------------------------------


def test_who_makes_its_groups_in_another_order_is_to_blame() -> None:
    verdict = judged(makes("1", "[0, 1]"), makes("1", "[1, 2]"), makes("2", "[1, 2]"))
    assert verdict.ranks.culprit == (1,)
    assert verdict.ranks.waiting == (0, 2)
    assert verdict.cause is not None
    assert verdict.cause.id == "group-on-some-ranks"
    assert "[1, 2]" in verdict.cause.why


def test_where_each_makes_its_own_group_first_all_are() -> None:
    looks = [makes("1", "[0, 1]"), makes("1", "[0, 1]"), makes("1", "[2, 3]"), makes("1", "[2, 3]")]
    verdict = judged(*looks)
    assert verdict.ranks.culprit == (0, 1, 2, 3)
    assert verdict.cause is not None
    assert verdict.cause.id == "group-on-some-ranks"


def test_a_member_that_is_not_where_its_group_is_made_keeps_the_others() -> None:
    """It takes ranks 0, 1 and 2 for those of the group, and was through with it at once."""
    making, left = makes("1", "[0, 2, 4]"), rooted(0)
    verdict = judged(making, left, making, left, left)
    assert verdict.ranks.culprit == (4,)
    assert verdict.ranks.waiting == (0, 1, 2, 3)
    assert verdict.cause is not None
    assert verdict.cause.id == "group-on-some-ranks"
    assert "Ranks 0,2 make group 1 of ranks [0, 2, 4]" in verdict.cause.why
    assert "rank 4 is not there" in verdict.cause.why


def test_of_one_that_makes_a_group_and_one_that_does_not_nobody_can_tell_who_is_wrong() -> None:
    making, left = makes("1", "[0, 2]"), rooted(0)
    verdict = judged(making, left, left)
    assert verdict.cause is None or "is not there" not in verdict.cause.why


def _has_made(number: int, one: Look, *kinds: str) -> RankFacts:
    calls = [Collective("0", kind, n, done=n < len(kinds)) for n, kind in enumerate(kinds, 1)]
    return replace(still(number, one), collectives=(CollectiveLog("ring", tuple(calls)),))


def test_where_only_its_makers_have_come_to_it_a_group_is_made_by_some_alone() -> None:
    making, left = makes("1", "[0, 2, 4]"), rooted(0)
    for others, is_odd in ((("new_group", "broadcast"), True), (("broadcast",), False)):
        ranks = [
            _has_made(n, making, "new_group") if n in (0, 2) else _has_made(n, left, *others)
            for n in range(5)
        ]
        assert (judge_job(job("late", 5), ranks).ranks.culprit == (4,)) is is_odd


def test_ranks_that_make_one_group_do_not_disagree() -> None:
    verdict = judged(makes("1", "[0, 1, 2]"), makes("1", "[0, 1, 2]"), SERVER)
    assert verdict.ranks.culprit == (2,)


def test_groups_whose_names_are_hashes_may_be_made_in_any_order() -> None:
    looks = [makes("a81f", "[0, 1]"), makes("77ce", "[1, 2]"), makes("77ce", "[1, 2]")]
    assert judged(*looks).ranks.culprit != (1,)


def test_who_leaves_a_member_out_of_a_group_that_its_members_alone_make_is_to_blame() -> None:
    """Rank 0 is past it, in a barrier: those that make groups do not wait for it."""
    three, two = makes("a81f", "[1, 2, 3]"), makes("77ce", "[1, 2]")
    verdict = judged(BARRIER, three, two, three)
    assert verdict.ranks.culprit == (2,)
    assert verdict.ranks.waiting == (0, 1, 3)
    assert verdict.waits_for is not None
    assert verdict.waits_for.rank == 1
    assert verdict.cause is not None
    assert verdict.cause.id == "group-on-some-ranks"
    assert "[1, 2]" in verdict.cause.why


def test_who_makes_a_group_of_its_members_alone_under_another_name_is_to_blame() -> None:
    """The name counts the groups that a rank has, and rank 2 has made one more."""
    usual, other = makes("a81f", "[1, 2, 3]"), makes("77ce", "[1, 2, 3]")
    verdict = judged(BARRIER, usual, other, usual)
    assert verdict.ranks.culprit == (2,)
    assert verdict.cause is not None
    assert verdict.cause.id == "group-on-some-ranks"
    assert "Rank 2 makes the group of ranks [1, 2, 3] under the name 77ce" in verdict.cause.why
    pair = [makes(name, "[2, 3]") for name in ("77ce", "a81f")]
    assert judged(BARRIER, BARRIER, *pair).ranks.culprit == (2, 3)


def test_logs_that_pair_such_a_group_with_a_call_of_all_ranks_say_nothing() -> None:
    three, two = makes("a81f", "[1, 2, 3]"), makes("77ce", "[1, 2]")
    looks = [BARRIER, three, two, three]
    ranks = [
        _in_groups(n, one, ("barrier" if n == 0 else "new_group", "0", False))
        for n, one in enumerate(looks)
    ]
    verdict = judge_job(job("late", 4), ranks)
    assert verdict.ranks.culprit == (2,)
    assert verdict.waits_for is not None
    assert verdict.waits_for.rank == 1
    assert verdict.cause is not None
    assert verdict.cause.id == "group-on-some-ranks"


def test_a_member_that_is_elsewhere_keeps_such_a_group() -> None:
    three = makes("a81f", "[1, 2, 3]")
    verdict = judged(BARRIER, three, SERVER, three)
    assert verdict.ranks.culprit == (2,)
    verdict = judged(SERVER, three, three, BARRIER)
    assert verdict.ranks.culprit == (0,)  # for whom rank 3 waits


# ---- another place in which to meet --------------------------------------------------------------


def joins(where: str, world: int = 3) -> Look:
    """In init_process_group, by way of that file or address."""
    one = look(
        f"_new_process_group_helper {C10D}:2169",
        f"init_process_group {C10D}:1899",
        "train train.py:27",
        "<module> train.py:90",
        call="clock_nanosleep",
    )
    told = (("init_method", f'"{where}"'), ("world_size", str(world)))
    return within(one, (("group_size", str(world)),), told)


def test_who_looks_for_the_others_at_another_file_is_to_blame() -> None:
    verdict = judged(
        joins("file:///job/meet"), joins("file:///job/x/meet"), joins("file:///job/meet")
    )
    assert verdict.ranks.culprit == (1,)
    assert verdict.ranks.waiting == (0, 2)
    assert verdict.cause is not None
    assert verdict.cause.id == "different-master"
    assert "/job/x/meet" in " ".join(verdict.cause.matched)


def test_where_each_machine_has_its_own_file_nobody_is_to_blame() -> None:
    where = joins("file:///tmp/meet/job")
    ranks = [replace(still(n, where), host=f"n{n + 1}") for n in range(3)]
    verdict = judge_job(job("late", 3), ranks)
    assert (verdict.ranks.culprit, verdict.ranks.waiting) == ((), (0, 1, 2))
    assert verdict.cause is not None
    assert verdict.cause.id == "store-file-not-shared"
    assert "/tmp/meet/job" in verdict.cause.why
    alike = [replace(one, host="n1") for one in ranks]
    assert judge_job(job("late", 3), alike).cause != verdict.cause


def test_who_connects_by_a_file_has_found_it() -> None:
    one = with_native(
        joins("file:///tmp/meet/job"), "gloo::transport::tcp::Pair::waitUntilConnected"
    )
    ranks = [replace(still(n, one), host=f"n{n + 1}") for n in range(3)]
    found = judge_job(job("late", 3), ranks).cause
    assert found is not None
    assert found.id == "stale-rendezvous-file"


def counts(*worlds: int) -> Verdict:
    """Of ranks that make the first group, each for so many."""
    looks = [joins("env://", world) for world in worlds]
    ranks = [
        replace(still(n, one), environment={"WORLD_SIZE": str(worlds[n])})
        for n, one in enumerate(looks)
    ]
    return judge_job(job("late", max(worlds)), ranks)


@pytest.mark.parametrize("other", [5, 3])
def test_who_counts_on_another_world_is_to_blame(other: int) -> None:
    verdict = counts(4, 4, other, 4)
    assert (verdict.ranks.culprit, verdict.ranks.waiting) == ((2,), (0, 1, 3))
    assert verdict.ranks.never_started == ()
    assert verdict.cause is not None
    assert verdict.cause.id == "different-world"
    assert f"Rank 2 counts on {other} ranks" in verdict.cause.why


def test_who_is_through_with_the_group_of_all_waits_for_the_others() -> None:
    """Gloo connects a rank to each other one, and 0 has found all of its own world."""
    looks = [ALL_REDUCE, joins("env://", 4), joins("env://", 5), joins("env://", 4)]
    verdict = judge_job(job("late", 4), [still(n, one) for n, one in enumerate(looks)])
    assert (verdict.ranks.culprit, verdict.ranks.waiting) == ((2,), (0, 1, 3))
    assert judged(SERVER, *looks[1:]).ranks.culprit == (0,)
    alone = [ALL_REDUCE, ALL_REDUCE, joins("env://", 5), ALL_REDUCE]
    assert judged(*alone).ranks.culprit == (2,)


def test_on_one_of_two_nodes_a_rank_that_makes_the_group_again_counts_rightly() -> None:
    looks = [ALL_REDUCE, ALL_REDUCE, joins("env://", 8), ALL_REDUCE]
    ranks = [replace(still(n, one), environment={"WORLD_SIZE": "8"}) for n, one in enumerate(looks)]
    cause = judge_job(job("late", 8, local_ranks=(0, 1, 2, 3)), ranks).cause
    assert cause is None or cause.id != "different-world"


def test_who_makes_a_further_group_with_others_counts_on_no_other_world() -> None:
    """A trainer's first rank meets the two workers of an engine by a copy of torch's function."""
    meets = look(
        f"_new_process_group_helper {C10D}:2169",
        "init_process_group SP/rlhf/distributed_util.py:61",
        "sync_weights train.py:27",
        call="clock_nanosleep",
    )
    meets = within(meets, (("group_size", "3"),), ())
    looks = [meets, ALL_REDUCE, ALL_REDUCE, ALL_REDUCE]
    verdict = judge_job(job("late", 4), [still(n, one) for n, one in enumerate(looks)])
    assert verdict.ranks.culprit == (0,)
    assert verdict.cause is None or verdict.cause.id != "different-world"


def test_where_most_count_on_more_than_came_who_has_not_come_tells_more() -> None:
    verdict = counts(5, 5, 4, 5)
    assert verdict.ranks.never_started == (4,)
    assert verdict.cause is None or verdict.cause.id != "different-world"


def test_of_two_places_to_meet_none_is_the_right_one() -> None:
    looks = [joins(f"file:///job/{number}", world=2) for number in (0, 1)]
    assert judged(*looks).ranks.culprit == (0, 1)


def test_one_machine_may_have_several_names() -> None:
    looks = [joins(f"tcp://{name}:4000") for name in ("127.0.0.1", "10.0.0.4", "n4")]
    verdict = judged(*looks)
    assert verdict.cause is None or verdict.cause.id != "different-master"


def test_where_a_rank_has_not_come_yet_that_one_tells_more() -> None:
    """Two names of one file, by a link, and rank 2 reads its data for ever."""
    looks = [joins("file:///job/meet"), joins("file:///link/meet"), SERVER]
    assert judged(*looks).ranks.culprit == (2,)


def test_one_look_without_locals_accuses_nobody() -> None:
    bare = [rank(n, within(makes("1", "[0, 1]"), (), (), ())) for n in range(3)]
    assert judge_job(job("late", 3), bare).ranks.culprit != (1,)


def uses(number: int, name: str, members: tuple[int, ...]) -> RankFacts:
    """In a collective over the group of that name, of which its log knows the members."""
    (facts,) = ran([[Call("all_reduce", "train.py:20", group=name)]])
    (log,) = facts.collectives
    operations = (*log.operations[:-1], replace(log.operations[-1], done=False))
    log = replace(log, operations=operations, groups={name: members})
    return replace(still(number, ALL_REDUCE), collectives=(log,))


def test_groups_of_one_name_that_have_other_members_were_made_in_another_order() -> None:
    """Both came into being by chance: who stands in new_group still waits for one of them."""
    ranks = [uses(0, "1", (0, 1)), still(1, makes("2", "[1, 2]")), uses(2, "1", (1, 2))]
    verdict = judge_job(job("late", 3), ranks)
    assert verdict.ranks.culprit == (2,)
    same = [uses(0, "1", (0, 1)), still(1, makes("2", "[1, 2]")), uses(2, "3", (0, 2))]
    assert judge_job(job("late", 3), same).ranks.culprit != (2,)


def knows(number: int, one: Look, groups: dict[str, tuple[int, ...]]) -> RankFacts:
    """A rank that stands so, and whose log knows these groups; it has used none of them lately."""
    (facts,) = ran([[Call("all_reduce", "train.py:20")]])
    (log,) = facts.collectives
    return replace(still(number, one), collectives=(replace(log, groups=groups),))


def test_so_they_were_where_nobody_stands_in_one_of_them_any_more() -> None:
    ranks = [
        knows(0, ALL_REDUCE, {"1": (0, 1)}),
        knows(1, makes("2", "[1, 2]"), {"1": (0, 1)}),
        knows(2, ALL_REDUCE, {"1": (1, 2), "0": (0, 1, 2)}),
    ]
    verdict = judge_job(job("late", 3), ranks)
    assert verdict.ranks.culprit == (2,)
    assert verdict.cause is not None
    assert verdict.cause.id == "group-on-some-ranks"
    # Their logs show another mismatch as well, as such groups make it later.
    made = [
        [Call("new_group", "train.py:20")] * n + [Call("barrier", "train.py:30")] for n in (1, 1, 2)
    ]
    later = [
        replace(one, collectives=(replace(log, groups=one.collectives[0].groups),))
        for one, facts in zip(ranks, ran(made), strict=True)
        for log in facts.collectives
    ]
    assert judge_job(job("late", 3), later).ranks.culprit == (2,)
    two = [knows(0, ALL_REDUCE, {"1": (0, 1)}), knows(1, ALL_REDUCE, {"1": (1, 2)})]
    assert judge_job(job("late", 2), two).ranks.culprit != (1,)  # which of two nobody can tell


def test_who_makes_now_what_one_of_two_has_made_before_tells_which_of_them_is_wrong() -> None:
    """Ranks 0 and 2 met in a group of one name by chance; rank 1 makes its second one."""
    ranks = [
        knows(0, BARRIER, {"1": (0, 1)}),
        knows(1, makes("2", "[1, 2]"), {}),
        knows(2, BARRIER, {"1": (1, 2)}),
    ]
    assert judge_job(job("late", 3), ranks).ranks.culprit == (2,)
    ranks[1] = knows(1, makes("2", "[0, 2]"), {})
    assert judge_job(job("late", 3), ranks).ranks.culprit != (2,)


def test_calls_of_one_number_meet_wherever_they_are_made() -> None:
    """Rank 1 tests alone, below trainer.test(), which gives the group of all by its name."""
    looks = [rooted(1, line=50), rooted(0, line=33, group="given"), rooted(1, line=50)]
    ranks = [_logged(number, one, 4) for number, one in enumerate(looks)]
    verdict = judge_job(job("still", world=3), ranks)
    assert verdict.ranks.culprit == (1,)
    assert verdict.cause is not None
    told = " ".join((verdict.cause.why, *verdict.cause.matched))
    assert "Rank 1 takes rank 0 for the source in broadcast" in told
    assert "train.py:33" in told
    assert "train.py:50" in told


def _gathered(number: int, root: int, stands: Look | None = None) -> RankFacts:
    """A rank that has gathered, or stands in that, and is in the next all_reduce else."""
    one = Collective("0", "gather", 1, "train.py:20", at=100, done=stands is None, root=root)
    then = Collective("0", "all_reduce", 2, "train.py:30", at=101, done=False)
    log = CollectiveLog("ring", (one,) if stands else (one, then), {"0": (0, 1, 2, 3, 4)})
    return replace(still(number, stands or ALL_REDUCE), collectives=(log,))


def test_who_is_past_a_gather_has_told_whom_it_took_for_its_root() -> None:
    """Rank 3 takes itself for it, all others rank 0; those that are neither have sent and gone."""
    ranks = [
        _gathered(0, 0, call("gather", 20, "None", **{"dst": 0, "group_dst": 0})),
        _gathered(1, 0),
        _gathered(2, 0),
        _gathered(3, 3, call("gather", 20, "None", **{"dst": 3, "group_dst": 3})),
        _gathered(4, 0),
    ]
    verdict = judge_job(job("late", 5), ranks)
    assert verdict.ranks.culprit == (3,)
    assert verdict.cause is not None
    told = " ".join((verdict.cause.why, *verdict.cause.matched))
    assert "ank 3 takes rank 3 for the destination, ranks 0-2,4 take rank 0" in told


def test_a_root_of_another_gather_is_none_of_this_one() -> None:
    stands = _gathered(0, 0, call("gather", 20, "None", **{"dst": 0, "group_dst": 0}))
    other = Collective("0", "gather", 7, "train.py:20", at=100, done=True, root=1)
    past = _gathered(1, 0)
    log = replace(past.collectives[0], operations=(other, past.collectives[0].operations[-1]))
    verdict = judge_job(job("late", 2), [stands, replace(past, collectives=(log,))])
    assert verdict.cause is None or "takes rank" not in verdict.cause.why


def test_without_logs_nobody_knows_whether_calls_of_different_lines_meet() -> None:
    verdict = judged(rooted(1, line=50), rooted(0, line=33), rooted(1, line=50))
    told = " ".join(verdict.cause.matched) if verdict.cause else ""
    assert "takes rank 0 for the source" not in told
