"""A rank that has ended well, and another that crashes after it: whose fault that is, and what
gloo's own words tell of it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hangbisect.base.checkpoints import UserStep
from hangbisect.base.identity import RankId, UnknownRank
from hangbisect.base.process_facts import Descriptor, Look, Socket
from hangbisect.base.rank_facts import RankFacts
from hangbisect.base.verdict_facts import Verdict
from hangbisect.diagnosis.first_failure import find_first_to_fail
from hangbisect.diagnosis.proof_of_hang import find_proof_of_hang
from hangbisect.diagnosis.snapshot import Snapshot
from hangbisect.diagnosis.verdict import judge_job, judge_job_with_graph

from .logs import Call, rank
from .made_up import gone, job, look
from .test_transfers import still

LOST = "RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:2671"
MISMATCH = (
    "RuntimeError: [gloo/transport/tcp/pair.cc:460] Received data size doesn't match expected "
    "size. Is there a distributed collective mismatch in your code?"
)
STEP, SAVE = Call("all_reduce", "train.py:33"), Call("barrier", "train.py:19")


def ended(number: int, program: list[Call], done: int, status: int, error: str = "") -> RankFacts:
    """A rank that had done so many calls of its program when it ended."""
    told = rank(number, program, done)
    at = 100.0 + done
    return gone(number, status, error, left_at=at, collectives=told.collectives)


def test_who_crashes_in_a_collective_that_the_one_that_ended_well_never_calls_is_to_blame() -> None:
    ranks = [ended(0, [STEP, STEP, SAVE], 2, 1, LOST), ended(1, [STEP, STEP], 2, 0)]
    assert find_first_to_fail(ranks) == (0,)
    verdict = judge_job(job("crash", pipeline="", command=("torchrun", "train.py")), ranks)
    assert verdict.ranks.culprit == (0,)


def test_who_ended_in_the_midst_of_what_the_other_still_does_left_early() -> None:
    ranks = [ended(0, [STEP, STEP, STEP], 2, 1, LOST), ended(1, [STEP, STEP], 2, 0)]
    assert find_first_to_fail(ranks) == (1,)


def test_without_logs_the_one_that_left_is_the_peer_that_was_missing() -> None:
    assert find_first_to_fail([gone(0, 1, LOST), gone(1, 0)]) == (1,)


def test_who_crashes_by_itself_is_to_blame_whoever_has_ended_well() -> None:
    assert find_first_to_fail([gone(0, 1, "ValueError: no"), gone(1, 0)]) == (0,)


def test_who_left_without_a_status_before_a_launcher_ended_the_others_is_to_blame() -> None:
    others = [gone(number, -15, left_at=9.0) for number in (0, 2, 3)]
    assert find_first_to_fail([gone(1, None, left_at=8.0), *others]) == (1,)
    assert find_first_to_fail([gone(1, None, left_at=9.5), *others]) == (0, 2, 3)


def test_of_ranks_that_left_nobody_knows_how_the_first_is_to_blame() -> None:
    unknown = [gone(number, None, left_at=8.0 + (number != 1)) for number in range(4)]
    assert find_first_to_fail(unknown) == (1,)
    together = [gone(number, None, left_at=8.0) for number in range(4)]
    assert find_first_to_fail(together) == (0, 1, 2, 3)


@pytest.mark.parametrize("where", ["error", "output"])
def test_what_gloo_says_of_a_mismatch_is_one(where: str) -> None:
    said = replace(gone(0, 1, MISMATCH if where == "error" else LOST), output=(MISMATCH,))
    verdict = judge_job(
        job("crash", pipeline="", command=("torchrun", "train.py")), [said, gone(1, 1, LOST)]
    )
    assert verdict.cause is not None
    assert verdict.cause.id == "gloo-mismatch"
    assert any("Is there a distributed collective mismatch" in one for one in verdict.cause.matched)


def test_a_crash_of_which_it_says_nothing_is_none() -> None:
    verdict = judge_job(job("crash"), [gone(0, 1, "ValueError: no"), gone(1, 1, LOST)])
    assert verdict.cause is None or verdict.cause.id != "gloo-mismatch"


# ---- ranks that look for what the one that ended was to do ---------------------------------------

POLLS = look("wait_for_shards train.py:39", "main train.py:60", call="clock_nanosleep")
WORKS_ON = look("upload train.py:80", "main train.py:60", call="clock_nanosleep")
SCRIPT = UserStep("script", "Script", "", 0.0, number=1)


def standing(*looks: Look | None) -> Verdict:
    """A script of the user's own: None is a rank that ended with status 0."""
    ranks = [
        replace(still(n, one), step=SCRIPT) if one else gone(n, 0, step=SCRIPT)
        for n, one in enumerate(looks)
    ]
    about = job("late", len(ranks), pipeline="", command=("python", "train.py"))
    return judge_job(about, ranks)


def test_all_others_look_for_what_the_one_that_ended_has_not_done() -> None:
    """`while not marker.exists(): sleep` of a rank that ended by os._exit(0): a guess."""
    ranks = [
        replace(still(n, one), step=SCRIPT) if one else gone(n, 0, step=SCRIPT)
        for n, one in enumerate([POLLS, None, POLLS, POLLS])
    ]
    about = job("late", 4, pipeline="", command=("python", "train.py"))
    verdict, graph = judge_job_with_graph(about, ranks)
    assert not find_proof_of_hang(verdict, Snapshot(ranks), graph)
    assert verdict.ranks.culprit == (1,)
    assert verdict.ranks.waiting == (0, 2, 3)
    assert verdict.cause is not None
    assert (verdict.cause.id, verdict.cause.level) == ("rank-left", "guess")


