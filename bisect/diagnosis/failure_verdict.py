"""The verdict on a job that did not end well: the hang located and explained, further candidates,
and by which names it calls the programs beside the ranks.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, islice

from ..base.command_words import name_program
from ..base.identity import RankId
from ..base.process_facts import Look
from ..base.rank_facts import RankFacts
from ..base.verdict_facts import Candidate, Cause, Edge, Outcome, Ranks, Try, Verdict, Wait
from ..base.words import format_ranks
from ..toggles.command_toggles import apply_setting, format_command, values_as_run
from ..toggles.table import TOGGLES
from ..toggles.toggle import Toggle, as_read, matters, safer, why_not
from .blame import choose_shown_rank, find_roles, first_culprit
from .call_site import (
    find_call,
    find_component,
    find_culprit_wait,
    find_place,
    find_wait_of_culprit,
    locate_culprit,
)
from .case import Case, progress_by_rank
from .causes.awaited import (
    BESIDE_STUCK,
    CHILD_STUCK,
    THREAD_STUCK,
    find_still_holder,
    find_stuck_thread,
    waits_for_a_thread,
)
from .causes.catalogue import find_known_cause, find_likeliest_cause
from .causes.known_cause import Scene
from .causes.pipes import PIPE_UNREAD, SOCKET_UNREAD
from .causes.processes import CHILD_PROGRAM
from .causes.signs import find_blocked_processes, format_process
from .causes.threads import DEAD_PRODUCER
from .causes.workers import CHILD_DIED, WORKER_STUCK
from .graph_builder import build_wait_graph
from .process.blocking_reason import ProcessContext, find_blocking_reason
from .process.frames import format_innermost_frame
from .process.helper_processes import is_idle_worker, is_kept_by_others
from .process.process_snapshot import (
    ProcessSnapshot,
    find_descendants,
    merge_looks,
    put_thread_first,
)
from .rank_waits import is_anonymous
from .server_parts import blame_dead_helper, blame_part_of_server
from .single_ranks import is_gone
from .verdict_skeleton import best_rung, make_verdict_skeleton
from .wait_graph import WaitGraph

_PYTHON = re.compile(r"\bpython[\d.]* \((\d+)\)")


def name_programs(verdict: Verdict, ranks: Sequence[RankFacts]) -> Verdict:
    """Return a verdict in whose words "python (4711)" is "python service.py (4711)" where that
    process runs another script than its rank.
    """
    names = _name_processes(ranks)
    if not names:
        return verdict
    return replace(
        verdict,
        waits_for=_name_in_wait(verdict.waits_for, names),
        where=tuple(
            replace(one, waits_for=_name_in_wait(one.waits_for, names)) for one in verdict.where
        ),
        chain=tuple(_name_in_edge(edge, names) for edge in verdict.chain),
        cause=_name_in_cause(verdict.cause, names) if verdict.cause is not None else None,
    )


def _name_processes(ranks: Sequence[RankFacts]) -> dict[int, str]:
    """Return by pid what such a process is called; none whose pid means two things on two hosts."""
    found: dict[int, set[str]] = {}
    for facts in ranks:
        own = _read_script(facts.looks[-1]) if facts.looks else ""
        for look in (looks[-1] for looks in facts.children if looks):
            script = _read_script(look)
            other = script if script != own else ""
            found.setdefault(look.pid, set()).add(f"{look.name} {other}" if other else "")
    single = {pid: next(iter(names)) for pid, names in found.items() if len(names) == 1}
    return {pid: name for pid, name in single.items() if name}


def _read_script(look: Look) -> str:
    """Return the file name of the script that a Python runs, "" where it runs none."""
    return name_program(look.command) if look.name.startswith("python") else ""


def _put_names(text: str, names: Mapping[int, str]) -> str:
    def name(found: re.Match[str]) -> str:
        known = names.get(int(found[1]))
        return f"{known} ({found[1]})" if known else found[0]

    return _PYTHON.sub(name, text)


def _name_in_wait(wait: Wait | None, names: Mapping[int, str]) -> Wait | None:
    if wait is None:
        return None
    is_python = wait.process is not None and wait.process.startswith("python")
    called = names.get(wait.pid or 0, wait.process) if is_python else wait.process
    return replace(wait, process=called, detail=_put_names(wait.detail, names))


def _name_in_edge(edge: Edge, names: Mapping[int, str]) -> Edge:
    return replace(edge, evidence=_put_names(edge.evidence, names))


def _name_in_cause(cause: Cause, names: Mapping[int, str]) -> Cause:
    return replace(
        cause,
        why=_put_names(cause.why, names),
        matched=tuple(_put_names(text, names) for text in cause.matched),
        avoid=tuple(_put_names(text, names) for text in cause.avoid),
    )


MOST_CANDIDATES = 5
# Causes that say of another process that it stands still: why it does is asked of that one.
_STANDS_STILL = (CHILD_STUCK, BESIDE_STUCK, WORKER_STUCK, CHILD_PROGRAM)


def find_candidates(case: Case, graph: WaitGraph, verdict: Verdict) -> tuple[Candidate, ...]:
    """Return at most five candidates, the likeliest first; ranks that are in the same way suspect
    together. The culprits fit where each was looked at more than once, and who waits for them is
    no guess; all others are a guess.

    None for a job that ended well, or that was interrupted while all were at work.
    """
    ranks, outcome = verdict.ranks, verdict.outcome
    if outcome == "ok" or (outcome == "interrupted" and not ranks.culprit):
        return ()
    culprits = [facts for rank in ranks.culprit if (facts := case.facts(rank))]
    seen = bool(ranks.culprit) and all(len(f.looks) != 1 for f in culprits)
    sure = seen and not verdict.guessed
    return tuple(
        Candidate(
            group,
            verdict.component if group == ranks.culprit else _find_rank_component(case, group[0]),
            "fits" if sure and group == ranks.culprit else "guess",
        )
        for group in islice(_group_suspects(case, graph, ranks), MOST_CANDIDATES)
    )


def _group_suspects(case: Case, graph: WaitGraph, ranks: Ranks) -> Iterator[tuple[RankId, ...]]:
    """Yield ranks by how suspect they are, then by how far they came: the culprits, other sinks,
    those that stand still by themselves, that left early, that wait for others.
    """
    far = progress_by_rank(case)
    passed: set[RankId] = set()
    sinks = [
        r
        for r in graph.sinks
        if (facts := case.facts(r)) is None or not (facts.moved or is_gone(facts))
    ]
    for members in (ranks.culprit, sinks, ranks.stuck, ranks.dead, ranks.waiting):
        new = _sort_by_progress((r for r in members if r not in passed and r in far), far)
        passed |= set(members)
        if members is ranks.culprit and ranks.culprit:
            yield ranks.culprit
            continue
        for _, group in groupby(new, key=lambda rank: far[rank]):
            yield tuple(group)


def _sort_by_progress(ranks: Iterable[RankId], far: dict[RankId, tuple[int, int]]) -> list[RankId]:
    return sorted(ranks, key=lambda rank: (far[rank], rank))


def _find_rank_component(case: Case, rank: RankId) -> str | None:
    facts = case.facts(rank)
    if facts is None:
        return None
    return find_component(case.view(facts), facts, case.job, case.step(facts))


_LAST_VALUES = ("off",)  # gives the component up: only after everything else


def list_remedies(
    component: str | None,
    command: Sequence[str],
    avoiding: Iterable[tuple[str, str]] = (),
    ours: bool = True,
    libraries: Collection[str] | None = None,
    without: Collection[str] = (),
) -> tuple[Try, ...]:
    """Return the changes that may avoid a hang in `component`, the most promising first: before
    all others those that avoid its cause (`avoiding`: toggles and values). `ours`: the command
    walks a pipeline of ours. `libraries`: those that a script of the user's own is seen to use,
    None if that is not known; `without`: toggles that change nothing about the cause.

    Of the component's only remedies: a probe makes nearly every hang vanish and heals none.
    """
    found: dict[tuple[str, str], Try] = {}
    table = as_read(TOGGLES, command, ours)
    current = values_as_run(command, {}, TOGGLES, ours=ours)
    for name, value in avoiding:
        entry = next((t for t in table if t.name == name), None)
        if entry and current.get(name) != value and _changes_command(entry, value, command, ours):
            found[name, value] = _make_try(entry, value, command, ours)
    for entry in table:
        # A variable only where the cause names it: by its component alone nobody would try ten.
        acts = entry.name not in without and (ours or entry.acts_on(libraries))
        if entry.component == component and entry.kind == "remedy" and entry.flag and acts:
            for value in _sort_by_promise(safer(entry, current.get(entry.name))):
                if _changes_command(entry, value, command, ours):
                    found.setdefault((entry.name, value), _make_try(entry, value, command, ours))
    return tuple(found.values())


def _make_try(entry: Toggle, value: str, command: Sequence[str], ours: bool) -> Try:
    setting = apply_setting(command, {entry.name: value}, TOGGLES, ours=ours)
    return Try(entry.name, value, format_command(setting))


def _changes_command(entry: Toggle, value: str, command: Sequence[str], ours: bool) -> bool:
    """Return whether a value can be applied to this command, and changes anything about it."""
    may = bool(command) and matters(entry, command)
    return may and not why_not(entry, value, command, {}, ours)


def _sort_by_promise(values: Sequence[str]) -> list[str]:
    """Return the safest first, giving up last."""
    safest_first = values[::-1]
    return sorted(safest_first, key=lambda value: value in _LAST_VALUES)


def explain_case(case: Case, outcome: Outcome) -> tuple[Verdict, WaitGraph]:
    """Return the verdict on a case, and the graph that it rests on."""
    graph = build_wait_graph(case)
    verdict = _locate_hang(case, outcome, graph)
    verdict = replace(
        verdict,
        candidates=find_candidates(case, graph, verdict),
        chain=graph.chain(verdict.ranks.waiting, verdict.ranks.culprit),
    )
    for rank in verdict.ranks.culprit:
        facts, wait = case.facts(rank), find_wait_of_culprit(case, rank, graph)
        if facts is not None and facts.looks and wait is not None:
            graph.waits[rank, facts.looks[-1].pid] = wait
    # The cause is looked for from the rank with which it was seen.
    verdict = blame_part_of_server(case, graph, _add_cause(case, graph, verdict))
    verdict = blame_dead_helper(case, verdict)
    verdict = _drop_unread_ranks(case, verdict)
    return name_programs(verdict, case.ranks), graph


_A_THREAD_ENDED = 0.8  # agreement of a cause that it has this sign of
_SAY_NOTHING = frozenset(["itself", "unknown", "kernel", "sleep"])  # kinds of waits, without frames


def _drop_unread_ranks(case: Case, verdict: Verdict) -> Verdict:
    """Return the verdict without culprits where it blames all ranks without a cause, those included
    of which no stack could be read and the kernel does not say for what they wait, and each other
    one waits for its peers: on a machine that has too much to do, what reads stacks ends too late,
    and most of the ranks wait for the rest.
    """
    there = [facts for facts in case.ranks if facts.looks and not is_gone(facts)]
    culprit, waits = verdict.ranks.culprit, case.rank_waits
    unread = [r.rank for r in there if not any(look.threads for look in r.looks)]
    unread = [rank for rank in unread if _says_nothing(waits[rank].wait)]
    is_guess = verdict.outcome == "hang" and verdict.cause is None and len(culprit) > 1
    if not is_guess or not unread or not {facts.rank for facts in there} <= {*culprit}:
        return verdict
    if not all(waits[r.rank].waits_for_peers for r in there if r.rank not in unread):
        return verdict
    note = (
        f"of {format_ranks(unread)} no stack could be read, and what the kernel tells names nobody:"
        " for whom the ranks wait is not seen"
    )
    return replace(
        verdict,
        ranks=replace(verdict.ranks, culprit=(), stuck=tuple(sorted(culprit))),
        where=(),
        waits_for=None,
        candidates=(),
        notes=(*verdict.notes, note),
    )


def _says_nothing(wait: Wait | None) -> bool:
    return wait is None or wait.kind in _SAY_NOTHING or is_anonymous(wait)


def _locate_hang(case: Case, outcome: Outcome, graph: WaitGraph) -> Verdict:
    """Return which ranks, where, in which call and waiting for what."""
    job = case.job
    roles, guessed, notes = find_roles(case, graph)
    culprit = first_culprit(case, roles)
    place, checkpoint = find_place(case, culprit)
    subject = choose_shown_rank(case, roles)
    view = case.view(subject) if subject else None
    call = subject.announced if subject else ""
    if view is not None:
        call = find_call(view, job, call)
    known = bool(roles.culprit) or subject is not None
    verdict = make_verdict_skeleton(job, case.ranks, outcome, roles)
    return replace(
        verdict,
        checkpoint=place,
        where=tuple(locate_culprit(case, f, graph) for r in roles.culprit if (f := case.facts(r))),
        component=find_component(view, subject or culprit, job, checkpoint) if known else None,
        call=call or None,
        frame=(format_innermost_frame(view.frames) or None) if view else None,
        waits_for=find_culprit_wait(case, roles, graph),
        seen_by=best_rung([subject]) if view and subject else verdict.seen_by,
        guessed=guessed,
        notes=(*verdict.notes, *notes),
        said=verdict.said if roles.culprit else (*verdict.said, *notes),
    )


def _add_cause(case: Case, graph: WaitGraph, verdict: Verdict) -> Verdict:
    """Return `verdict` with its cause, and what to try: what avoids the cause before all else."""
    failed: list[str] = []
    scene = Scene(case.job, case.ranks, verdict, case.rank_waits, graph)
    cause = find_likeliest_cause(scene, failed)
    if cause is not None and cause.id in (THREAD_STUCK, CHILD_DIED):
        cause = _choose_with_thread(cause, _find_cause_of_thread(case, scene, failed))
    elif cause is None or cause.id in _STANDS_STILL or _is_for_another(case, scene, cause):
        cause = _find_cause_of_child(case, scene, failed, cause) or cause
    known = find_known_cause(cause.id) if cause else None
    component = verdict.component if verdict.outcome in ("hang", "slow") else None
    return replace(
        verdict,
        cause=cause,
        try_=list_remedies(
            component,
            case.job.command,
            known.toggles if known else (),
            ours=bool(case.job.pipeline),
            libraries=_find_libraries(case),
            without=known.cannot_help if known else (),
        ),
        notes=(*verdict.notes, *failed),
    )


def _choose_with_thread(cause: Cause, of_thread: Cause | None) -> Cause:
    """Return the cause to name where the main thread may wait for a thread that has one of its own:
    that a child has died may be part of it.
    """
    if of_thread is None:
        return cause
    better = cause.id == THREAD_STUCK or of_thread.agreement > cause.agreement
    return of_thread if better else cause


def _find_cause_of_thread(case: Case, scene: Scene, failed: list[str]) -> Cause | None:
    """Return why the thread is stuck that the subject's main thread waits for, None if nothing is
    known of that.
    """
    found, subject = find_still_holder(scene) or find_stuck_thread(scene), scene.subject
    if waits_for_a_thread(scene) is None:
        return None
    if found is None or found[0].os_id is None or subject is None:
        return None
    looks = tuple(put_thread_first(look, found[0].os_id) for look in subject.looks)
    cause = _find_cause_in(case, scene, replace(subject, looks=looks), failed)
    return None if cause is None or cause.id == THREAD_STUCK else cause


def _is_for_another(case: Case, scene: Scene, cause: Cause) -> bool:
    """Return whether the subject waits until another process reads: the next stage of a pipeline of
    programs, or one that is kept from it by what is none of the job's processes.
    """
    wait, subject = scene.verdict.waits_for, scene.subject
    if cause.id not in (PIPE_UNREAD, SOCKET_UNREAD) or wait is None or subject is None:
        return False
    if cause.id == PIPE_UNREAD and wait.pid in scene.beside:
        return True
    last = find_blocked_processes(scene)[-1].look
    kept = scene.graph.waits.get((subject.rank, last.pid)) if scene.graph is not None else None
    family = {look.pid for look in scene.children} | {one.pid for one in case.ranks}
    is_kept = is_kept_by_others(kept, family) or (kept is not None and kept.kind == "sleep")
    return last.pid != subject.pid and is_kept


def _find_cause_of_child(
    case: Case, scene: Scene, failed: list[str], known: Cause | None
) -> Cause | None:
    """Return why the last of the processes stands still that wait for one another below the
    subject, None if nothing is known of that, or no more than a guess where that it is this
    process (`known`, None: nothing says so) is none. That a process without further threads waits
    for what one would have to give is a guess where it wrote of none that one had ended.
    """
    subject, last = scene.subject, _drop_idle_workers(find_blocked_processes(scene))[-1:]
    if subject is None or not last or last[0].look.pid == subject.pid or not last[0].threads:
        return None
    pid, beside = last[0].look.pid, last[0].look.pid in scene.beside
    owner = next((one for one in scene.neighbours if pid in one.beside), subject)
    family = [looks for looks in (owner.looks, *owner.children) if looks]
    looks = next((looks for looks in family if looks[-1].pid == pid), ())
    if not looks:
        return None
    children = find_descendants(owner, pid)
    inside = replace(subject, pid=pid, looks=looks, children=children, beside=())
    around = replace(scene, relatives={looks[-1].pid: looks for looks in family})
    cause = _find_cause_in(case, around, inside, failed, asks_thread=True)
    if cause is None or cause.id in _STANDS_STILL:
        return None
    if cause.level == "guess" and (known is None or known.level != "guess"):
        return None
    if cause.id == DEAD_PRODUCER and cause.agreement < _A_THREAD_ENDED:
        return None
    whose = "which was started beside the ranks" if beside else "a process of its own"
    who = f"It waits for {format_process(last[0].look)}, {whose}"
    why = re.sub(r"^The rank ", "It ", cause.why)
    return replace(cause, why=f"{who}. There: {why}", process=pid)


def _drop_idle_workers(found: Sequence[ProcessSnapshot]) -> Sequence[ProcessSnapshot]:
    """Return processes that wait for one another without those at their end that wait for the next
    task of the one before, which has started them: why that one waits it tells itself.
    """
    end = len(found)
    while end > 2 and is_idle_worker(found[end - 1].look):
        if found[end - 1].look.ppid != found[end - 2].look.pid:
            break
        end -= 1
    return found[:end]


def _find_cause_in(
    case: Case, scene: Scene, inside: RankFacts, failed: list[str], asks_thread: bool = False
) -> Cause | None:
    """Return the likeliest cause of a scene whose subject is seen as `inside` has it: what is asked
    of a rank's main thread is asked of that. `asks_thread`: where it is that a thread is stuck, why
    that is.
    """
    wait = find_blocking_reason(
        inside.looks, ProcessContext(inside, case.snapshot.single_ranks.processes)
    )
    view = merge_looks(inside.looks)
    seen = replace(case.rank_waits[inside.rank], wait=wait, own_wait=wait, view=view)
    asked = replace(
        scene,
        ranks=tuple(inside if facts.rank == inside.rank else facts for facts in scene.ranks),
        verdict=replace(scene.verdict, waits_for=wait),
        situations={**scene.situations, inside.rank: seen},
    )
    cause = find_likeliest_cause(asked, failed)
    if asks_thread and cause is not None and cause.id in (THREAD_STUCK, CHILD_DIED):
        return _choose_with_thread(cause, _find_cause_of_thread(case, asked, failed))
    return cause


def _find_libraries(case: Case) -> set[str]:
    """Return the libraries that the job is seen to use: by what ranks told of their versions, and
    by the files in their stacks.
    """
    last = [look for facts in case.ranks for look in facts.looks[-1:]]
    # The ranks of a large job share their stacks, each of which is one object.
    stacks = {id(thread.frames): thread.frames for look in last for thread in look.threads}
    files = {frame.file for frames in stacks.values() for frame in frames}
    return {*case.job.versions, *(folder for file in files for folder in file.split("/")[:-1])}
