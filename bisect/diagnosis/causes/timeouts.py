"""What libraries say when they give up waiting for other ranks."""

from __future__ import annotations

import re

from ...base.identity import RankId
from ...base.rank_facts import Collective
from ...base.words import format_ranks
from ..collectives.collective_mismatch import BACKWARD_KINDS, WRAPPER_KINDS, format_call
from .known_cause import Found, KnownCause, Scene, also, need, unless
from .signs import ended_with

_WATCHDOG = (
    r"(?:Watchdog caught collective operation timeout|Collective WorkNCCL)[^\n]{0,40}?"
    r"(?:WorkNCCL)?\((?:SeqNum=(?P<number>\d+), )?OpType=(?P<kind>\w+)"
)
_GAVE_UP = re.compile(
    rf"{_WATCHDOG}|Watchdog caught collective operation timeout"
    r"|Timed out waiting \d+ms for (?:recv|send|\w+) operation"
    r"|Application timeout caused pair closure|Rank \d+ failed to pass monitoredBarrier"
)
# torch tells which key of its store never came, and gloo's keys end in the rank that owes it.
_STORE_KEY = re.compile(r"(?:wait timeout after (?P<ms>\d+)ms, keys: |key: )(?P<key>/?\S+)")
_OWES = re.compile(r"default_pg/\d+//\w+//\d+/(?P<rank>\d+)$|/rank_?(?P<other>\d+)$")
# Others wait for keys of the store as well: a script that asks it, a barrier of its own.
_MAKES_A_GROUP = (
    r"\b(?:init_process_group|_new_process_group_helper|new_group|_store_based_barrier"
    r"|_create_c10d_store|store_based_barrier_key|default_pg)\b"
)
_LOADER = "torch/utils/data/dataloader.py"
_CLIENTS = (
    r"Timed out after (?P<seconds>\d+) seconds waiting for clients\. "
    r"(?P<came>\d+)/(?P<all>\d+) clients joined"
)


def _a_collective_timed_out(scene: Scene) -> Found | None:
    """NCCL's watchdog or gloo gave up waiting for an operation."""
    found = scene.wrote(_GAVE_UP.pattern, scene.ranks)
    if found is None:
        return None
    facts, match = found
    kind = (match.groupdict().get("kind") or "").lower()
    number = match.groupdict().get("number")
    what = f"{kind} number {number}" if kind and number else kind or "an operation"
    return Found(f"rank {facts.rank} gave up waiting for {what}", {"what": what})


def _groups_differ(scene: Scene) -> Found | None:
    """Ranks gave up in different operations."""
    limits = {}
    for facts in scene.ranks:
        found = scene.wrote(_WATCHDOG, [facts])
        if found is not None and found[1]["number"]:
            limits[facts.rank] = (int(found[1]["number"]), found[1]["kind"])
    if len(set(limits.values())) < 2:
        return None
    behind = min(limits, key=lambda rank: limits[rank])
    number, kind = limits[behind]
    return Found(f"rank {behind} is at {kind} number {number}, others are further")


def _the_store_timed_out(scene: Scene) -> Found | None:
    """A key of the store did not come in time, or not all clients did."""
    found = scene.wrote(rf"{_CLIENTS}|wait timeout after \d+ms|Timed out initializing process")
    if found is None:
        return None
    facts, match = found
    key = scene.wrote(_STORE_KEY.pattern, [facts])
    missing = _owed_by(key[1]["key"]) if key else None
    if missing is None and match.groupdict().get("came"):
        missing = f"{int(match['all']) - int(match['came'])} of {match['all']} ranks"
    words = f" ({missing} did not come)" if missing else ""
    return Found(
        f"rank {facts.rank} gave up waiting in the store{words}",
        {"missing": missing or "a rank", "rank": facts.rank},
    )


def _where_groups_are_made(scene: Scene) -> Found | None:
    """It did so where a process group is made."""
    found = scene.wrote(_MAKES_A_GROUP)
    return None if found is None else Found(f"its traceback names {found[1][0]}")


def _owed_by(key: str) -> str | None:
    match = _OWES.search(key.rstrip(".,)'\""))
    rank = (match["rank"] or match["other"]) if match else None
    return None if rank is None else f"rank {rank}"


_no_store_reached = ended_with(
    r"client socket has (?:timed out after [^\n]{1,20}while trying to connect"
    r"|failed to connect)[^\n]{0,10} to (?:any network address of )?\(?(?P<where>[^\s)]+,? ?\d*)",
    "It could not reach the store",
)
_peer_is_gone = ended_with(
    r"[Cc]onnection (?:was )?(?:likely )?(?:closed|reset) by peer|closed by peer"
    r"|remote process exited|[Bb]roken pipe|socketPollConnect|recv\w* (?:0|zero) bytes",
    "Its connection to another rank was closed",
)


def _last_call(scene: Scene) -> Collective | None:
    """Return the operation in which the first culprit failed, as its own log has it."""
    for facts in scene.culprits:
        logs = [log for log in facts.collectives if log.source == "ring"]
        found = [one for log in logs for one in log.operations if one.group]
        if found:
            return max(found, key=lambda one: one.at)
    return None


def _somebody_was_done(scene: Scene) -> Found | None:
    """Another rank had ended before, without an error."""
    first = min((r.left_at for r in scene.culprits if r.left_at is not None), default=None)
    done = tuple(
        r.rank
        for r in scene.ranks
        if (r.finished or r.status == 0)
        and not r.error
        and (first is None or r.left_at is None or r.left_at <= first)
        and r not in scene.culprits
    )
    if not done:
        return None
    last = _last_call(scene)
    call = format_call(last) if last is not None else "the call in which that one failed"
    values = {"done": done[0], "call": call, "remedy": _say_who_must_come(last, call, done[0])}
    return Found(f"{format_ranks(done)} had ended before", values)


