"""Collectives that do not go together: ranks that call others than their peers, or none."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

from ...base.identity import RankId
from ...base.library_functions import C10D_WRAPPER, GROUP_NOT_GIVEN
from ...base.process_facts import Frame
from ...base.rank_facts import RankFacts
from ...base.words import begin_sentence, format_ranks
from ..collectives.collective_mismatch import (
    GROUP_MAKING_KINDS,
    WRAPPER_KINDS,
    Mismatch,
)
from ..collectives.collective_rounds import starts_over
from ..process.frames import format_frame, frame_owner, unqualified_name
from ..process.public_calls import find_group_wait
from ..standing_ranks import find_short_receiver
from .collective_places import (
    find_logged_mismatch,
    left_a_message_out_by_stacks,
    list_mismatch_values,
    some_stand_apart,
    split_by_stacks,
    stacks_differ,
    threads_stand_apart,
    waits_elsewhere,
)
from .known_cause import Found, KnownCause, Scene, also, need, unless
from .rendezvous import waits_for_agents_at_the_end
from .rounds import left_a_loop_early
from .signs import ended_with, makes_a_group, native_in, raised_before

_LIGHTNING = r"(?:pytorch_lightning|lightning/pytorch)"
_C10D = r"torch/distributed/distributed_c10d\.py"
_MAKES_GROUP = (
    r"new_group|_new_group_with_tag|split_group|new_subgroups\w*|_new_process_group_helper"
)
_WRAPPERS = (
    (r"torch/nn/parallel/distributed\.py", "__init__"),
    (
        r"torch/distributed/fsdp/(?:fully_sharded_data_parallel|_init_utils|_fully_shard/\S+)\.py",
        "",
    ),
)
_SYNCS_PARAMETERS = (
    r"torch/distributed/(?:utils|fsdp/_init_utils)\.py",
    r"_verify_param_shape_across_processes|_sync_module_states|_sync_params_and_buffers"
    r"|_sync_module_params_and_buffers",
)
_ABORTED = (-signal.SIGABRT, 128 + signal.SIGABRT)
# What gloo, NCCL and MPI say where another rank does not do the same, or is gone.
_CONNECTION_LOST = (
    r"[Cc]onnection (?:closed|reset) by peer|(?i:gloo)\b|\bop\.preamble|NCCL error|ncclSystemError"
    r"|ncclRemoteError|message truncated|MPI_ERR_TRUNCATE"
)


def _is_of(found: Mismatch, kinds: frozenset[str]) -> bool:
    return found.operation.kind in kinds


# ---- signs: what the logs of collectives show ----------------------------------------------------


def _a_call_too_many_or_too_few(scene: Scene) -> Found | None:
    """The logs show a collective that only some ranks called."""
    found = find_logged_mismatch(scene, "extra", "skipped")
    if found is None or _is_of(found, GROUP_MAKING_KINDS | WRAPPER_KINDS):
        return None
    return Found(found.sentence, list_mismatch_values(found))


def _below_a_condition(scene: Scene) -> Found | None:
    """The source shows that only some ranks come by that call (`if rank == 0`)."""
    found = find_logged_mismatch(scene, "extra", "skipped")
    split = split_by_stacks(scene) if found is None else None
    if found is not None:  # its sentence has the condition
        return Found("") if found.operation.condition else None
    condition = split.condition if split else ""
    return Found(f"the call stands below `{condition}`") if condition else None


def _another_call_in_its_place(scene: Scene) -> Found | None:
    """The logs show different collectives in the same place: another kind, order, size or group."""
    found = find_logged_mismatch(scene, "different", "order", "shape", "members")
    return None if found is None else Found(found.sentence, list_mismatch_values(found))


def _a_message_left_out(scene: Scene) -> Found | None:
    """A rank waits for a message of another one, or for it to take one, which went on without it:
    logs show it, or what went over their connections.
    """
    found = find_logged_mismatch(scene, "unsent")
    if found is None:
        short = find_short_receiver(scene.ranks, scene.situations)
        words = begin_sentence(str(short)) if short is not None else ""
        if short is None:
            return left_a_message_out_by_stacks(scene)
        return Found(str(short), {"sentence": words}, 0.85)
    return Found(found.sentence, list_mismatch_values(found))


def _a_group_of_some(scene: Scene) -> Found | None:
    """The logs show that only some ranks made a group (new_group)."""
    found = find_logged_mismatch(scene, "extra", "skipped", "different")
    if found is None or not _is_of(found, GROUP_MAKING_KINDS):
        return None
    return Found(found.sentence, list_mismatch_values(found))


def _a_wrapper_of_some(scene: Scene) -> Found | None:
    """The logs show that only some ranks wrapped the model (DDP, FSDP)."""
    found = find_logged_mismatch(scene, "extra", "skipped", "different", "uneven")
    if found is None or not _is_of(found, WRAPPER_KINDS):
        return None
    if found.kind == "uneven" and not starts_over(found, scene.ranks):
        return None
    values = list_mismatch_values(found)
    return Found(str(values["sentence"]), values)


# ---- signs: what the stacks show -----------------------------------------------------------------


def _all_meet(scene: Scene) -> Found | None:
    """All ranks wait for one another in collectives."""
    meeting = [r for r, view in scene.views.items() if find_group_wait(view) is not None]
    if len(meeting) < 2 or len(meeting) < len(scene.living):
        return None
    return Found("all ranks wait in collectives")


def _a_call_of_some(scene: Scene) -> Found | None:
    """Only some ranks called a collective, by the logs; or, by the stacks, are in one below a
    condition by rank, or of the job's own code.
    """
    by_log = _a_call_too_many_or_too_few(scene)
    if by_log is not None or _some_wrap(scene) or _some_make_a_group(scene):
        return by_log
    return some_stand_apart(scene) or threads_stand_apart(scene)


def _called_by_some(scene: Scene) -> Found | None:
    """The logs show that some ranks called a collective less often, or not at all."""
    surer = (_a_call_too_many_or_too_few, left_a_loop_early, _a_group_of_some, _a_wrapper_of_some)
    return next((fact for sign in surer if (fact := sign(scene)) is not None), None)


def _another_root(scene: Scene) -> Found | None:
    """The frames show that ranks take different ranks for the root of one collective."""
    found = scene.disagreement
    if found is None or found.about != "root":
        return None
    return Found(found.sentence, {"sentence": found.sentence})


def _other_members(scene: Scene) -> Found | None:
    """The frames or the logs show that ranks make a group of other members as the same one."""
    found = scene.disagreement
    if found is None or found.about not in ("members", "local", "named", "made"):
        return None
    return Found(found.sentence, {"sentence": found.sentence})


def _unlike_local_groups(scene: Scene) -> Found | None:
    """Ranks wait for one another in groups that their members alone make, of unlike members."""
    found = scene.disagreement
    if found is None or found.about != "local":
        return None
    return Found(found.sentence)


def _make_no_group_together(scene: Scene) -> Found | None:
    """Ranks make groups of other members, or some make one and others do not."""
    found = _other_members(scene) or _some_make_a_group(scene)
    return None if found is None else Found("", found.values)


def _some_make_a_group(scene: Scene) -> Found | None:
    """Some ranks wait in new_group, and others do not."""
    inside = scene.ranks_in(_C10D, _MAKES_GROUP)
    if scene.ranks_in(_C10D, "init_process_group"):
        return None
    return _some(scene, inside, "new_group")


def _some_wrap(scene: Scene) -> Found | None:
    """Some ranks wait where DDP or FSDP is made, and others do not."""
    inside = tuple(r for file, name in _WRAPPERS for r in scene.ranks_in(file, name or r"\w+"))
    return _some(scene, inside, "the making of DDP or FSDP")


def _some(scene: Scene, inside: tuple[RankId, ...], what: str) -> Found | None:
    others = tuple(r.rank for r in scene.living if r.rank not in inside)
    if not inside or not others:
        return None
    who, rest = format_ranks(inside), format_ranks(others)
    words = f"{who} in {what}, {rest} not"
    return Found(words, {"ranks": who, "sentence": f"{begin_sentence(who)} came to {what}"})


def _differ(scene: Scene) -> Found | None:
    """Ranks are in different collectives, by their logs or by their stacks, or take another rank
    for the root of one.
    """
    found = _another_root(scene) or _another_call_in_its_place(scene) or stacks_differ(scene)
    return None if found is None else Found("", found.values)


def _gloo_asks(scene: Scene) -> Found | None:
    """Gloo, in the error of any rank or its last lines: "Is there a distributed collective mismatch
    in your code?" (ProcessGroupGloo, torch 2.13).
    """
    for facts in scene.ranks:
        texts = (facts.error, facts.traceback, *facts.output)
        if any(_GLOO_ASKS in " ".join(text.split()) for text in texts if text):
            return Found(f'rank {facts.rank} wrote "{_GLOO_ASKS}"', {"rank": facts.rank})
    return None


def _ended_by_something_else(scene: Scene) -> Found | None:
    """A rank crashed elsewhere than in that collective: gloo aborts a rank that gets more than it
    has room for, and its peers lose the connection.
    """
    found = scene.mismatch
    if scene.verdict.outcome != "crash":
        return None
    if found is not None and any(_ended_in(found, facts) for facts in scene.culprits):
        return None
    return Found("it ended elsewhere")


def _ended_in(found: Mismatch, facts: RankFacts) -> bool:
    lost = facts.status in _ABORTED or re.search(_CONNECTION_LOST, facts.error) is not None
    logs = (log for log in facts.collectives if log.source == "ring")
    last = [one for log in logs for one in log.operations if one.group == found.group][-1:]
    return lost and any(one.number == found.number for one in last)


def _call_from_two_threads(scene: Scene) -> Found | None:
    """The main thread of a rank and another thread of it stand in collectives, each over the group
    of all ranks: nothing but chance orders these calls.
    """
    found: list[tuple[RankId, str, str]] = []
    for facts in scene.living:
        view = scene.views.get(facts.rank)
        main = view.main if view is not None else None
        mine = _find_call_of_all(main.frames) if main is not None else None
        if view is None or mine is None:
            continue
        others = ((one, _find_call_of_all(one.frames)) for one in view.threads if one is not main)
        told = next(((one, call) for one, call in others if call is not None), None)
        if told is not None:
            name = told[0].name or str(told[0].os_id)
            other = f"its thread {name} in {unqualified_name(told[1].name)}"
            found.append((facts.rank, unqualified_name(mine.name), other))
    if not found:
        return None
    who = format_ranks([rank for rank, _, _ in found])
    words = f"{who} in {found[0][1]}, {found[0][2]}, both over the group of all ranks"
    # Whose thread has not come to its call may be at work, and the calls may be in one order yet.
    return Found(
        words, {"sentence": begin_sentence(words)}, doubtful=len(found) < len(scene.living)
    )


def _find_call_of_all(frames: Sequence[Frame]) -> Frame | None:
    """Return the outermost function of torch.distributed by which a thread stands in a collective
    over the group of all ranks, None where it does not, or where a group was given.
    """
    called, group = None, ""
    for frame in frames:
        if re.search(_C10D, frame.file) is not None:
            called, group = frame, ""
        elif called is not None and frame.file.endswith(C10D_WRAPPER):
            group = dict(frame.locals).get("group", group)
    return called if group == GROUP_NOT_GIVEN else None


def _compares_parameters(scene: Scene) -> Found | None:
    """Some ranks wait where DDP or FSDP compares or copies parameters, and others are past it."""
    return _some(scene, scene.ranks_in(*_SYNCS_PARAMETERS), "the comparison of parameters")


_parameters_differ = ended_with(
    r"DDP expects same model across all ranks[^\n]{0,80}"
    r"|appears not to match (?:sizes|strides) of the same param[^\n]{0,40}",
    "It ended because the model has other parameters than on another rank",
)


def _different_parameters(scene: Scene) -> Found | None:
    """Parameters differ: by torch's own message, or because only some ranks still compare them."""
    return _parameters_differ(scene) or _compares_parameters(scene)


