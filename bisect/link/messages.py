"""What is said over the link once both sides are known: a type for each kind of message.

What a type does not know is passed over, for a newer version may say it; a message whose kind is
not known is none. Times are seconds; `at` is on the sender's monotonic clock.
"""

from __future__ import annotations

from typing import Any, Literal, TypeVar

from ..base.json_codec import Misfit, from_json, to_short_json
from ..base.lazy_dataclass import dataclass
from ..base.masking import mask_values
from ..base.node_record import NodeRecord
from ..base.rank_facts import Ended, LongestStep, RankFacts
from ..base.rank_state import TableState
from ..base.verdict_facts import Verdict
from .channel import Message, Refused

_MOST_RANKS = 1 << 16  # of a node
_LONGEST_NAME = 256  # characters
_MOST_CHECKPOINTS = 1 << 16
_MOST_SECONDS = 60.0  # from one beat to the next

RankState = Literal["runs", "held", "left", "failed"]
T = TypeVar("T")


# ---- what a node says ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Join:
    """A node is there, with these ranks."""

    node: str  # its name in the job: "0", "1", or its host
    host: str
    process: str  # tells one monitor of a node from the next
    ranks: tuple[int, ...]
    world_size: int


@dataclass(frozen=True)
class RankWord:
    """Where one rank is."""

    rank: int
    state: RankState
    step: str  # "12 First training step done", or its title in a script of the user's own
    phase: str | None = None
    still: float = 0.0  # nothing of it has moved for so long
    waits: str = ""  # for whom it has told us that it waits


@dataclass(frozen=True)
class Digest:
    """Where all ranks of a node are: sent when that changes, and every two seconds."""

    ranks: tuple[RankWord, ...]


@dataclass(frozen=True)
class Echo:
    """The answer to a beat: both clocks at one moment, to within half of the way there and back."""

    beat: float  # `at` of the beat
    at: float


@dataclass(frozen=True)
class RankKind:
    """What is equal for ranks that wait for others in the same place: a hash (look_summary.py)."""

    rank: int
    kind: str


@dataclass(frozen=True)
class Report:
    """What a node knows of its ranks: as its clock ran out, or as the lead asked (`inquiry`).
    `looks` messages of the kind RankLooks follow, and one of each rank of `alike` that the lead
    wants.
    """

    inquiry: int  # 0: nobody asked
    record: NodeRecord
    verdict: Verdict  # the node's own
    ended: Ended
    looks: int
    proof: str = ""  # in words, why its job cannot go on
    is_over: bool = False  # the deadline of a step is over
    asks: bool = False  # for a verdict: its ranks stand still
    alike: tuple[RankKind, ...] = ()  # of a large job: ranks of which there may be many
    longest: LongestStep | None = None  # of a node that has ended well

    @property
    def has_ended_well(self) -> bool:
        """Return whether all ranks of the node have, and nothing of them is left to look at."""
        return self.verdict.outcome == "ok"


@dataclass(frozen=True)
class RankLooks:
    """One rank of a report: all but its looks and children, and a summary of these
    (look_summary.py).
    """

    facts: RankFacts
    looks: Any = ()
    parts: Any = ()


@dataclass(frozen=True)
class LookDetails:
    """What the lead asked for: stacks by their hash, texts by pid. `is_last`: no more follow."""

    stacks: Any = ()
    texts: Any = ()
    is_last: bool = False


@dataclass(frozen=True)
class TableRow:
    """Ranks of a node that are in one place, for the table of all nodes."""

    ranks: tuple[int, ...]
    state: TableState
    place: str  # "9 WandbLogger ready"
    number: int  # of the step that they are in
    since: float  # they are there for so long
    left: float | None = None  # until the deadline, below zero where that is over; None: none
    still: float | None = None  # nothing of them has moved for so long; None: something has
    moves: str = ""


@dataclass(frozen=True)
class TableRows:
    """What a node has for the table of all nodes, where the lead shows one; now and then."""

    rows: tuple[TableRow, ...]


@dataclass(frozen=True)
class AtBarrier:
    """All ranks of a node have reached a checkpoint, and are held there for those of the others."""

    number: int  # 0: no checkpoint yet; -1: it holds its ranks no more
    first: float = 0.0  # seconds since its ranks started in which the first one came, and the last
    last: float = 0.0


@dataclass(frozen=True)
class Done:
    """Rank 0 is through with what others wait for; told to the lead, and by it to all."""

    what: str


@dataclass(frozen=True)
class Leave:
    """A node, or the lead, watches no longer, or ends."""

    why: str


# ---- what the lead says --------------------------------------------------------------------------


@dataclass(frozen=True)
class NodeWord:
    """What a node is told of another one."""

    node: str
    host: str
    ranks: tuple[int, ...]
    last_word: str  # where its ranks were, in words
    age: float  # so long ago it was heard last
    address: str = ""  # by which it reached the lead


@dataclass(frozen=True)
class Beat:
    """The lead is there. Now and then with what it knows of the others."""

    at: float
    nodes: tuple[NodeWord, ...] | None = None
    every: float = 1.0  # seconds until the next one; more where there are thousands of nodes
    behind: tuple[str, ...] = ()  # hosts, some of them, for which others are held in a barrier
    has_table: bool = False  # it shows a table of the ranks of all nodes


@dataclass(frozen=True)
class Barriers:
    """The last checkpoint that all nodes have reached: behind later ones each holds its ranks."""

    opened: int  # -1: no node is to wait for another one


@dataclass(frozen=True)
class LookNow:
    """All nodes are to look at their ranks at this moment, and to report."""

    inquiry: int


