"""What a person reads when a job ended."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hangbisect import commands
from hangbisect.base.checkpoints import Checkpoint
from hangbisect.base.identity import UnknownRank
from hangbisect.base.process_facts import Frame, Look, Thread
from hangbisect.base.rank_facts import JobFacts, RankFacts, SlowStep
from hangbisect.base.verdict_facts import (
    Cause,
    CheckpointPlace,
    Edge,
    NodeDifference,
    NodeSeen,
    NodesWithValue,
    Ranks,
    Seconds,
    Try,
    Verdict,
    Wait,
    Where,
)
from hangbisect.diagnosis.wait_graph import WaitGraph
from hangbisect.report.rows import format_good_run, word_good_run
from hangbisect.report.terminal import culprit_stack, replay_verdict, slow_line, verdict_lines
from hangbisect.report.verdict_rows import MOST_LINES

TABLE = (Checkpoint("wandb_logger", "WandbLogger ready", "wandb", 60, number=9),)
FRAMES = (
    Frame("Condition.wait", "/usr/lib/python3.11/threading.py", 327),
    Frame("init", "/v/site-packages/wandb/sdk/wandb_init.py", 1536),
    Frame("main", "/home/ada/train.py", 88),
)
LOOK = Look(
    at=10.0,
    pid=4711,
    ppid=1,
    name="python",
    command=("python", "train.py"),
    age=50.0,
    state="S",
    rung="py-spy",
    threads=(Thread(4711, "MainThread", False, False, FRAMES),),
)
JOB = JobFacts(
    ended="late",
    pipeline="startup",
    command=("torchrun", "-m", "bisect"),
    attempt=0,
    world_size=4,
    local_ranks=(0, 1, 2, 3),
    table=TABLE,
    now=100.0,
    started=9.0,
    package="/v/site-packages/hangbisect",
)
VERDICT = Verdict(
    outcome="hang",
    pipeline="startup",
    command=JOB.command,
    attempt=0,
    world_size=4,
    checkpoint=CheckpointPlace(9, "wandb_logger", "WandbLogger ready"),
    ranks=Ranks(culprit=(1,), stuck=(1,), waiting=(0, 2, 3)),
    where=(Where(1, "n03", 4711, None, "wandb: Logged in as: ada", 60.2),),
    component="wandb",
    call="wandb.init",
    waits_for=Wait("process", "127.0.0.1:18080 ESTABLISHED", 4899, "wandb-core"),
    try_=(Try("wandb", "offline", "torchrun -m bisect --wandb offline"),),
    seen_by="py-spy",
    seconds=Seconds(91.0),
)


def facts(rank: int, **more: object) -> RankFacts:
    values: dict[str, object] = {
        "rank": rank,
        "local_rank": rank,
        "pid": 4711,
        "host": "n03",
        "reached": 8,
        "held": rank != 1,
        "phase": None,
        "entered": 20.0,
        "last_line": "wandb: Logged in\x1b[0m as:\nada",
        "last_line_at": 40.0,
        "announced": "",
        "alive": True,
        "left": False,
        "status": None,
        "error": "",
        "finished": False,
        "looks": (LOOK, LOOK) if rank == 1 else (),
    }
    return RankFacts(**{**values, **more})  # type: ignore[arg-type]  # by name


RANKS = [facts(r) for r in range(4)]
GRAPH = WaitGraph((), (), ())


def said(
    verdict: Verdict = VERDICT,
    ranks: Sequence[RankFacts] = RANKS,
    width: int | None = None,
    not_exercised: Sequence[str] = (),
    slowest: str = "",
) -> list[str]:
    if verdict.outcome == "ok":
        well = word_good_run(verdict, not_exercised, slowest, "runs/a1")
        return format_good_run(well, width)
    return verdict_lines(verdict, JOB, ranks, run_dir="runs/a1", state="ended", width=width)


def test_a_hang_is_told_in_the_order_in_which_a_person_asks() -> None:
    assert said() == [
        "HANG  checkpoint 9 WandbLogger ready            91 s after start, 4 ranks",
        "culprit   rank 1 n03 pid 4711 in wandb.init, waits for its child wandb-core (4899)",
        "          127.0.0.1:18080 ESTABLISHED",
        "waiting   ranks 0,2-3 at our barrier: not at fault",
        "cause     unknown",
        "stack     threading.py:327 wait < wandb_init.py:1536 init < train.py:88 main",
        'last line rank 1, 60 s ago: "wandb: Logged in [0m as: ada"',
        "seen by   py-spy and /proc on 1 of 4 ranks, 2 looks in 0.0 s, nothing moved",
        "try       torchrun -m bisect --wandb offline",
        "prove it  about 12 starts of up to 91 s: hangbisect isolate -- torchrun -m bisect",
        "job       ended",
        "report    runs/a1/report.md: paste it into an issue",
    ]


def test_what_libraries_say_stands_below_the_advice() -> None:
    notes = (
        "NCCL RAS: communicator 0x1f of 8 has begun 41 AllReduce, but rank 3: 40",
        "not there, and whether ever started is not known: rank 7",
        "vLLM says on rank 0 (at 11:25:53): No available shared memory broadcast block",
        "NCCL warns on rank 2: NET/IB : Got async event : port error",
    )
    lines = said(replace(VERDICT, notes=notes, said=(notes[0], *notes[2:])))
    after = lines[lines.index("try       torchrun -m bisect --wandb offline") + 1 :]
    assert after[:2] == [
        "says      NCCL RAS: communicator 0x1f of 8 has begun 41 AllReduce, but rank 3: 40",
        "says      vLLM says on rank 0 (at 11:25:53): No available shared memory broadcast block "
        "(and 1 more in verdict.json)",
    ]
    noted = [line for line in lines if line.startswith("note ")]
    assert noted == ["note      not there, and whether ever started is not known: rank 7"]


def test_what_is_noted_is_told_up_to_two_sentences_and_nothing_twice() -> None:
    notes = ("n3 (rank 2) is not seen", "NCCL is slow", "one", "two", "3 ranks are starting")
    told = replace(VERDICT, notes=notes, said=("NCCL is slow",))
    job = replace(JOB, starting="3 ranks are starting")
    lines = verdict_lines(told, job, [], run_dir="runs/a1", state="ended")
    assert [line for line in lines if line.startswith("note ")] == [
        "note      n3 (rank 2) is not seen",
        "note      one (and 1 more in verdict.json)",
    ]


def test_whether_ranks_are_at_our_barrier_is_not_made_up_where_a_verdict_is_all_there_is() -> None:
    script = replace(VERDICT, pipeline="")
    assert not [line for line in replay_verdict(script, "runs/a1") if "at our barrier" in line]
    assert [line for line in replay_verdict(VERDICT, "runs/a1") if "0,2-3 at our barrier" in line]


def test_what_launchers_do_not_agree_about_is_said_below_what_they_wait_for() -> None:
    note = "--rdzv-id is exp41 on n1 and exp14 on n3"
    lines = said(replace(VERDICT, component="launcher", notes=(note,)))
    assert lines.index(f"nodes     {note}") < lines.index("cause     unknown")
    assert f"nodes     {note}" not in said(replace(VERDICT, notes=(note,)))


@pytest.mark.parametrize(
    ("command", "is_whole"),
    [
        ("torchrun --nnodes=2 --node-rank=1 train.py", False),
        ("python -m torch.distributed.run --nnodes 2:4 train.py", False),
        ("accelerate launch --num_machines 2 train.py", False),
        ("torchrun --nnodes=1:4 train.py", True),
        ("deepspeed --num_nodes 2 train.py", True),
        ("srun --nodes=2 torchrun --nnodes=2 train.py", True),
        ("mpirun -n 4 python train.py --nnodes=2", True),
    ],
)
def test_what_starts_one_node_of_several_proves_nothing_here(command: str, is_whole: bool) -> None:
    lines = said(replace(VERDICT, command=tuple(command.split())))
    assert any(line.startswith("prove it") for line in lines) is is_whole


@pytest.mark.parametrize(
    ("command", "is_whole"), [("python train.py", False), ("srun --nodes=2 python train.py", True)]
)
def test_what_each_node_starts_for_itself_proves_nothing_on_one(
    command: str, is_whole: bool
) -> None:
    """Other nodes have told of their ranks, and the command names no node."""
    told = tuple(NodeSeen(name, True, (number,)) for number, name in enumerate(("n1", "n2")))
    lines = said(replace(VERDICT, command=tuple(command.split()), nodes=told))
    assert any(line.startswith("prove it") for line in lines) is is_whole


def test_what_nodes_do_not_have_in_common_is_a_row() -> None:
    usual = NodesWithValue("2.28.9", tuple(f"n{n}" for n in range(8)), 63)
    other = NodesWithValue("2.27.5", ("n63",), 1)
    unset = NodesWithValue("", ("n1", "n2", "n3", "n4"), 4)
    found = (
        NodeDifference("NCCL", (usual, other)),
        NodeDifference("NCCL_IB_DISABLE", (replace(usual, value="1"), unset)),
        NodeDifference("driver", (usual, other)),
        NodeDifference("torch", (usual, other)),
    )
    lines = said(replace(VERDICT, differences=found))
    at = next(n for n, line in enumerate(lines) if line.startswith("differs"))
    assert lines[at : at + 4] == [
        "differs   NCCL: 2.28.9 on n0, n1, n2 and 60 more, 2.27.5 on n63",
        "          NCCL_IB_DISABLE: 1 on n0, n1, n2 and 60 more, not set on n1, n2, n3 and 1 more",
        "          driver: 2.28.9 on n0, n1, n2 and 60 more, 2.27.5 on n63",
        "          and 1 more thing in verdict.json",
    ]
    assert not any(line.startswith("differs") for line in said())


def test_a_terminal_cuts_long_lines_and_a_pipe_does_not() -> None:
    assert max(map(len, said(width=40))) == 40
    assert max(map(len, said())) > 40


def test_no_verdict_is_longer_than_a_screen() -> None:
    cause = Cause("x", "The server never answers", "Because.", "fits", ("socket silent",))
    full = replace(
        VERDICT,
        cause=cause,
        ranks=Ranks((1,), (1, 2), (0,), (3,), (4,)),
    )
    lines = said(replace(full, chain=(*CHAIN[:3], *RING)))
    assert len(lines) <= MOST_LINES
    assert lines[-2:] == ["job       ended", "report    runs/a1/report.md: paste it into an issue"]
    assert any("  fits  docs/causes/x.md" in line for line in lines)
    assert any(line.startswith("missing") for line in lines)


CHAIN = (
    Edge("rank 0", "our barrier after checkpoint 9", "rank", "it is held"),
    Edge("our barrier after checkpoint 9", "rank 1", "rank", "rank 1 is not there"),
    Edge("rank 1", "process 4899", "process", "futex in Condition.wait (threading.py:327)"),
    Edge("process 4899", "10.0.0.9:3128", "socket", "(https_proxy) ESTABLISHED, 0 bytes in 60 s"),
)
RING = (
    Edge("rank 1", "lock /x.lock", "lock", "flock in f (x.py:1)"),
    Edge("lock /x.lock", "rank 0", "lock", "python (4700) has it"),
    Edge("rank 0", "collective all_reduce", "collective", "all_reduce (x.py:2)"),
    Edge("collective all_reduce", "rank 1", "rank", "rank 1 is not there"),
)


def test_culprits_that_wait_for_different_things_have_a_row_each() -> None:
    first = replace(VERDICT.where[0], call="wandb.init", waits_for=VERDICT.waits_for)
    pipe = Wait("pipe", "p, the other end is not open", what="p")
    others = [Where(r, "n03", 4800 + r, None, "", None, "open", pipe) for r in (2, 3)]
    several = replace(
        VERDICT,
        ranks=Ranks(culprit=(1, 2, 3), stuck=(1, 2, 3), waiting=(0,)),
        where=(first, *others),
    )
    assert said(several)[1:4] == [
        "culprit   rank 1 n03 pid 4711 in wandb.init, waits for its child wandb-core (4899)",
        "          127.0.0.1:18080 ESTABLISHED",
        "culprit   ranks 2-3 n03 pid 4802 and 1 more in open, waits for a pipe",
    ]
    two = replace(several, call="open", waits_for=pipe)
    assert said(two)[1].startswith("culprit   ranks 2-3 n03 pid 4802")
    assert any("last line rank 2" in line for line in said(two))
    alike = replace(several, where=(first, *(replace(first, rank=r) for r in (2, 3))))
    assert [line for line in said(alike) if line.startswith("culprit")] == [
        "culprit   ranks 1-3 n03 pid 4711 and 2 more in wandb.init, waits for its child "
        "wandb-core (4899)"
    ]


def test_what_the_culprit_waits_for_is_followed_to_its_end() -> None:
    assert said(replace(VERDICT, chain=CHAIN))[1:3] == [
        "culprit   rank 1 n03 pid 4711 in wandb.init, waits for its child wandb-core (4899)",
        "          4899 -> 10.0.0.9:3128 (https_proxy) ESTABLISHED, 0 bytes in 60 s",
    ]


def test_a_deadlock_is_told_edge_by_edge() -> None:
    wait = Wait("lock", "/x.lock", 4700, "python", 0)
    lines = said(replace(VERDICT, chain=RING, waits_for=wait, call="fcntl.flock"))
    assert lines[2:4] == [
        "          rank 1 -> lock /x.lock (flock in f (x.py:1)), python (4700) has it",
        "          rank 0 -> collective all_reduce (all_reduce (x.py:2)), rank 1 is not there",
    ]


def test_a_wait_that_leads_nowhere_is_told_as_it_is() -> None:
    asleep = Edge("rank 1", "the end of a sleep", "sleep", "clock_nanosleep in f (x.py:1)")
    wait = Wait("sleep", "clock_nanosleep in f (x.py:1)")
    lines = said(replace(VERDICT, chain=(asleep,), waits_for=wait))
    assert lines[2] == "          clock_nanosleep in f (x.py:1)"


def test_one_that_waits_in_a_collective_is_said_to() -> None:
    meets = (Edge("rank 0", "collective all_reduce", "collective", "f (x.py:1)"), *CHAIN[2:])
    ranks = [facts(r, held=False) for r in range(4)]
    one = replace(VERDICT, ranks=Ranks((1,), (1,), (0,)), chain=meets)
    assert "waiting   rank 0 in all_reduce for rank 1: not at fault" in said(one, ranks)
    many = replace(VERDICT, chain=meets)
    assert "waiting   ranks 0,2-3, rank 0 in all_reduce for rank 1: not at fault" in said(
        many, ranks
    )


def test_a_cause_has_its_page_and_what_it_rests_on_and_its_advice_comes_first() -> None:
    cause = Cause("stale-build-lock", "a title", "Because.", "fits", ("a fact",), ("rm x",))
    lines = said(replace(VERDICT, cause=cause))
    assert f"{'cause     a title':<72}  fits  docs/causes/stale-build-lock.md" in lines
    assert "because   a fact" in lines
    assert "try       rm x" in lines
    by_toggle = replace(cause, id="service-silent")  # one that a toggle avoids
    assert "try       torchrun -m bisect --wandb offline" in said(replace(VERDICT, cause=by_toggle))


def test_what_the_culprit_wrote_last_stands_below_its_last_line() -> None:
    ranks = [
        facts(r, output=("hub: first", "hub: Retrying in 8s") if r == 1 else ()) for r in range(4)
    ]
    lines = said(ranks=ranks)
    at = lines.index('wrote     rank 1: "hub: Retrying in 8s"')
    assert lines[at - 1].startswith("last line")


def test_a_crash_shows_what_was_raised_and_where_from() -> None:
    crash = replace(
        VERDICT,
        outcome="crash",
        ranks=Ranks(culprit=(1,), dead=(0, 1)),
        waits_for=None,
        call=None,
        try_=(),
    )
    dead = [facts(0, status=-15, left=True), facts(1, error="ValueError: no", left=True, status=1)]
    lines = said(crash, ranks=dead)
    assert lines[0].startswith("CRASH  checkpoint 9")
    assert lines[1] == "culprit   rank 1 n03 pid 4711 ended by ValueError: no"
    assert "ended     rank 0, afterwards or because of it" in lines


def test_what_started_the_ranks_goes_by_its_title() -> None:
    above = UnknownRank("n03", 4700)
    api = UnknownRank("n03", 4600)
    crash = replace(
        VERDICT,
        outcome="crash",
        ranks=Ranks(culprit=(above,), dead=(0, 1, above, api)),
        waits_for=None,
        call=None,
        try_=(),
    )
    engine = {"left": True, "status": -9, "pid": 4700, "title": "EngineCore"}
    server = {"left": True, "status": 1, "pid": 4600, "title": "API server"}
    dead = [
        *(facts(rank, status=0, left=True) for rank in (0, 1)),
        replace(facts(0, **engine), rank=above),
        replace(facts(0, **server), rank=api),
    ]
    lines = said(crash, ranks=dead)
    assert lines[1] == "culprit   EngineCore n03 pid 4700 ended by signal 9"
    assert "ended     ranks 0-1, with status 0" in lines
    assert "ended     API server, afterwards or because of it" in lines


def test_who_moves_in_a_slow_job_is_called_no_culprit() -> None:
    """`ranks.culprit` of a slow job is who moves (docs/reference/verdict.md), not at fault."""
    lines = said(replace(VERDICT, outcome="slow"))
    assert lines[1].startswith("moves     rank 1 n03 pid 4711 in wandb.init")
    assert not any("culprit" in line for line in lines)
    nobody = replace(VERDICT, outcome="slow", ranks=Ranks(), waits_for=None, where=())
    assert said(nobody)[1] == "moves     none that can be named"


def test_who_stands_still_beside_busy_ranks_is_not_said_to_move() -> None:
    """Ranks that spin in a native call, as for a GPU, may wait for the one that stands still."""
    slow = replace(VERDICT, outcome="slow")
    ranks = [facts(number, busy=number != 1) for number in range(4)]
    assert said(slow, ranks=ranks)[1].startswith("still     rank 1 n03 pid 4711 in wandb.init")
    ranks[1] = replace(ranks[1], moved="its CPU time")
    assert said(slow, ranks=ranks)[1].startswith("moves     rank 1")


def test_a_rank_that_left_early_is_said_to_have() -> None:
    left = replace(VERDICT, ranks=Ranks(culprit=(1,), waiting=(0,), dead=(1,)), waits_for=None)
    lines = said(left, ranks=[facts(0), facts(1, left=True, status=0)])
    assert lines[1].endswith("left early, with status 0")


def test_of_a_rank_that_is_gone_only_what_is_known_is_said() -> None:
    left = replace(VERDICT, ranks=Ranks(culprit=(1,), waiting=(0,), dead=(1,)), waits_for=None)
    lines = said(left, ranks=[facts(0), replace(facts(1, left=True), pid=None)])
    assert lines[1] == "culprit   rank 1 is gone"


def test_an_interruption_that_is_nobodys_fault_says_so() -> None:
    nobody = replace(VERDICT, outcome="interrupted", ranks=Ranks(), waits_for=None, where=())
    assert said(nobody)[1] == "culprit   none seen"


def test_a_good_run_says_what_it_did_not_exercise() -> None:
    late = SlowStep(5, "model", None, (0,), 40.0, 30.0, "reads x")
    well = replace(
        VERDICT,
        outcome="ok",
        checkpoint=None,
        ranks=Ranks(),
        seconds=Seconds(7.9),
        slow_steps=(late,),
    )
    lines = said(
        well,
        not_exercised=["W&B online (no account)", "a GPU"],
        slowest="4 Tokenizer loaded 3.4 s (imports 3.3 s)",
    )
    assert lines == [
        "OK  startup, 4 ranks, 7.9 s; slowest step 4 Tokenizer loaded 3.4 s (imports 3.3 s)",
        "    late: step 5 model took 40 s, allowed 30 s, rank 0",
        "    not exercised: W&B online (no account), a GPU",
        "    report: runs/a1",
        "    your own job: hangbisect run -- <the command you use today>",
    ]


def test_no_command_that_does_not_exist_is_advertised() -> None:
    advertised = {word for line in said() for word in re.findall(r"hangbisect (\w+)", line)}
    assert advertised <= set(commands.names())
    assert "isolate" in advertised


def test_a_slow_step_gets_a_line_that_says_what_moves() -> None:
    assert slow_line(TABLE, RANKS, 1, "reads x at 41 MiB/s", 160.0) == (
        "SLOW  checkpoint 9 WandbLogger ready   rank 1, 140 s: reads x at 41 MiB/s; "
        "ranks 0,2-3 wait"
    )


def test_a_log_gets_the_culprits_stack_but_not_all_of_a_long_one() -> None:
    stack = culprit_stack(RANKS, VERDICT, GRAPH, limit=40)
    assert any("Condition.wait (threading.py:327)" in line for line in stack)
    short = culprit_stack(RANKS, VERDICT, GRAPH, limit=5)
    assert len(short) == 5
    assert short[-1].startswith("(")