def _asks_the_store(scene: Scene) -> Found | None:
    """A rank waits for a key of the store, outside of any making of a group."""
    wait = scene.verdict.waits_for
    if scene.group == "construction" or wait is None or wait.kind != "store":
        return None
    return _describe_asking(scene, scene.python, "it waits", "it asks")


def _others_ask_the_store(scene: Scene) -> Found | None:
    """All others wait for a key of the store, and it is in a collective."""
    waiting = [r for r in scene.ranks if r.rank in scene.verdict.ranks.waiting]
    waits = [scene.situations.get(r.rank) for r in waiting]
    at_store = [one and one.own_wait and one.own_wait.kind == "store" for one in waits]
    if scene.group != "collective" or not waiting or not all(at_store):
        return None
    view, who = scene.views.get(waiting[0].rank), format_ranks([r.rank for r in waiting])
    frames = [f for f in view.frames if not f.native] if view is not None else []
    several = len(waiting) > 1
    told, asks = (f"{who} wait", f"{who} ask") if several else (f"{who} waits", f"{who} asks")
    return _describe_asking(scene, frames, told, asks)


def _describe_asking(scene: Scene, python: Sequence[Frame], waits: str, asks: str) -> Found:
    own = [f for f in python if frame_owner(f, scene.job.package) in ("user", "step")]
    frame = next(iter(own or python), None)
    where = format_frame(frame) if frame is not None else "unknown code"
    key = _read_key(frame, own[1] if len(own) > 1 else None)
    words = f"{waits} for the store in {where}"
    words = words if key == _A_KEY else f"{words}, for {key}"
    return Found(words, {"place": where, "key": key, "asks": asks})