def _say_who_must_come(last: Collective | None, call: str, done: RankId) -> str:
    every = "every rank must call every collective, in the same order, whatever its number"
    if last is not None and last.condition:
        return f"take {call} out of `{last.condition}`: {every}"
    return f"look why rank {done} does not come to {call}: {every}"


def _below_a_condition(scene: Scene) -> Found | None:
    """The source shows that only some ranks come by the call in which it failed."""
    last = _last_call(scene)
    if last is None or not last.condition:
        return None
    return Found(f"that call stands below `{last.condition}`")


def _batches_are_in_play(scene: Scene) -> Found | None:
    """The job trains on batches: a model was wrapped or backward called, or a DataLoader is in the
    stack of a rank.
    """
    logs = (log for facts in scene.ranks for log in facts.collectives if log.source == "ring")
    kinds = {one.kind for log in logs for one in log.operations}
    if kinds & (BACKWARD_KINDS | WRAPPER_KINDS):
        return Found("the job trains a model")
    frames = (
        f for facts in scene.ranks for look in facts.looks for t in look.threads for f in t.frames
    )
    files = (*(facts.traceback for facts in scene.ranks), *(frame.file for frame in frames))
    return Found("it reads a DataLoader") if any(_LOADER in one for one in files) else None


def _is_about_batches(scene: Scene) -> Found | None:
    """It trains on batches, and no condition of the script's keeps ranks from that call."""
    return None if _below_a_condition(scene) is not None else _batches_are_in_play(scene)


def _somebody_failed(scene: Scene) -> Found | None:
    """Another rank failed by itself."""
    others = [r for r in scene.ranks if r.error and r not in scene.culprits]
    return Found(f"rank {others[0].rank} failed too") if others else None


CAUSES = (
    KnownCause(
        id="collective-timed-out",
        title="a library gave up waiting for other ranks in a collective",
        signs=(need(_a_collective_timed_out, 0.8, proves=True), also(_groups_differ, 0.4)),
        why="A rank waited for {what} until the group's time-out, and then ended the job. It is a "
        "hang with a time limit; whoever did not come to the operation is the cause.",
        avoid=(
            "watch it with a shorter limit than the library's: then it can be seen who is missing",
            "init_process_group(timeout=...) longer, where the others were only slow",
        ),
        references=(
            "pytorch/pytorch#118369",
            "NVIDIA/Megatron-LM#1207",
            "pytorch/gloo#511",
            "Lightning-AI/pytorch-lightning#19448",
        ),
        outcomes=("crash",),
    ),
    KnownCause(
        id="store-timed-out",
        title="a rank gave up waiting for the others where the process group is made",
        signs=(need(_the_store_timed_out, 0.65, proves=True), also(_where_groups_are_made, 0.6)),
        why="{missing} did not come until the store's time-out.",
        avoid=(
            "find out what {missing} did instead: it may have ended early, hang, or never started",
            "WORLD_SIZE must be the number of processes that are started",
            "init_process_group(timeout=...) longer, where it was only slow",
        ),
        references=("NVIDIA/nccl#708", "facebookresearch/fairseq#4082"),
        outcomes=("crash",),
    ),
    KnownCause(
        id="store-not-reached",
        title="a rank gave up connecting to the store",
        signs=(need(_no_store_reached, 0.85, proves=True),),
        why="Nobody answered at {where}: rank 0 was not there, or cannot be reached from here.",
        avoid=(
            "look at rank 0: did it start, and does it listen at MASTER_PORT?",
            "MASTER_ADDR=<an address of node 0 that this node reaches>",
        ),
        references=("pytorch/pytorch#67547", "pytorch/pytorch#150532"),
        outcomes=("crash",),
    ),
    KnownCause(
        id="peer-ended-early",
        title="a rank was done before another one that still wanted to meet it",
        signs=(
            need(_peer_is_gone, 0.4),
            need(_somebody_was_done, 0.55),
            also(_below_a_condition, 0.4),
            unless(_somebody_failed),
            unless(_is_about_batches),
        ),
        why="Rank {done} ended while another still wanted to meet it in {call}; its end closed the "
        "connection. With NCCL, or if it had stayed, this would be a hang.",
        avoid=("{remedy}",),
        references=("https://docs.pytorch.org/docs/stable/distributed.html#collective-functions",),
        outcomes=("crash",),
    ),
    KnownCause(
        id="peer-out-of-batches",
        title="a rank was done before the others: they have not the same number of batches",
        signs=(
            need(_peer_is_gone, 0.4),
            need(_somebody_was_done, 0.55),
            need(_is_about_batches, 0.1),
            unless(_somebody_failed),
        ),
        why="Rank {done} ended while another still wanted to meet it in {call}; its end closed the "
        "connection. With NCCL, or if it had stayed, this would be a hang.",
        avoid=(
            "the same number of batches on every rank: drop_last=True, or a DistributedSampler",
            "torch.distributed.algorithms.Join: early ranks shadow the others, at some cost",
        ),
        references=(
            "Lightning-AI/pytorch-lightning#9851",
            "Lightning-AI/pytorch-lightning#20404",
            "Lightning-AI/litData#129",
        ),
        outcomes=("crash",),
    ),
)