def test_attach_guesses_the_same_of_a_rank_that_has_ended_before_it_came() -> None:
    """It knows of no steps: neither of the ranks nor of the one that is a zombie."""
    ranks = [gone(1, 0) if n == 1 else still(n, POLLS) for n in range(4)]
    about = job("late", 4, pipeline="", command=("python", "train.py"))
    verdict = judge_job(about, ranks)
    assert verdict.ranks.culprit == (1,)
    assert verdict.cause is not None
    assert (verdict.cause.id, verdict.cause.level) == ("rank-left", "guess")


def test_who_stands_alone_after_another_has_ended_may_have_more_to_do() -> None:
    assert standing(POLLS, None).ranks.culprit == (0,)


def test_of_ranks_in_different_places_nobody_waits_for_the_one_that_ended() -> None:
    assert 1 not in standing(POLLS, None, WORKS_ON, POLLS).ranks.culprit


def test_where_most_have_ended_the_rest_is_late() -> None:
    assert standing(POLLS, None, None, POLLS, None).ranks.culprit == (0, 3)


# ---- several that failed -------------------------------------------------------------------------

WRONG = "ValueError: no such shard: 3 (train.py:34)"
NO_ANSWER = "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (decoder.py:355)"


@pytest.mark.parametrize("host", ["n1", "n2"])
def test_who_fails_otherwise_after_another_has_failed_only_follows(host: str) -> None:
    """What it says of a peer that is gone has no words of a library: no answer is no JSON."""
    first = gone(1, 1, WRONG, left_at=10.0, host=host)
    ranks = [gone(0, 1, NO_ANSWER, left_at=10.18, host="n1"), first]
    assert find_first_to_fail(ranks) == (1,)


def test_all_that_fail_alike_are_named_however_long_each_took() -> None:
    ranks = [gone(n, 1, WRONG.replace("3", str(n)), left_at=10.0 + n) for n in range(3)]
    assert find_first_to_fail(ranks) == (0, 1, 2)


def test_of_different_errors_at_one_moment_all_are_named() -> None:
    ranks = [gone(0, 1, NO_ANSWER, left_at=10.002), gone(1, 1, WRONG, left_at=10.0)]
    assert find_first_to_fail(ranks) == (0, 1)
    # Clocks of two machines do not tell that.
    far = [gone(0, 1, NO_ANSWER, left_at=10.008, host="n2"), gone(1, 1, WRONG, left_at=10.0)]
    assert find_first_to_fail(far) == (0, 1)


def test_of_failures_whose_time_nobody_knows_all_are_named() -> None:
    assert find_first_to_fail([gone(0, 1, NO_ANSWER), gone(1, 1, WRONG)]) == (0, 1)


@pytest.mark.parametrize(("later", "named"), [(0.2, (0, 1)), (3.0, (1,))])
def test_an_end_without_words_is_noticed_late(later: float, named: tuple[int, ...]) -> None:
    """An error is timed by the rank itself, an end by whoever looks: it may have come first."""
    ranks = [gone(0, 1, left_at=10.0 + later), gone(1, 1, WRONG, left_at=10.0)]
    assert find_first_to_fail(ranks) == named


def test_workers_that_wait_for_their_engine_wait_for_the_one_that_has_ended() -> None:
    """Their engine is no rank, and waits for what that one was to answer: a guess."""
    pair = Socket(9, "unix", peer_pids=(77,), peer_names=("python",))
    frames = ("Connection._recv STD/multiprocessing/connection.py:395", "work engine.py:5")
    pipe = (Descriptor(4, "socket", "socket:[9]", socket=pair),)
    reads = look(*frames, call="read", descriptors=pipe, sockets=(pair,), ppid=77)

    def culprit(*looks: Look) -> tuple[RankId, ...]:
        ranks = [gone(1, 0), *(still(n, one) for n, one in zip((0, 2, 3), looks, strict=True))]
        about = job("late", 4, pipeline="", command=("python", "engine.py"))
        return judge_job(about, sorted(ranks, key=lambda one: one.rank)).ranks.culprit

    assert culprit(reads, reads, reads) == (1,)
    elsewhere = look("load engine.py:9", call="flock", ppid=77)
    assert culprit(reads, reads, elsewhere) != (1,)


VLLM = "RuntimeError: Engine core initialization failed. See root cause above."


@pytest.mark.parametrize("noticed", [10.0, 10.4])
def test_an_engine_that_was_killed_comes_before_what_its_server_says_of_it(noticed: float) -> None:
    """The server may say so before anybody has noticed that the engine is gone."""
    engine = replace(gone(0, -9, left_at=noticed), rank=UnknownRank("n1", 300), title="EngineCore")
    server = replace(
        gone(0, 1, VLLM, left_at=10.2), rank=UnknownRank("n1", 200), title="API server"
    )
    workers = [gone(rank, 0, left_at=10.3) for rank in (0, 1)]
    assert find_first_to_fail([*workers, engine, server]) == (engine.rank,)
    failed = replace(engine, status=1, error="ValueError: no memory")
    assert find_first_to_fail([*workers, failed, server]) == (engine.rank,)
