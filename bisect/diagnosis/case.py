"""What a verdict is made from: the job, its ranks as the looks show them, the ranks that nobody
started, and what each rank waits for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import cached_property

from ..base.checkpoints import Checkpoint
from ..base.identity import RankId
from ..base.lazy_dataclass import dataclass
from ..base.rank_facts import NOTHING_MOVES, JobFacts, RankFacts
from .disagreements import Disagreement, find_disagreement, find_unshared_file
from .process.process_snapshot import ProcessSnapshot, merge_looks
from .rank_connections import find_group_partners
from .rank_waits import RankWait
from .rendezvous_claims import (
    claimed_world_size,
    find_other_worlds,
    find_world_size,
    read_group_values,
    read_worlds,
)
from .rounds import OtherRound, find_other_round
from .server_roles import find_roles, find_titles
from .single_ranks import is_gone
from .snapshot import Snapshot

Progress = tuple[int, int]  # checkpoints finished, phases begun


@dataclass(frozen=True)
class Case:
    """What there is to judge."""

    job: JobFacts
    snapshot: Snapshot  # every rank of this node, those never seen included, in order
    absent: tuple[RankId, ...]  # ranks that a process group counts on and that nobody started
    rank_waits: dict[RankId, RankWait]

    @property
    def ranks(self) -> tuple[RankFacts, ...]:
        """The facts of each rank."""
        return self.snapshot.ranks

    @cached_property
    def by_rank(self) -> dict[RankId, RankFacts]:
        """The same by rank."""
        return {facts.rank: facts for facts in self.ranks}

    @cached_property
    def disagreement(self) -> Disagreement | None:
        """What ranks that stand in the same call do not agree about."""
        return find_disagreement(self.ranks, self.rank_waits, self.job.package)

    @cached_property
    def unshared_file(self) -> str:
        """The file by which ranks of several machines look for the others in vain, "" for none."""
        views = {rank: found.view for rank, found in self.rank_waits.items()}
        return find_unshared_file([r for r in self.ranks if not r.finished], views)

    @cached_property
    def group_partners(self) -> dict[RankId, frozenset[RankId]]:
        """With whom each rank is in process groups of some ranks, {} if that is not known."""
        return find_group_partners(self.ranks)

    @cached_property
    def other_round(self) -> OtherRound | None:
        """Which ranks are in another round of a loop than most, all of them in the same place."""
        return find_other_round(self.ranks, self.rank_waits, self.job.package)

    @cached_property
    def server_roles(self) -> dict[RankId, str]:
        """What ranks of an inference server are called in words."""
        return find_titles(self.ranks) | find_roles(self.ranks)

    def facts(self, rank: RankId) -> RankFacts | None:
        """Return the facts of a rank, None if there are none."""
        return self.by_rank.get(rank)

    def view(self, facts: RankFacts) -> ProcessSnapshot | None:
        """Return a rank as its looks show it together, also one that is gone."""
        return self.rank_waits[facts.rank].view or merge_looks(facts.looks)

    def step(self, facts: RankFacts) -> Checkpoint | None:
        """Return the checkpoint that a rank is on its way to."""
        if facts.step is not None:
            return facts.step
        return next((c for c in self.job.table if c.number == reached_checkpoint(facts) + 1), None)

    def progress(self, facts: RankFacts) -> Progress:
        """Return how far a rank came."""
        step = self.step(facts)
        names = [phase.name for phase in step.phases] if step else []
        return reached_checkpoint(facts), names.index(
            facts.phase
        ) + 1 if facts.phase in names else 0


def make_case(job: JobFacts, seen: Snapshot) -> Case:
    """Return the case of a job that ended, or that is called hung."""
    known = {r.rank: r for r in seen.ranks}
    others = _find_other_worlds(seen)
    if others:  # what these count on besides is nobody's fault that is missing
        local = tuple(rank for rank in job.local_ranks if rank in known)
        job = replace(job, world_size=len(known), local_ranks=local)
    hosts = {r.host for r in seen.ranks}
    host = next(iter(hosts)) if len(hosts) == 1 else ""
    for rank in job.local_ranks:
        known.setdefault(rank, make_unseen_rank(rank, host))
    believed = [r for r in known.values() if r.rank not in others]
    world = max(claimed_world_size(believed), job.world_size)
    below = _list_claimed_below(known.values(), world)
    there = (r for rank in sorted(known) if not _is_unseen(r := known[rank]) or rank not in below)
    came = _drop_explained(tuple(there))
    known = {r.rank: r for r in came}
    everyone = _reopen_if_all_finished(came)
    snapshot = seen.update(everyone)
    alone = any(r.environment.get("GROUP_WORLD_SIZE") == "1" for r in everyone)
    claimed = _find_claimed_world(job, snapshot, others, alone or _is_one_node(everyone))
    first = 0 if alone else job.world_size
    missing = sorted({*range(first, claimed), *range(job.world_size)} - known.keys() - below)
    # Some of these are the ranks whose number nobody knows; which ones, nobody can say.
    missing = missing[sum(not isinstance(rank, int) for rank in known) :]
    absent = tuple(r for r in missing if first <= r < claimed)
    remote = tuple(r for r in missing if not first <= r < claimed)
    if 0 < len(absent) <= _count_twins(everyone):  # they have come, each as another
        absent, remote = (), (*absent, *remote)
    masters = job.master_addresses
    found = snapshot.compare_ranks(absent, remote, job.unstarted, masters)
    lonely = [
        r for r, s in found.items() if s.wait and s.wait.kind == "absent_rank" and s.waits_for_peers
    ]
    if not absent and not remote and not job.unstarted and lonely and len(everyone) == 1:
        # A process group of one waits for nobody: at least one more rank was counted on.
        lonely_rank = everyone[0].rank
        absent = (0 if isinstance(lonely_rank, int) and lonely_rank > 0 else 1,)
        found = snapshot.compare_ranks(absent, remote, masters=masters)
    return Case(job, snapshot, absent, found)


def _find_claimed_world(
    job: JobFacts, snapshot: Snapshot, others: Collection[RankId], is_one_node: bool
) -> int:
    """Return for how many ranks the job was started, as those say that do not count on another
    world than most; 0 where none says so.
    """
    claimed = claimed_world_size([r for r in snapshot.ranks if r.rank not in others])
    if not is_one_node or job.ended not in NOTHING_MOVES:
        return claimed
    # All ranks are of this node: what a script has set over that is seen in frames alone.
    views = (one.view for one in snapshot.single_ranks.ranks if one.facts.rank not in others)
    return max(claimed, find_world_size(view.frames for view in views if view is not None))


def _find_other_worlds(seen: Snapshot) -> frozenset[RankId]:
    """Return the ranks that make the group of all for another number of ranks than most do."""
    ranks = seen.single_ranks.ranks
    stacks = {one.facts.rank: one.view.frames for one in ranks if one.view is not None}
    past = [one.facts.rank for one in ranks if one.group == "collective"]
    return find_other_worlds(seen.ranks, read_worlds(stacks), past)


def _list_claimed_below(ranks: Iterable[RankFacts], world: int) -> set[int]:
    """Return as which ranks of that world living processes below these ranks make its first group,
    as torch's own frames say: an engine's worker, say, that a trainer's message has called.
    """
    found: set[int] = set()
    for looks in (looks for facts in ranks for looks in facts.children if looks):
        last = looks[-1]
        main = last.main.frames if last.main is not None and last.state not in "ZX" else ()
        values = read_group_values(main)
        if values.get("world_size") == world and "rank" in values:
            found.add(values["rank"])
    return found


def _is_unseen(facts: RankFacts) -> bool:
    return facts.never_started and facts.pid is None


def _count_twins(ranks: Iterable[RankFacts]) -> int:
    return sum(facts.twin is not None for facts in ranks)


def _drop_explained(ranks: tuple[RankFacts, ...]) -> tuple[RankFacts, ...]:
    """Return the ranks; without those that never came where as many processes, or more, have come
    as a rank that another one is.
    """
    unseen = [facts for facts in ranks if _is_unseen(facts)]
    if len(unseen) > _count_twins(ranks):
        return ranks
    return tuple(facts for facts in ranks if facts not in unseen)


def _is_one_node(ranks: Iterable[RankFacts]) -> bool:
    """Return whether torchrun has started as many ranks on this node as it counts in all."""
    sizes = [
        (r.environment.get("LOCAL_WORLD_SIZE"), r.environment.get("WORLD_SIZE"))
        for r in ranks
        if "TORCHELASTIC_RUN_ID" in r.environment
    ]
    return bool(sizes) and all(here is not None and here == total for here, total in sizes)


def _reopen_if_all_finished(ranks: tuple[RankFacts, ...]) -> tuple[RankFacts, ...]:
    """Return `ranks`; where all have done what they had to do, those whose process does not end
    have not finished: a thread or a child is still waited for.
    """
    if not all(facts.finished for facts in ranks):
        return ranks
    return tuple(facts if is_gone(facts) else replace(facts, finished=False) for facts in ranks)


def make_unseen_rank(rank: RankId, host: str) -> RankFacts:
    """Return a rank that was to be on that host, "" where it is not known, and never came."""
    return RankFacts(rank, host=host, reached=-1, alive=False, never_started=True)


def reached_checkpoint(facts: RankFacts) -> int:
    """Return the last checkpoint of a rank: none at all without a process, 0 without a hello."""
    if facts.never_started:
        return -1 if facts.pid is None else 0
    return facts.reached


def find_least_advanced(
    ranks: Iterable[RankId], progress: Mapping[RankId, Progress]
) -> tuple[RankId, ...]:
    """Return those of `ranks` that came least far, in order."""
    candidates = sorted(ranks)
    least = min((progress[rank] for rank in candidates), default=None)
    return tuple(rank for rank in candidates if progress[rank] == least)


def progress_by_rank(case: Case) -> dict[RankId, Progress]:
    """Return how far each rank came that had more to do, those that nobody started included."""
    found = {r.rank: case.progress(r) for r in case.ranks if not r.finished}
    return found | dict.fromkeys(case.absent, (-1, 0))