def _a_key_is_missing(scene: Scene) -> Found | None:
    """A rank waits for a key of the store, outside of any making of a group."""
    return _asks_the_store(scene) or _others_ask_the_store(scene)


_A_KEY = "a key"
_ASKS = re.compile(r"get|wait|check|multi_get|wait_for_key\w*")  # of torch.distributed.Store


def _read_key(frame: Frame | None, caller: Frame | None) -> str:
    """Return in words the keys that a line asks the store for, as its source has them, or the only
    text that the line gives which calls its function.
    """
    if frame is None or not any(_ASKS.fullmatch(one.rpartition(".")[2]) for one in frame.calls):
        return _A_KEY
    name = unqualified_name(frame.name)
    handed = caller is not None and [one.rpartition(".")[2] for one in caller.calls] == [name]
    texts = frame.given or (caller.given if caller is not None and handed else ())
    keys = [f'"{text}"' for text in (texts if frame.given or len(texts) == 1 else ())]
    return f"the key{'s' * (len(keys) > 1)} {', '.join(keys)}" if keys else _A_KEY


_reads_a_key = native_in(
    r"\b(?:TCPStore|Store|PrefixStore|FileStore|HashStore)::(?:get|wait|doWait|doGet|check)\b",
    "It is in the store's get() or wait()",
)

