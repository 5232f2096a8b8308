"""What tells the hang in question from another one: where it is, and the stacks it shows there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..facts import HangPlace, Look

Stack = tuple[tuple[str, str], ...]  # (file, function), innermost first


def place_of(verdict: Mapping[str, Any], evidence: Mapping[str, Any]) -> HangPlace:
    """Return where a run hung, from its verdict.json and evidence.json."""
    where = verdict.get("checkpoint") or {}
    ranks = verdict.get("ranks") or {}
    stuck = {*ranks.get("culprit", ()), *ranks.get("stuck", ())}
    return HangPlace(
        checkpoint=where.get("name"),
        phase=where.get("phase"),
        call=verdict.get("call"),
        component=verdict.get("component"),
        stacks=tuple(dict.fromkeys(_stacks_in(evidence.get("ranks", ()), stuck))),
    )


def crash_place_of(verdict: Mapping[str, Any], evidence: Mapping[str, Any]) -> HangPlace:
    """Return where a run crashed, and by what kind of error, from the same two files."""
    where = verdict.get("checkpoint") or {}
    culprits = (verdict.get("ranks") or {}).get("culprit", ())
    errors = [one["error"] for one in evidence.get("ranks", ()) if one["rank"] in culprits]
    kind = next((error.partition(":")[0].strip() for error in errors if error), "")
    return HangPlace(
        checkpoint=where.get("name"),
        phase=where.get("phase"),
        component=verdict.get("component"),
        crash=kind or "an exit",
    )


def same(known: HangPlace, other: HangPlace) -> bool:
    """Return whether two runs hung in the same way: in the same step and phase, and in the same
    call or with a stack in common. Lines do not count: a loop may wait at any of its own.

    Two crashes are the same in the same step and phase, by the same kind of error.
    """
    if (known.checkpoint, known.phase) != (other.checkpoint, other.phase):
        return False
    if known.crash or other.crash:
        return known.crash == other.crash
    if known.call is not None and known.call == other.call:
        return True
    if set(known.stacks) & set(other.stacks):
        return True
    unseen = not (known.stacks and other.stacks) and None in (known.call, other.call)
    return unseen and known.component == other.component


def shows(known: HangPlace, looks: Sequence[Look]) -> bool:
    """Return whether the last of `looks` that has a stack has one of those of the known hang."""
    found = next((stack for look in reversed(looks) if (stack := stack_of(look))), None)
    return found in known.stacks if found else False


def stack_of(look: Look) -> Stack:
    """Return the Python stack of a process's main thread, () where none was seen."""
    main = look.main
    if main is None:
        return ()
    return tuple((f.file, _plain(f.name)) for f in main.frames if not f.native)


def _stacks_in(ranks: Iterable[Mapping[str, Any]], stuck: set[int]) -> Iterable[Stack]:
    for facts in ranks:
        if facts["rank"] not in stuck:
            continue
        for look in reversed(facts["looks"]):
            threads = look["threads"]
            main = next((t for t in threads if t["os_id"] == look["pid"]), None)
            main = main or next(iter(threads), None)
            if main is not None and main["frames"]:
                yield tuple(
                    (f["file"], _plain(f["name"])) for f in main["frames"] if not f["native"]
                )
                break


def _plain(name: str) -> str:
    """Return a function's name without its class, which not every look tells."""
    return name.rpartition(".")[2]
