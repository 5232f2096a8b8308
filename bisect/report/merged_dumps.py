"""Dumps that were put together, and the verdict on them, in words and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..base.identity import RankId
from ..base.json_codec import to_json
from ..base.rank_facts import CollectiveLog, JobFacts, RankFacts
from ..base.verdict_facts import Verdict
from ..base.words import cut_line, format_count, format_ranks, printable
from ..diagnosis.process.frames import format_frame
from .rows import Answer, Row, add_detail, format_answer, make_rows
from .stacks import merged_stacks_text as tree
from .verdict_rows import (
    cause_rows,
    chain_texts,
    culprit_rows,
    format_place,
    other_rank_rows,
    short_stack,
)

if TYPE_CHECKING:
    from ..dumps.contents import Unreadable
    from ..dumps.merge import DumpedRank, MergedDumps

_CHAIN = 4
_MOST_NAMED = 3  # ranks without a number, and ranks not at fault, that are listed one by one
_LOGS = 12  # lines of collectives


def merged_lines(
    merged: MergedDumps, verdict: Verdict, parted: str, width: int | None = None
) -> list[str]:
    """Return the tree of all stacks, and the verdict; `width` is the terminal's, None: no cut."""
    ranks = [one.facts for one in merged.ranks]
    shown = [one.facts for one in merged.ranks if one.has_stack]
    lines = tree(shown).splitlines() if shown else []
    lines += ["", *_collectives(merged.ranks)] if any(r.collectives for r in ranks) else []
    lines += ["", *format_answer(word_merged_dumps(merged, verdict, parted))]
    return [cut_line(printable(line), width) for line in lines]


def word_merged_dumps(merged: MergedDumps, verdict: Verdict, parted: str) -> Answer:
    """Return the verdict on dumps in words; `parted`: where their logs of collectives part."""
    rows: list[Row] = []
    if verdict.outcome != "ok":
        ranks = [one.facts for one in merged.ranks]
        rows += add_detail(culprit_rows(verdict, ranks), chain_texts(verdict, _CHAIN))
        rows += other_rank_rows(verdict, ranks)
        rows += cause_rows(verdict.cause) if verdict.cause else make_rows("cause", "unknown")
        rows += make_rows("parted", parted) if parted not in _matched(verdict) else []
        rows += _stacks(merged, verdict)
    rows += _seen_by(merged, verdict)
    if verdict.outcome != "ok":
        rows += make_rows("try", _advice(verdict))
    rows += _make_unknown_rows(merged)
    rows += [row for note in merged.notes for row in make_rows("note", note)]
    return Answer(_word_merge_headline(merged, verdict), tuple(rows))


def _word_merge_headline(merged: MergedDumps, verdict: Verdict) -> str:
    size = format_count(merged.world_size or len(merged.ranks), "rank")
    if verdict.outcome == "ok":
        return f"MOVES  {size}: each was at another place at its last dump"
    several = any(len(one.facts.looks) > 1 for one in merged.ranks)
    telling = "" if several else "; one dump of each cannot tell slow from hung"
    if verdict.outcome == "crash":
        return f"CRASH  as the dumps show it, {size}"
    place = verdict.checkpoint
    where = f"{format_place(place)}, " if place is not None else ""
    return f"HANG  {where}as the dumps show it, {size}{telling}"


def _matched(verdict: Verdict) -> str:
    return "; ".join(verdict.cause.matched) if verdict.cause else ""


def _stacks(merged: MergedDumps, verdict: Verdict) -> list[Row]:
    """The culprit's innermost frames; where no rank can be blamed, those of some ranks."""
    culprits = [k.facts for k in merged.ranks if k.facts.rank in verdict.ranks.culprit]
    with_stack = [k.facts for k in merged.ranks if k.has_stack]
    if culprits:
        first = culprits[0]
        has = any(first is one for one in with_stack)
        return (
            make_rows("stack", short_stack(first, _UNKNOWN_JOB, verdict.call or "")) if has else []
        )
    rows: list[Row] = []
    for one in with_stack[:_MOST_NAMED]:
        rows += make_rows("was in", f"rank {one.rank}: {short_stack(one, _UNKNOWN_JOB)}")
    return rows


