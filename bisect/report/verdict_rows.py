"""A verdict on a job that did not end well, in rows: whose fault it is, who only waits, the chain
of waits, the cause, what it rests on, and what to do next.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from ..base.command_words import can_be_typed, starts_all_nodes, starts_one_node
from ..base.identity import RankId, UnknownRank, name_rank
from ..base.masking import mask_text
from ..base.node_differences import word_difference
from ..base.outcomes import STANDS_STILL
from ..base.process_facts import Frame
from ..base.rank_facts import JobFacts, RankFacts, describe_exit, is_server_process
from ..base.verdict_facts import (
    Cause,
    CheckpointPlace,
    Edge,
    Verdict,
    Where,
)
from ..base.words import (
    LEVELS,
    cause_page,
    format_count,
    format_ranks,
    format_seconds,
    join_lines,
    name_awaited,
)
from ..diagnosis.compilation import describe_compilations
from ..diagnosis.process.frames import frame_owner, job_frames, unqualified_name
from ..diagnosis.process.process_snapshot import merge_looks
from ..diagnosis.server_roles import find_roles, find_titles, put_roles
from ..search.trial_results import estimate_proof
from .rows import Answer, Row, add_detail, change_texts, count_lines, limit_rows, make_rows

MOST_LINES = 15
_LEVEL_AT = 72  # column, after most titles
_MOST_CULPRIT_ROWS = 3
_MOST_GROUPS = 2  # groups of some ranks that are told of
_MOST_DISAGREEMENTS = 3
_FRAMES = 3  # of the stack, in the one line that it gets


def word_verdict(
    verdict: Verdict,
    job: JobFacts,
    ranks: Sequence[RankFacts],
    *,
    run_dir: str = "",
    state: str = "",
    is_provable: bool = True,
    tells_notes: bool = False,
) -> Answer:
    """Return the verdict in words, secrets masked, in at most MOST_LINES lines; in the same order
    every time. `state` says what the job was left in. `is_provable`: its command starts it again.
    `tells_notes`: nothing else tells what is noted of it.

    The chain gets what room there is; how the job ended is never cut.
    """
    # Not at the top: every `hangbisect run` loads this module at its end, and few the catalogue.
    from ..diagnosis.causes.catalogue import choose_advice

    head = culprit_rows(verdict, ranks) + _word_disagreements(verdict)
    middle = other_culprit_rows(verdict)
    middle += compilation_rows(verdict, ranks) + other_rank_rows(verdict, ranks)
    middle += make_rows("starts", job.starting) + _word_subgroups(verdict, job, ranks)
    middle += _cause(verdict) + _evidence(verdict, job, ranks)
    middle += make_rows("try", choose_advice(verdict)) + _word_libraries(verdict)
    middle += _word_differences(verdict)
    middle += _word_notes(verdict, job) if tells_notes else []
    middle += make_rows("limit", verdict.limit)
    hangs = verdict.outcome in STANDS_STILL
    is_part = len(verdict.nodes) > 1 and not starts_all_nodes(verdict.command)
    is_part = is_part or bool(starts_one_node(verdict.command))
    is_provable = is_provable and not is_part and can_be_typed(verdict.command)
    proof = make_rows("prove it", _proof(verdict)) if hangs and is_provable else []
    report = f"{run_dir}/report.md: paste it into an issue" if run_dir else ""
    end = make_rows("job", state) + make_rows("report", report)
    most = MOST_LINES - 1  # beside the headline
    # As much room for the chain without what proves it as with it.
    room = most - hangs - sum(map(count_lines, (head, middle, end)))
    rows = [*add_detail(head, chain_texts(verdict, room)), *middle, *proof]
    kept = limit_rows(rows, most - count_lines(end))
    answer = Answer(_word_verdict_headline(verdict, ranks), (*kept, *end))
    titles = find_titles(ranks)
    told = {one.rank: one.role for one in verdict.where if one.role and one.rank not in titles}
    roles = find_roles(ranks) or told
    answer = _add_titles(answer, {r: title for r, title in titles.items() if r not in roles})
    return change_texts(_call_by_roles(answer, roles), mask_text)


def _word_disagreements(verdict: Verdict) -> list[Row]:
    """Return what launchers of several nodes do not agree about, and who of them is missing: what
    each of them waits for may look as if all had come.
    """
    notes = verdict.notes[:_MOST_DISAGREEMENTS] if verdict.component == "launcher" else ()
    return [row for note in notes for row in make_rows("nodes", note)]


_MOST_NOTES = 2


def _word_notes(verdict: Verdict, job: JobFacts) -> list[Row]:
    """Return what is noted of a verdict and stands in no other row, the first of it."""
    if verdict.component == "launcher":
        return []  # they are what its launchers disagree about
    elsewhere = {*verdict.said, *job.said, job.starting}
    told = [note for note in verdict.notes if note not in elsewhere]
    shown, more = told[:_MOST_NOTES], len(told) - _MOST_NOTES
    if more > 0:
        shown[-1] += f" (and {more} more in verdict.json)"
    return [row for note in shown for row in make_rows("note", note)]


_MOST_OF_LIBRARIES = 2
_MOST_DIFFERENCES = 3  # between nodes


def _word_libraries(verdict: Verdict) -> list[Row]:
    """Return what libraries say, the first of it: all is in report.md and verdict.json."""
    told = list(verdict.said)
    shown, more = told[:_MOST_OF_LIBRARIES], len(told) - _MOST_OF_LIBRARIES
    if more > 0:
        shown[-1] += f" (and {more} more in verdict.json)"
    return [row for note in shown for row in make_rows("says", note)]


def _word_differences(verdict: Verdict) -> list[Row]:
    """Return what the nodes of the job do not have in common, the first of it."""
    told = [word_difference(one) for one in verdict.differences[:_MOST_DIFFERENCES]]
    more = len(verdict.differences) - len(told)
    return make_rows(
        "differs", *told, f"and {format_count(more, 'more thing')} in verdict.json" if more else ""
    )


def _add_titles(answer: Answer, titles: Mapping[RankId, str]) -> Answer:
    """Return an answer with the title of a culprit behind its number."""
    named = {rank: f"{name_rank(rank)} ({title})" for rank, title in titles.items()}
    rows = (
        replace(row, text=put_roles(row.text, named)) if row.label == "culprit" else row
        for row in answer.rows
    )
    return replace(answer, rows=tuple(rows)) if named else answer


def _call_by_roles(answer: Answer, roles: Mapping[RankId, str]) -> Answer:
    """Return an answer about an inference server with the roles of its ranks in place of their
    numbers: whole where a culprit is named, short in all that follows.
    """
    if not roles:
        return answer
    short = {rank: role.partition(" of ")[0] for rank, role in roles.items()}
    rows = [
        replace(
            row,
            text=put_roles(row.text, roles if row.label == "culprit" else short),
            detail=tuple(put_roles(text, short) for text in row.detail),
        )
        for row in answer.rows
    ]
    return Answer(put_roles(answer.headline, short), tuple(rows))


def word_recorded_verdict(
    verdict: Verdict, folder: str = "", ranks: Sequence[RankFacts] = ()
) -> Answer:
    """Return a verdict of verdict.json in words; `ranks` as far as they are known."""
    return word_verdict(
        verdict,
        job_of_verdict(verdict),
        ranks or _ranks_of_verdict(verdict),
        run_dir=folder,
        is_provable=bool(verdict.command),
    )


def job_of_verdict(verdict: Verdict) -> JobFacts:
    """Return what a verdict says of its job, as the functions that word it take it."""
    return JobFacts(
        ended="still",
        pipeline=verdict.pipeline,
        command=verdict.command,
        attempt=verdict.attempt,
        world_size=verdict.world_size,
        still=verdict.seconds.still,
    )


def _ranks_of_verdict(verdict: Verdict) -> list[RankFacts]:
    return [
        RankFacts(one.rank, pid=one.pid, host=one.host, last_line=one.last_line)
        for one in verdict.where
    ]


# ---- the parts, in their order -------------------------------------------------------------------


def _word_verdict_headline(verdict: Verdict, ranks: Sequence[RankFacts]) -> str:
    place = verdict.checkpoint
    where = ""
    if place is not None:
        where = f"{format_place(place):<40}"
    hosts = len({r.host for r in ranks if r.host})
    size = format_count(verdict.world_size, "rank")
    if hosts > 1:
        size = f"{format_count(hosts, 'node')}, {size}"
    size_and_time = f"{format_seconds(verdict.seconds.total)} after start, {size}"
    return "  ".join(part for part in (verdict.outcome.upper(), where, size_and_time) if part)


def format_place(place: CheckpointPlace) -> str:
    """Return a checkpoint with its phase: "checkpoint 9 WandbLogger ready, phase login"."""
    number = f"checkpoint {place.number} " if place.number is not None else ""
    return f"{number}{place.title}{f', phase {place.phase}' if place.phase else ''}"


def culprit_rows(verdict: Verdict, ranks: Sequence[RankFacts]) -> list[Row]:
    """Return whose fault it is, of a slow job who moves; in which call, and what that rank waits
    for.
    """
    label = label_blamed(verdict, ranks)
    blamed = verdict.ranks.culprit
    if not blamed and not verdict.world_size and verdict.where:
        return _launcher_rows(verdict, label)
    if not blamed:
        words = "none seen" if verdict.outcome == "interrupted" else "none that can be named"
        return make_rows(label, words)
    if verdict.outcome == "crash" or set(blamed) <= set(verdict.ranks.dead):
        return _dead_rank_rows([r for r in ranks if r.rank in blamed])
    if set(blamed) <= set(verdict.ranks.never_started):
        when = "not started yet" if verdict.outcome == "silent" else "never started"
        return make_rows("culprit", f"{_name_culprits(blamed, verdict.where)}   {when}")
    groups = _group_culprits(verdict)
    if len(groups) < 2 or verdict.outcome not in STANDS_STILL:
        who = _name_culprits(blamed, verdict.where)
        return make_rows(label, f"{who}       {_say_what_it_does(verdict)}")
    who = _name_culprits([one.rank for one in groups[0]], groups[0])
    return make_rows(label, f"{who}       {_say_what_it_does(groups[0][0])}")


def label_blamed(
    verdict: Verdict, ranks: Sequence[RankFacts]
) -> Literal["culprit", "moves", "still"]:
    """Return what the ranks are called that a verdict names. Those of a slow job move, but where
    they stand still and others keep a processor busy, which may be how these wait for them.
    """
    if verdict.outcome != "slow":
        return "culprit"
    named = [one for one in ranks if one.rank in verdict.ranks.culprit]
    stand = bool(named) and not any(one.moved or one.busy for one in named)
    return "still" if stand and any(one.busy for one in ranks) else "moves"


def other_culprit_rows(verdict: Verdict) -> list[Row]:
    """Return a row for those culprits that are in something else than the first, or wait for
    something else.
    """
    rows: list[Row] = []
    if verdict.outcome not in STANDS_STILL:
        return rows
    for alike in _group_culprits(verdict)[1:_MOST_CULPRIT_ROWS]:
        who = _name_culprits([one.rank for one in alike], alike)
        rows += make_rows("culprit", f"{who}       {_say_what_it_does(alike[0])}")
    return rows


def _group_culprits(verdict: Verdict) -> list[tuple[Where, ...]]:
    """Return the culprits by what they are in and wait for, those first of whom the verdict tells;
    one group where that is not known of each: in an older verdict, or of a rank without a process.
    """
    where = verdict.where
    if len(where) != len(verdict.ranks.culprit) or not all(w.call or w.waits_for for w in where):
        return [where] if where else []
    groups: dict[tuple[str | None, ...], list[Where]] = {}
    for one in where:
        groups.setdefault(_get_likeness(one), []).append(one)
    told = sorted(groups, key=lambda key: key != _get_likeness(verdict))
    return [tuple(groups[key]) for key in told]


def _get_likeness(one: Where | Verdict) -> tuple[str | None, ...]:
    """Return what two have in common that wait alike, each for a process of its own perhaps."""
    wait = one.waits_for
    return (one.call, wait.kind, wait.process) if wait is not None else (one.call,)


def _name_culprits(ranks: Sequence[RankId], where: Sequence[Where]) -> str:
    """Return ranks, and the process of the first."""
    first = where[0] if where else None
    nameless = first is not None and isinstance(first.rank, UnknownRank)
    who = first.role if first is not None and first.role and nameless else format_ranks(ranks)
    if first is None or first.pid is None:
        return who
    gpu = f" gpu {first.gpu}" if first.gpu is not None else ""
    more = f" and {len(ranks) - 1} more" if len(ranks) > 1 else ""
    return f"{who}   {first.host} pid {first.pid}{gpu}{more}"


def _say_what_it_does(one: Where | Verdict) -> str:
    awaited = f"waits for {name_awaited(one.waits_for)}" if one.waits_for is not None else ""
    return ", ".join(part for part in (f"in {one.call}" if one.call else "", awaited) if part)


def _launcher_rows(verdict: Verdict, label: str) -> list[Row]:
    """Return what a launcher does that has not started any rank."""
    where = verdict.where[0]
    does = [f"in {verdict.call}" if verdict.call else "", "no rank has started"]
    if verdict.waits_for is not None:
        does.insert(1, f"waits for {name_awaited(verdict.waits_for)}")
    text = ", ".join(part for part in does if part)
    pid = "" if where.pid is None else f"pid {where.pid}"
    return make_rows(label, f"the launcher   {where.host} {pid}   {text}")


def _dead_rank_rows(facts: Sequence[RankFacts]) -> list[Row]:
    rows: list[Row] = []
    for one in facts[:2]:
        where = f"{one.host} pid {one.pid}   " if one.pid is not None else ""
        who = one.title or f"rank {one.rank}"
        rows += make_rows("culprit", f"{who}   {where}{describe_exit(one)}")
    left = [f"and {format_ranks(r.rank for r in facts[2:])}"] if len(facts) > 2 else []
    return add_detail(rows, left)


def compilation_rows(verdict: Verdict, ranks: Sequence[RankFacts]) -> list[Row]:
    """Return what is compiled while others wait, where that is why a job is slow."""
    return make_rows("compiles", *describe_compilations(ranks)) if verdict.outcome == "slow" else []


def other_rank_rows(verdict: Verdict, ranks: Sequence[RankFacts]) -> list[Row]:
    """Return who only waits, and what became of the rest."""
    found = verdict.ranks
    rows: list[Row] = []
    if found.waiting:
        who = _describe_waiting_ranks(verdict, ranks)
        why = "not at fault"
        if verdict.guessed:
            why = (
                f"perhaps for {format_ranks(found.culprit)}, for most stand in one place (a guess)"
            )
        rows += make_rows("waiting", f"{who}: {why}")
    stuck = sorted(set(found.stuck) - set(found.culprit))
    if stuck:
        rows += make_rows("also", f"{format_ranks(stuck)} stuck")
    done = {r.rank for r in ranks if r.status == 0 and not r.error}
    dead = sorted(set(found.dead) - set(found.culprit))
    if well := [rank for rank in dead if rank in done]:
        rows += make_rows("ended", f"{format_ranks(well)}, with status 0")
        dead = [rank for rank in dead if rank not in done]
    titles = {one.rank: one.title for one in ranks if is_server_process(one)}
    if dead:
        numbered = [rank for rank in dead if rank not in titles]
        names = [format_ranks(numbered)] * bool(numbered)
        names += [titles[rank] for rank in dead if rank in titles]
        rows += make_rows("ended", f"{' and '.join(names)}, afterwards or because of it")
    absent = sorted(set(found.never_started) - set(found.culprit))
    if absent:
        rows += make_rows("missing", f"{format_ranks(absent)} never started")
    return rows


def _word_subgroups(verdict: Verdict, job: JobFacts, ranks: Sequence[RankFacts]) -> list[Row]:
    """Return which groups of some ranks wait for members of theirs, and where those are."""
    if verdict.outcome not in STANDS_STILL:
        return []
    from ..diagnosis.collectives.pending_operations import describe_subgroups  # for a hang alone

    groups = describe_subgroups(ranks, job.package)[:_MOST_GROUPS]
    return [row for one in groups for row in make_rows("group", one.removeprefix("group "))]


def _describe_waiting_ranks(verdict: Verdict, ranks: Sequence[RankFacts]) -> str:
    """Return who waits and where: "ranks 0-2 at our barrier", "rank 0 in all_reduce for rank 1"."""
    waiting = frozenset(verdict.ranks.waiting)
    who = format_ranks(waiting)
    held = [facts.held for facts in ranks if facts.rank in waiting]
    # Of a verdict alone its facts are not known: a script of the user's own has no barrier of ours.
    if all(held) and (held or verdict.pipeline):
        return f"{who} at our barrier"
    first = verdict.chain[0] if verdict.chain else None
    if first is None or not first.target.startswith("collective "):
        return who
    where = f"in {first.target.removeprefix('collective ')}"
    if verdict.ranks.culprit:
        where += f" for {format_ranks(verdict.ranks.culprit)}"
    return f"{who} {where}" if len(waiting) == 1 else f"{who}, {first.source} {where}"


# What there is no more to say of than how it is waited for.
_KINDS_WITHOUT_DETAIL = (
    "sleep",
    "itself",
    "kernel",
    "stopped",
    "input",
    "unknown",
    "thread",
    "futex",
    "gil",
)
_MOST_HOPS = 4


def chain_texts(verdict: Verdict, room: int) -> list[str]:
    """Return what the culprit waits for over all steps: "4899 -> 10.0.0.1:443 ESTABLISHED, 0 bytes
    in 12 s". At most `room` of them, the last steps if they are too many.
    """
    edges = _edges_from_culprit(verdict)
    ring = bool(edges) and edges[-1].target == edges[0].source
    if not ring and edges and edges[0].kind == "process":
        edges = edges[1:]  # its child, which the row above names
    texts = _join_hops(edges)
    if not texts or (len(texts) == 1 and edges[-1].kind in _KINDS_WITHOUT_DETAIL and not ring):
        texts = [verdict.waits_for.detail] if verdict.waits_for is not None else []
    return texts[-max(1, min(room, _MOST_HOPS)) :]


def _edges_from_culprit(verdict: Verdict) -> tuple[Edge, ...]:
    names = [*map(name_rank, verdict.ranks.culprit)]
    begin = next((i for i, edge in enumerate(verdict.chain) if edge.source in names), None)
    return () if begin is None else verdict.chain[begin:]


def _join_hops(edges: Sequence[Edge]) -> list[str]:
    """Return a line for each step from one process to the next, over whatever lies between."""
    lines: list[str] = []
    for edge, before in zip(edges, [None, *edges], strict=False):
        if before is not None and _is_between(edge.source) and before.target == edge.source:
            lines[-1] += f", {edge.evidence}"
        else:
            lines.append(f"{_short_name(edge.source)} -> {edge.target} {_format_evidence(edge)}")
    return lines


def _is_between(name: str) -> bool:
    """Return True for a thing or a place that processes meet over."""
    return not name.startswith(("rank ", "process ", "thread "))


def _short_name(name: str) -> str:
    return name.removeprefix("process ")


def _format_evidence(edge: Edge) -> str:
    """Return the evidence behind the name: of a peer as it is, of all else in brackets."""
    if edge.kind in ("socket", "store") or not edge.evidence:
        return edge.evidence
    return f"({edge.evidence})"


def _cause(verdict: Verdict) -> list[Row]:
    cause = verdict.cause
    if cause is None:
        return make_rows("cause", "unknown") if verdict.outcome in STANDS_STILL else []
    return cause_rows(cause)


def cause_rows(cause: Cause) -> list[Row]:
    """Return a cause, how sure it is and its page, and what speaks for it."""
    aside = f"{LEVELS[cause.level]}  {cause_page(cause.id)}"
    title = join_lines(cause.title or "unknown")
    row = Row("cause", title, aside=aside, column=_LEVEL_AT)
    return [row, *make_rows("because", "; ".join(cause.matched) or cause.why)]


def _evidence(verdict: Verdict, job: JobFacts, ranks: Sequence[RankFacts]) -> list[Row]:
    rows: list[Row] = []
    told = next((where[0].rank for where in _group_culprits(verdict)), None)
    blamed = [r for r in ranks if r.rank in verdict.ranks.culprit]
    culprit = next((r for r in blamed if r.rank == told), next(iter(blamed), None))
    if culprit is not None:
        rows += make_rows("stack", short_stack(culprit, job, verdict.call or ""))
        if culprit.last_line:
            age = next((w.last_line_age for w in verdict.where if w.rank == culprit.rank), None)
            ago = f", {format_seconds(age)} ago" if age is not None else ""
            line = join_lines(culprit.last_line)
            rows += make_rows("last line", f'rank {culprit.rank}{ago}: "{line}"')
        if culprit.output:
            rows += make_rows("wrote", f'rank {culprit.rank}: "{join_lines(culprit.output[-1])}"')
    elif verdict.outcome != "crash":
        rows += _where_they_were(job, ranks)
    return rows + _seen_by(verdict, job, ranks)


def _where_they_were(job: JobFacts, ranks: Sequence[RankFacts]) -> list[Row]:
    """Where the ranks were, the furthest behind first, when no rank can be blamed."""
    rows: list[Row] = []
    for one in sorted((r for r in ranks if r.alive and not r.held), key=lambda r: r.reached)[:3]:
        stack = short_stack(one, job)
        if stack:
            who = f"rank {one.rank}" if job.world_size else "the launcher"
            rows += make_rows("was in", f"{who}: {stack}")
    return rows


def short_stack(facts: RankFacts, job: JobFacts, call: str = "") -> str:
    """Return the innermost frames of the library and of the user's code, innermost first:
    "wandb_init.py:1012 init < train.py:88 main".
    """
    view = merge_looks(facts.looks)
    frames = job_frames(view.frames, job.package) if view else ()
    shown = [f for f in frames if frame_owner(f, job.package) != "import"]
    own = [i for i, f in enumerate(shown) if frame_owner(f, job.package) in ("user", "step")]
    library = [i for i in range(len(shown)) if i not in own and (not own or i < own[0])]
    # The innermost, and the call that it hangs in: between them lie the library's own ways.
    entered = [i for i in library if f"/{call.partition('.')[0]}/" in shown[i].file] or library
    chosen = library[:1] + [i for i in entered[-1:] if i != library[0]] + own[:1]
    rest = [i for i in range(len(shown)) if i not in chosen]
    chosen += rest[: _FRAMES - len(chosen)]
    return " < ".join(_short_frame(shown[i]) for i in sorted(chosen))


def _short_frame(frame: Frame) -> str:
    return f"{frame.file.rpartition('/')[2]}:{frame.line} {unqualified_name(frame.name)}"


def _seen_by(verdict: Verdict, job: JobFacts, ranks: Sequence[RankFacts]) -> list[Row]:
    looked = [r for r in ranks if r.looks]
    if not looked:
        return []
    most = max(looked, key=lambda r: len(r.looks))
    span = most.looks[-1].at - most.looks[0].at
    rung = "/proc" if verdict.seen_by == "proc" else f"{verdict.seen_by} and /proc"
    size = format_count(verdict.world_size, "rank")
    on = f"{len(looked)} of {size}" if verdict.world_size else "the launcher"
    text = f"{rung} on {on}, "
    text += f"{format_count(len(most.looks), 'look')} in {format_seconds(max(0.0, span))}"
    moved = [r.rank for r in looked if r.moved]
    if verdict.outcome in STANDS_STILL and not moved and len(most.looks) > 1:
        text += ", nothing moved"
    if job.still is not None and verdict.outcome in STANDS_STILL and len(most.looks) > 1:
        text += f", still for {format_seconds(job.still)}"
    return make_rows("seen by", text)


def _proof(verdict: Verdict) -> str:
    """Return the command that proves it, and how many starts that takes, of what length at most."""
    about = estimate_proof(verdict.command).about
    size = f"about {format_count(about, 'start')} of up to {format_seconds(verdict.seconds.total)}"
    return f"{size}: hangbisect isolate -- {shlex.join(verdict.command)}"