@dataclass(frozen=True)
class WantDetails:
    """A node is to tell these stacks, of those that it reported, and the texts of the looks at
    these processes; or these ranks, of those that are alike.
    """

    stacks: tuple[str, ...] = ()
    pids: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True)
class Judged:
    """What came of an inquiry: a verdict on all nodes, or why there is none yet."""

    inquiry: int
    verdict: Verdict | None = None
    goes_on: str = ""
    failed: bool = False  # the lead cannot judge: each node does for itself
    proof: str = ""
    is_over: bool = False
    lead: str = ""  # the host that gives the verdict


# ---- there and back ------------------------------------------------------------------------------

FromNode = (
    Join | Digest | Echo | Report | RankLooks | LookDetails | TableRows | AtBarrier | Done | Leave
)
Said = FromNode | Beat | Barriers | LookNow | WantDetails | Judged
KINDS: dict[str, type] = {
    "join": Join,
    "digest": Digest,
    "echo": Echo,
    "report": Report,
    "looks": RankLooks,
    "details": LookDetails,
    "rows": TableRows,
    "at": AtBarrier,
    "done": Done,
    "leave": Leave,
    "beat": Beat,
    "barriers": Barriers,
    "look": LookNow,
    "want": WantDetails,
    "judged": Judged,
}
FROM_NODE = (
    *(Join, Digest, Echo, Report, RankLooks, LookDetails, TableRows),
    *(AtBarrier, Done, Leave),
)
PARTS_OF_REPORTS = ("report", "looks", "details")
FROM_LEAD = (Beat, Barriers, Done, LookNow, WantDetails, Judged, Leave)
_NAMES = {kind: name for name, kind in KINDS.items()}


def encode(said: Said) -> Message:
    """Return a message as JSON, its texts without secrets; what has its default is left out."""
    message: Message = mask_values(to_short_json(said))
    return {**message, "t": _NAMES[type(said)]}


def decode(message: Message, allowed: tuple[type, ...]) -> Said | None:
    """Return what a message says, None for a kind that is not known or not for us. Raises Refused
    if it says what cannot be.
    """
    kind = KINDS.get(message["t"])
    if kind is None or kind not in allowed:
        return None
    try:
        said: Said = from_json(kind, message)
    except Misfit as error:
        wrong = str(error)[:200]
        raise Refused(f"a message ({message['t']}) says what cannot be: {wrong}") from None
    if why_not := _find_impossible(said):
        raise Refused(f"a message ({message['t']}) says what cannot be: {why_not}")
    return said


def _find_impossible(said: Said) -> str:
    """Return what is of the right type and cannot be all the same, "" for nothing."""
    if isinstance(said, Join):
        if len(said.ranks) > _MOST_RANKS or len({*said.ranks}) < len(said.ranks):
            return "a rank is there twice, or too many are"
        if any(not 0 <= rank < said.world_size for rank in said.ranks):
            return f"a rank beyond 0 to {said.world_size - 1}"
        if not said.node or max(map(len, (said.node, said.host, said.process))) > _LONGEST_NAME:
            return "a node without a name, or with one that is too long"
    if isinstance(said, AtBarrier) and not (
        -1 <= said.number <= _MOST_CHECKPOINTS and 0 <= said.first <= said.last
    ):
        return f"all ranks at checkpoint {said.number}, from {said.first} s to {said.last} s"
    if isinstance(said, Done) and len(said.what) > _LONGEST_NAME:
        return "what was done has too long a name"
    if isinstance(said, Digest) and any(word.still < 0 for word in said.ranks):
        return "a time below zero"
    if isinstance(said, TableRows) and any(min(r.since, r.still or 0.0) < 0 for r in said.rows):
        return "a time below zero"
    if isinstance(said, (Echo, Beat)) and said.at < 0:
        return "a time below zero"
    if isinstance(said, Beat) and not 0 < said.every <= _MOST_SECONDS:
        return f"a beat every {said.every} s"
    if isinstance(said, Report):
        clock, seconds = said.record.clock, said.verdict.seconds
        times = (clock.monotonic, clock.wall, seconds.total, seconds.still or 0.0)
        if min(times) < 0:
            return "a time below zero"
        if said.looks < 0 or said.looks > _MOST_RANKS:
            return f"{said.looks} looks"
        if len({one.rank for one in said.alike}) < len(said.alike):
            return "a rank is there twice"
    return ""


def list_ranks(said: Said) -> tuple[object, ...]:
    """Return the ranks that a message of a node speaks of."""
    if isinstance(said, Digest):
        return tuple(word.rank for word in said.ranks)
    if isinstance(said, TableRows):
        return tuple(rank for row in said.rows for rank in row.ranks)
    if isinstance(said, Report):
        alike = (one.rank for one in said.alike)
        return (*said.record.job.local_ranks, *(r.rank for r in said.record.ranks), *alike)
    return (said.facts.rank,) if isinstance(said, RankLooks) else ()


def describe_rank_words(words: tuple[RankWord, ...], most: int = 3) -> str:
    """Return where ranks are, in words: "rank 1 at 4 Tokenizer loaded, rank 2 left"."""
    lines = []
    for word in words[:most]:
        where = f"{word.step}{f' ({word.phase})' if word.phase else ''}"
        how = {"held": "held after", "left": "left after", "failed": "failed at"}.get(
            word.state, "at"
        )
        lines.append(f"rank {word.rank} {how} {where}")
    more = len(words) - len(lines)
    return ", ".join([*lines, *([f"and {more} more"] if more > 0 else [])])