def _seen_by(merged: MergedDumps, verdict: Verdict) -> list[Row]:
    tools = sorted({look.rung for k in merged.ranks if k.has_stack for look in k.facts.looks})
    logs = _name_sources(merged.ranks)
    files = {source.rpartition(":")[0] or source for k in merged.ranks for source in k.sources}
    text = f"{', '.join([*tools, *logs])} on {len(merged.ranks)} of "
    text += f"{format_count(merged.world_size or len(merged.ranks), 'rank')}, "
    text += format_count(len(files), "file")
    most = max(len(k.facts.looks) for k in merged.ranks)
    text += f", up to {most} dumps of a rank" if most > 1 else ""
    rows = make_rows("seen by", text)
    moved = [k.facts.rank for k in merged.ranks if k.facts.moved]
    if moved and verdict.outcome != "ok":
        rows += make_rows("moved", f"{format_ranks(moved)}: another place at the last dump")
    if merged.unseen:
        blame = "" if verdict.ranks.culprit else ": the one at fault may be among them"
        rows += make_rows("not seen", f"{format_ranks(merged.unseen)}{blame}")
    elif verdict.ranks.waiting and not verdict.ranks.culprit:
        whom = "it waits" if len(merged.ranks) == 1 else "they all wait"
        text = f"whoever {whom} for: merge the dumps of the others too"
        rows += make_rows("not seen", text)
    return rows


def _advice(verdict: Verdict) -> str:
    return verdict.cause.avoid[0] if verdict.cause and verdict.cause.avoid else ""


def _make_unknown_rows(merged: MergedDumps) -> list[Row]:
    rows: list[Row] = []
    nameless = [known for known in merged.ranks if known.number is None]
    for known in nameless[:_MOST_NAMED]:
        source = ", ".join(known.sources[:1])
        text = f"{known.facts.rank} is {source}: neither text nor name tell its number"
        rows += make_rows("unknown", text)
    more = len(nameless) - _MOST_NAMED
    return add_detail(rows, [f"and {more} more"] if more > 0 else [])


# ---- collectives --------------------------------------------------------------------------------


def _collectives(ranks: Sequence[DumpedRank]) -> list[str]:
    """Return where each rank's log of collectives ends, ranks at the same place together."""
    places: dict[str, list[RankId]] = {}
    for known in ranks:
        for text in _ends(known.facts):
            places.setdefault(text, []).append(known.facts.rank)
    lines = [f"collectives, as {' and '.join(_name_sources(ranks))} has them"]
    collectives = [f"{format_ranks(where)}: {text}" for text, where in places.items()]
    lines += collectives[:_LOGS]
    return lines + (
        [f"({format_count(len(collectives) - _LOGS, 'more line')})"]
        if len(collectives) > _LOGS
        else []
    )


_SOURCES = {
    "torch": "the flight recorder",
    "flight recorder": "the flight recorder",
    "watchdog": "NCCL's watchdog",
}


def _name_sources(ranks: Sequence[DumpedRank]) -> list[str]:
    found = {log.source for known in ranks for log in known.facts.collectives}
    return list(dict.fromkeys(name for key, name in _SOURCES.items() if key in found))


def _ends(facts: RankFacts) -> Iterator[str]:
    for log in facts.collectives:
        last = log.operations[-1] if log.operations else None
        if last is None:
            yield _describe_counts(log)
            continue
        state = {True: "done", False: "not done", None: "state unknown"}[last.done]
        shape = f" {last.shape}" if last.shape else ""
        site = f" at {last.site}" if last.site else ""
        yield f"{last.kind}{shape} number {last.number} of group {last.group}{site}, {state}"


def _describe_counts(log: CollectiveLog) -> str:
    """Return how many operations a rank has begun, where that is all that is known."""
    counts = [f"{count} of group {group}" for group, count in sorted(log.sequence.items())]
    return f"has begun {', '.join(counts)}, none that does not end" if counts else "none"


# ---- JSON ---------------------------------------------------------------------------------------


def merged_json(
    merged: MergedDumps, verdict: Verdict, parted: str, unreadable: Sequence[Unreadable]
) -> dict[str, Any]:
    """Return the same as an object. A rank without a number is null in it."""
    return {
        "schema": 1,
        "verdict": to_json(verdict),
        "parted": parted or None,
        "not_seen": list(merged.unseen),
        "ranks": [_rank(known) for known in merged.ranks],
        "unreadable": [{"file": u.file, "line": u.line, "why": u.fact} for u in unreadable],
    }


def _rank(known: DumpedRank) -> dict[str, Any]:
    facts = known.facts
    main = facts.looks[-1].main if known.has_stack and facts.looks else None
    return {
        "rank": known.number,
        "pid": facts.pid,
        "host": facts.host or None,
        "from": list(known.sources),
        "dumps": len(facts.looks) if known.has_stack else 0,
        "moved": bool(facts.moved),
        "stack": [format_frame(f).replace(":0)", ")") for f in main.frames] if main else [],
        "collectives": list(_ends(facts)),
    }


_UNKNOWN_JOB = JobFacts(ended="still", package="")