# ---- causes --------------------------------------------------------------------------------------

_GLOO_ASKS = "Is there a distributed collective mismatch in your code?"
_EVERY_RANK = "every rank must call every collective, in the same order, whatever its number"
_PL = "Lightning-AI/pytorch-lightning"

CAUSES = (
    KnownCause(
        id="rank-conditional-collective",
        title="only some ranks call a collective",
        signs=(
            need(_a_call_of_some, 0.5),
            also(_a_call_too_many_or_too_few, 0.8),
            also(_below_a_condition, 0.6),
            also(_all_meet, 0.1),
            unless(raised_before),
        ),
        why="{sentence}. From there on each collective meets a wrong one, and the hang shows "
        "later and elsewhere.",
        avoid=(
            f"take {{call}} out of the condition: {_EVERY_RANK}",
            "mind calls that hide one: trainer.log_dir (a broadcast), save_checkpoint, sync_dist",
        ),
        references=(
            f"{_PL}#18148",
            f"{_PL}#19106",
            "huggingface/transformers-bloom-inference#40",
            "deepspeedai/DeepSpeed#5520",
        ),
    ),
    KnownCause(
        id="collective-mismatch",
        title="ranks call different collectives in the same place",
        signs=(
            need(_differ, 0.5),
            also(stacks_differ, 0.05),
            also(_another_call_in_its_place, 0.6),
            also(_another_root, 0.7),
            also(_all_meet, 0.05),
            unless(_called_by_some),
            unless(some_stand_apart),
            unless(_ended_by_something_else),
            unless(_unlike_local_groups),
            unless(raised_before),
        ),
        why="{sentence}. Collectives meet in the order in which each rank calls them; these do "
        "not fit.",
        avoid=(
            _EVERY_RANK,
            "tensors of the same size and type on all ranks; pad what differs",
            "the same src or dst on all ranks: one decides it, and tells the others",
        ),
        references=(f"{_PL}#19106", "pytorch/pytorch#25390"),
        outcomes=("hang", "interrupted", "crash"),
    ),
    KnownCause(
        id="collectives-in-two-threads",
        title="two threads of a rank call collectives of the same group",
        signs=(
            need(_call_from_two_threads, 0.88),
            unless(waits_elsewhere),
            unless(raised_before),
        ),
        why="{sentence}. Collectives of a group meet in the order in which each rank calls them; "
        "of two threads one comes first here and the other one there.",
        avoid=(
            "a group of its own for the thread: dcp.async_save(..., process_group=dist.new_group("
            "backend='gloo'))",
            "wait for the thread (future.result()) before the next collective of the main thread",
        ),
        references=("KempnerInstitute/KempnerForge#104", "Tencent-Hunyuan/UniRL#410"),
    ),
    KnownCause(
        id="gloo-mismatch",
        title="gloo received data of another size than its collective expects",
        signs=(need(_gloo_asks, 0.85),),
        why="Rank {rank} got data that belong to another collective, or to one of another size: "
        "ranks are not in the same call, or their tensors differ.",
        avoid=(
            _EVERY_RANK,
            "tensors of the same size and type on all ranks; pad what differs",
        ),
        references=("pytorch/pytorch#25390",),
        outcomes=("crash",),
    ),
    KnownCause(
        id="group-on-some-ranks",
        title="not all ranks make the same process group (new_group)",
        signs=(
            need(_make_no_group_together, 0.5),
            also(_some_make_a_group, 0.1),
            also(_other_members, 0.8),
            also(_a_group_of_some, 0.75),
            also(_below_a_condition, 0.6),
            unless(waits_elsewhere),
        ),
        why="{sentence}. new_group waits for all ranks of the job, also for those that will not be "
        "members; with use_local_synchronization for all members that the caller names.",
        avoid=(
            "call new_group on every rank, for all groups, in the same order",
            "dist.new_group(ranks, use_local_synchronization=True): the members alone meet",
        ),
        references=("pytorch/pytorch#25390", "pytorch/pytorch#134314", "pytorch/pytorch#145376"),
    ),
    KnownCause(
        id="ddp-on-some-ranks",
        title="only some ranks wrap the model in DDP or FSDP",
        signs=(
            need(_some_wrap, 0.55),
            also(_a_wrapper_of_some, 0.75),
            also(_below_a_condition, 0.6),
            unless(_parameters_differ),
            unless(waits_elsewhere),
        ),
        why="{sentence}. The making of DDP and FSDP is a collective: it copies the parameters of "
        "rank 0 to all others.",
        avoid=(
            "wrap the model on every rank, or on none",
            _EVERY_RANK,
            "a rank that tries again after an error of its own (find_executable_batch_size, except "
            "around the training): let all agree on it, and try again together",
        ),
        references=("pytorch/pytorch#68803", "pytorch/pytorch#143181"),
    ),
    KnownCause(
        id="different-parameters",
        title="the model has other parameters on some ranks than on others",
        signs=(
            need(_different_parameters, 0.55),
            also(_parameters_differ, 0.85, proves=True),
            unless(waits_elsewhere),
        ),
        why="DDP compares parameters when it is made. Where they differ, the ranks that notice end "
        "or wait, and the others go on to a collective that nobody joins.",
        avoid=(
            "build the same model on every rank: the same vocabulary, no branches by rank",
            "print sum(p.numel() for p in model.parameters()) on every rank before wrapping it",
        ),
        references=("pytorch/pytorch#68803", "pytorch/pytorch#76449"),
        outcomes=("hang", "interrupted", "crash"),
    ),
    KnownCause(
        id="message-left-out",
        title="a rank waits for a message that its peer does not send",
        signs=(need(_a_message_left_out, 0.85), unless(waits_elsewhere)),
        why="{sentence}. Each receive needs a send of the peer, in the same order.",
        avoid=(
            "look for what leaves a send out: a condition, continue, a last batch that is smaller",
            "torch.distributed.batch_isend_irecv: what belongs together is sent together",
        ),
        references=("pytorch/pytorch#172668",),
        outcomes=("hang", "interrupted", "crash"),
    ),
    KnownCause(
        id="store-key-missing",
        title="a rank waits for a key of the store that nobody sets",
        signs=(
            need(_a_key_is_missing, 0.5),
            also(_reads_a_key, 0.4),
            unless(makes_a_group),
            unless(waits_for_agents_at_the_end),
        ),
        why="In {place} {asks} the process group's store for {key}; the rank that was to set it "
        "has not, and the store waits for it until its time limit.",
        avoid=(
            "the rank that sets the key must come by that line: look for a condition before it",
            "store.wait([key], timedelta(seconds=60)): an error that names the key",
        ),
        references=("pytorch/pytorch#134314", "NVIDIA/nccl#708"),
    ),
)
