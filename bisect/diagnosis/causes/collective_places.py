"""Signs of collectives that do not go together, as far as stacks and the source around them show:
ranks in different calls, and those in a call that others do not come by.
"""

from __future__ import annotations

from ...base.identity import RankId, name_rank
from ...base.process_facts import Frame
from ...base.verdict_facts import WaitKind
from ...base.words import AWAITED, begin_sentence, format_ranks
from ..collectives.collective_mismatch import Mismatch, MismatchKind
from ..collectives.common_path import (
    CollectivePlace,
    PlaceSplit,
    describe_places,
    list_differing_calls,
    split_by_loop,
    split_places,
)
from ..process.frames import unqualified_name
from ..process.public_calls import find_group_call, find_group_wait
from .known_cause import Found, LooksFor, Scene, describe_sign

# Who waits for one of these has not come to the collective yet, and may well be about to.
_NOT_OF_PEERS = frozenset(
    [
        *("socket", "store", "process", "file", "pipe", "input", "gil", "kernel", "stopped"),
        *("sleep", "thread", "lock"),
    ]
)


def find_logged_mismatch(scene: Scene, *kinds: MismatchKind) -> Mismatch | None:
    """Return the mismatch that the logs show, if it is of these kinds and a culprit is in it."""
    found = scene.mismatch
    if found is None or found.kind not in kinds:
        return None
    culprits = set(scene.verdict.ranks.culprit)
    return found if not culprits or culprits & set(found.ranks) else None


def list_mismatch_values(found: Mismatch) -> dict[str, object]:
    """Return what the sentences of causes say of a mismatch."""
    place = f" ({found.operation.site})" if found.operation.site else ""
    sentence = found.sentence.removesuffix(" (uneven batches?)")
    return {
        "sentence": begin_sentence(sentence),
        "ranks": format_ranks(found.ranks),
        "call": f"{found.operation.kind}{place}",
        "condition": found.operation.condition or "a condition",
    }


def waits_elsewhere(scene: Scene) -> Found | None:
    """The culprit waits for something of its own: a server, a program, a file, a lock, a sleep."""
    wait = scene.verdict.waits_for
    meets = scene.group in ("construction", "collective")
    if wait is None or meets or wait.kind not in _NOT_OF_PEERS:
        return None
    if not any(facts.looks for facts in scene.culprits):
        return None
    return Found(f"it waits for {AWAITED[wait.kind]}")


def waits_elsewhere_but(*kinds: WaitKind) -> LooksFor:
    """Return a sign: as `waits_elsewhere`, but for waits of these kinds."""

    @describe_sign("The culprit waits for something of its own: a file, a program, a lock, a sleep")
    def looks_for(scene: Scene) -> Found | None:
        wait = scene.verdict.waits_for
        return None if wait is None or wait.kind in kinds else waits_elsewhere(scene)

    return looks_for


def stacks_differ(scene: Scene) -> Found | None:
    """The stacks show ranks in different collectives at the same time, which the job's own code
    calls in different lines.
    """
    # Where the culprit waits for something of its own they only got differently far without it: a
    # broadcast lets some ranks go before all have come.
    if waits_elsewhere(scene) is not None:
        return None
    places = list_differing_calls(scene.collective_places, with_groups=True)
    if not places:
        return None
    is_one = len({place.call for place in places}) == 1
    words = ", ".join(
        f"rank {place.rank} in {place.words}{_name_group(place) if is_one else ''}"
        for place in places[:4]
    )
    return Found(words, {"sentence": begin_sentence(words)})


def _name_group(place: CollectivePlace) -> str:
    return {"given": " over a group of some", "default": " over all ranks"}.get(place.group, "")


def split_by_stacks(scene: Scene) -> PlaceSplit | None:
    """Return who is in a call that others do not come by, where no log tells and one side is to
    blame. That one rank went round less often is no more than where the logs part: a call too many
    within a round looks so as well.
    """
    places, culprits = scene.collective_places, {*scene.verdict.ranks.culprit}
    logged = scene.mismatch
    if len(places) < len(scene.living) or (logged is not None and logged.kind != "uneven"):
        return None
    split = split_places(places)
    if split is None or not split.is_clear or {one.rank for one in split.few} != culprits:
        return None
    return split


def left_a_loop_by_stacks(scene: Scene) -> Found | None:
    """The stacks show that the culprits are through with a loop of the job's own in which all
    others still are; no log tells more.
    """
    places, culprits = scene.collective_places, {*scene.verdict.ranks.culprit}
    if scene.mismatch is not None or len(places) < len(scene.living):
        return None
    split = split_by_loop(places)
    if split is None or {one.rank for one in split.around} != culprits:
        return None
    through, inside = describe_places(split.around), describe_places(split.inside)
    words = f"{through}, behind a loop that others are still in: {inside}"
    return Found(words, {"sentence": begin_sentence(words)}, doubtful=True)


def some_stand_apart(scene: Scene) -> Found | None:
    """The stacks show some ranks in a call below a condition by rank, or of the job's own code,
    and all others in one of the library around it; no log tells more.
    """
    split = split_by_stacks(scene)
    if split is None:
        return None
    words = f"{describe_places(split.inside)}, {describe_places(split.around)}"
    values = {"sentence": begin_sentence(words), "call": split.inside[0].words}
    return Found(words, values)


def left_a_message_out_by_stacks(scene: Scene) -> Found | None:
    """The stacks show a rank that waits for a message of another one, which stands in a collective
    of all ranks; no log tells more.
    """
    if scene.mismatch is not None:
        return None
    places = {place.rank: place for place in scene.collective_places}
    for rank, found in sorted(scene.situations.items(), key=lambda one: str(one[0])):
        transfer = found.transfer
        peer = places.get(transfer.peer) if transfer is not None and transfer.receives else None
        if peer is not None and peer.group == "default":
            who = f"{name_rank(rank)} waits for a message of {name_rank(peer.rank)}"
            words = f"{who}, which is in {peer.words} and waits there for all ranks"
            return Found(words, {"sentence": begin_sentence(words)}, doubtful=True)
    return None


def threads_stand_apart(scene: Scene) -> Found | None:
    """The stacks show some ranks that wait for a thread of theirs, which is in a collective, and
    all others in collectives of their main threads alone; no log tells more.
    """
    if scene.mismatch is not None or len(scene.views) < len(scene.living):
        return None
    inside: dict[RankId, tuple[str, str]] = {}
    for rank, view in scene.views.items():
        calls = [
            (outer, thread.name or str(thread.os_id))
            for thread in view.threads
            if thread is not view.main and (outer := _find_outermost_collective(thread.frames))
        ]
        if find_group_wait(view) is None and calls:
            inside[rank] = calls[0]
        elif find_group_wait(view) != "collective" or calls:
            return None
    if not inside or len(inside) == len(scene.views) or len({*inside.values()}) > 1:
        return None
    call, thread = next(iter(inside.values()))
    rest = format_ranks([rank for rank in scene.views if rank not in inside])
    words = f"{format_ranks([*inside])} in {call}, in thread {thread}, {rest} not"
    return Found(words, {"sentence": begin_sentence(words), "call": call}, doubtful=True)


def _find_outermost_collective(frames: tuple[Frame, ...]) -> str:
    """Return the function of torch.distributed's by which a thread stands in a collective, "" where
    it stands in none.
    """
    if find_group_call(frames) is None:
        return ""
    called = [f for f in frames if f.file.endswith("torch/distributed/distributed_c10d.py")]
    return unqualified_name(called[-1].name) if called else ""
