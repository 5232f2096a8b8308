"""The job as one monitor holds it: settings, ranks, connections, files, and what it prints; and the
ranks' logs of their collectives, got hold of while ranks live, and asked for later.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from ..base.checkpoints import STARTUP, Checkpoint, Phase
from ..base.deadline import call_with_limit
from ..base.events import Answer, Event, Said, encode
from ..base.files import stamp
from ..base.lazy_dataclass import dataclass
from ..base.loading import LoadDelay, limit_delay
from ..base.rank_state import NodeRanks, RankState
from ..base.typed_messages import Message
from ..base.version import VERSION
from ..evidence.process import started
from ..rank import our_folders
from ..rank.collective_records import open_ring
from ..rank.lines import format_clock, write_within
from .child_processes import LiveTable, Reports
from .clocks import TimeLimits, find_deadlines, parse_known_hang
from .ending import ProcessFamily
from .monitor_process import Failures
from .run_folder import PATH_FILE, TOLD_FILE, RunFolder, name_run
from .watcher_link import OUTER_VARIABLE, TRIAL_VARIABLE, SupervisorLinks

if TYPE_CHECKING:
    from ..base.identity import RankId
    from ..base.rank_facts import CollectiveLog, MachineFacts, SlowStep
    from ..base.verdict_facts import Verdict
    from ..collect.looks import LockHolders
    from ..diagnosis.snapshot import Snapshot
    from ..evidence.process import Life
    from ..evidence.ring_reader import Pulse, RingRead
    from .ended_children import EndedChildren
    from .other_nodes import OtherNodes
    from .server import Server
    from .server_processes import ServerProcesses


LARGEST_ANSWER = 1 << 26  # bytes
RecorderAnswer = tuple[Message, list[bytes]]  # what the rank says of its dumps, and the dumps


@dataclass
class _Recorder:
    """A connection on which a rank answers."""

    writer: asyncio.StreamWriter
    answers: asyncio.Queue[RecorderAnswer] = field(default_factory=asyncio.Queue)


@dataclass(frozen=True)
class HeldBack:
    """A job that stands still and of which too little was seen to judge it."""

    at: float  # monotonic
    seen: Snapshot


class RankLogs:
    """What the monitor holds of each rank's logs."""

    def __init__(self) -> None:
        self._rings: dict[RankId, int] = {}  # descriptors, by rank
        self.opened: dict[tuple[int, int], int] = {}  # before: by pid, and the descriptor there
        self._recorders: dict[RankId, _Recorder] = {}
        self._read: dict[RankId, RingRead] = {}  # what was read last

    def open(self, rank: int, pid: int, fd: int) -> None:
        """Get hold of a rank's ring: from here on it can be read, whatever becomes of the rank."""
        with contextlib.suppress(OSError):
            opened = self.opened.pop((pid, fd), None) or open_ring(pid, fd)
            before = self._rings.pop(rank, None)
            if before is not None:
                os.close(before)
            self._rings[rank] = opened

    async def serve(
        self, hello: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Take a rank's answers until it closes the connection. Raises ValueError for garbage."""
        recorder = self._recorders[int(hello["rank"])] = _Recorder(writer)
        with contextlib.suppress(asyncio.IncompleteReadError):  # it was ended meanwhile
            while line := await reader.readline():
                about: Message = json.loads(line)
                lengths = [int(length) for length in about["lengths"]]
                if sum(lengths) > LARGEST_ANSWER or min(lengths, default=0) < 0:
                    raise ValueError(f"an answer of {sum(lengths)} bytes")
                dumps = [await reader.readexactly(length) for length in lengths]
                recorder.answers.put_nowait((about, dumps))

    async def ask(self, ranks: Iterable[RankId], limit: float) -> dict[RankId, RecorderAnswer]:
        """Ask these ranks for torch's own log; return what came within `limit` seconds."""
        asked = {rank: self._recorders[rank] for rank in ranks if rank in self._recorders}
        answers = await asyncio.gather(*(_ask_recorder(one, limit) for one in asked.values()))
        found = zip(asked, answers, strict=True)
        return {rank: answer for rank, answer in found if answer is not None}

    def read(self, rank: RankId) -> CollectiveLog | None:
        """Return what a rank's ring holds, None if there is none."""
        descriptor = self._rings.get(rank)
        if descriptor is None:
            return None
        from ..evidence.ring_reader import read_ring

        with contextlib.suppress(OSError):
            self._read[rank] = read_ring(descriptor, self._read.get(rank))
            return self._read[rank].log
        return None

    def read_pulse(self, rank: RankId) -> Pulse | None:
        """Return when a rank has done its training steps, None if that is not known."""
        descriptor = self._rings.get(rank)
        if descriptor is None:
            return None
        from ..evidence.ring_reader import read_pulse

        with contextlib.suppress(OSError):
            return read_pulse(descriptor)
        return None

    def read_all(self, ranks: Iterable[RankId], found: dict[RankId, CollectiveLog]) -> None:
        """Put into `found` what the rings of these ranks hold, one after another."""
        for rank in ranks:
            log = self.read(rank)
            if log is not None:
                found[rank] = log


async def _ask_recorder(recorder: _Recorder, limit: float) -> RecorderAnswer | None:
    while not recorder.answers.empty():  # of a question before, answered too late
        recorder.answers.get_nowait()
    if recorder.writer.is_closing():
        return None
    recorder.writer.write(b"?")
    try:
        return await asyncio.wait_for(recorder.answers.get(), limit)
    except TimeoutError:
        return None


MOST_JOBS = 10_000
FIRST_BARRIERS = 0.2  # seconds: ranks hurry through them, and imports would hold them up
VOICE_LIMIT = 1.0  # seconds for a reader to take what we print
FOLDER_LIMIT = 2.0  # seconds to make a folder for temporary files


class Job:
    """Everything that the monitor's parts share."""

    def __init__(self, settings: Message) -> None:
        """`settings` are what the first rank sent along (commands/walk.py)."""
        self.settings = settings
        self.place: Message = settings["place"]
        self.runs_script = bool(settings.get("own"))  # of the user's own, and no walk of ours
        self.table = (
            STARTUP
            if self.runs_script
            else tuple(_parse_checkpoint(row) for row in settings["table"])
        )
        self.limits = TimeLimits(
            settings["timeout"],
            settings["stall"],
            settings["slow_limit"],
            known=parse_known_hang(settings["known_hang"]) if settings["known_hang"] else None,
        )
        self.members = NodeRanks(self.table, self.runs_script)
        self.family = ProcessFamily(self.place["job"])
        self.folder = Path(settings["folder"])
        # The monitor may serve other jobs of the same `hangbisect run`, from the same folder.
        self.is_one_of_several = self.folder.name != f"hangbisect-{self.place['job']}"
        self._prefix = f"{self.place['job']}-" if self.is_one_of_several else ""
        self.files = RunFolder(
            self.folder / f"{self._prefix}run",
            *self._run_path(),
            run=self._run(),
            since=settings.get("since"),
        )
        self.temporary = Path(self._temporary_path())
        self.lockstep = settings["barriers"] == "lockstep"
        self.began = time.monotonic()
        self.writers: dict[int, asyncio.StreamWriter] = {}
        self.signal_writers: dict[int, asyncio.StreamWriter] = {}  # by rank
        self.lives: dict[int, Life] = {}  # by rank
        self.logs = RankLogs()
        self.lock_holders: LockHolders | None = None  # once a process was looked at
        self.server: ServerProcesses | None = None  # of an inference server, that its ranks are of
        self.is_ready = False  # that server
        self.ended_children: EndedChildren | None = None  # of its ranks, once they were sampled
        self.looking = asyncio.Lock()  # one look at a time: one of them may pause who is looked at
        self.notes: list[str] = []
        self.said: list[str] = []  # what libraries tell of it
        self._is_heard = True
        several = "" if self.place["launcher"] else str(self.place["job"])
        self.outer = SupervisorLinks(os.environ.get(OUTER_VARIABLE, ""), several)
        self.failures = Failures(self)
        self.slow_steps: dict[tuple[int, str | None], SlowStep] = {}
        self.barrier_opened: str | None = None
        self.has_waited_to_load = False  # before more than early_messages.py was loaded
        self.tried_to_look = False
        self.cannot_look = ""  # why py-spy may not look, "" if it may
        self.machine: MachineFacts | None = None  # as it was when a clock ran out
        self.verdict: Verdict | None = None
        # By rank that never spoke the member that has started it (monitor/missing_ranks.py).
        self.stands_for: dict[RankId, RankId] = {}
        # Who serves the jobs that the same command has started, this one and some that have ended.
        self.beside: Callable[[], Sequence[Server]] = tuple
        self.judging = asyncio.Lock()  # one of these at a time
        self.beside_since = 0.0  # since when it stands still and waits for these to be judged
        self.silent_until = 0.0  # monotonic; what was only silent is not judged again before
        # When it was last called silent for a time limit that was known, and until when that runs.
        self.limit_told: tuple[float, float] | None = None
        self.held_back: HeldBack | None = None
        self.paused = ""  # why nothing of it is to run here: it was stopped, or frozen
        self.closed_at = 0.0
        self.was_ended = False  # by us
        self.closing = False  # a verdict is being made or was made
        self.changed = asyncio.Event()
        self.nodes: OtherNodes | None = None  # of a job on several
        self.live = LiveTable(self)
        self.reports = Reports()

    @property
    def attempt(self) -> int:
        """TORCHELASTIC_RESTART_COUNT of this attempt."""
        return int(self.place["attempt"])

    @property
    def started(self) -> float:
        """When the first rank of the job began."""
        return min((m.began for m in self.members), default=self.began)

    def find_members(self, ranks: Iterable[RankId]) -> set[RankId]:
        """Return the members that speak for these ranks: themselves, or the program that has
        started ranks which never spoke.
        """
        return {self.stands_for.get(rank, rank) for rank in ranks}

    def find_deadlines(self, verdict: Verdict) -> dict[int, float]:
        """Return by rank when (monotonic) the deadlines of those who stand still are over."""
        stands = self.find_members((*verdict.ranks.culprit, *verdict.ranks.stuck))
        return find_deadlines(self.members, stands, self.limits)

    @property
    def trains(self) -> bool:
        """Ranks of a script of the user's own are past their first training steps."""
        return self.runs_script and any(one.trained is not None for one in self.members)

    def has_no_deadline(self, verdict: Verdict) -> bool:
        """Return whether who stands still is silent only until a known time limit is over: where a
        step of a walk has no deadline, and in a search before a training. Else a script of the
        user's own is silent for as long as it stands.
        """
        if self.runs_script:
            return self.is_trial and not self.trains
        return not self.find_deadlines(verdict)

    @property
    def ends_it(self) -> bool:
        """A verdict ends the job. A script of the user's own goes on, unless that was asked for."""
        return str(self.settings["on_hang"]) == "end"

    @property
    def is_trial(self) -> bool:
        """It is one of many starts of a search, each of which is ended where it hangs."""
        return os.environ.get(TRIAL_VARIABLE) == "1"

    @property
    def is_quiet(self) -> bool:
        """All ranks are past what is watched, or have ended."""
        members = list(self.members)
        return bool(members) and all(m.quiet or m.left for m in members)

    async def wait_to_load(self) -> None:
        """Wait before more is loaded than listening takes: the ranks need the processors for their
        own start. Those of a script of the user's own need nothing of it until one of them ends.
        """
        if not self.runs_script:
            await asyncio.sleep(FIRST_BARRIERS)
            return
        if self.has_waited_to_load:
            return
        limits = limit_delay(self.limits.stall, self.settings["limit"])
        delay = LoadDelay(limits, since=self.started)
        while not self.changed.is_set() and (seconds := delay.next_wait()):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.changed.wait(), seconds)

    # ---- talking to ranks and to people ------------------------------------------------------

    def tell(self, rank: int, answer: Answer) -> None:
        """Send an answer to a rank, if it is still there. Never waits."""
        writer = self.writers.get(rank)
        if writer is not None and not writer.is_closing() and not _has_hung_up(writer):
            writer.write(json.dumps(encode(answer)).encode() + b"\n")

    def say(self, text: str) -> None:
        """Print a line of the monitor's own on the starter's stderr."""
        clock = format_clock(time.time())
        elapsed = time.monotonic() - self.started
        for line in text.splitlines():
            self._print(2, f"[{clock}][+{elapsed:.3f}s][watch][PID:{os.getpid()}] {line}\n")
        self.note(None, Said(text=text))

    def sum_up(self, number: int, ranks: str, first: float, last: float) -> None:
        """Print one line for a checkpoint that all of these ranks have reached, the first and the
        last of them so many seconds after they started.
        """
        title = next(one.title for one in self.table if one.number == number)
        self.say(f"CHECKPOINT {number}: {title}  ranks {ranks}, +{first:.1f} s to +{last:.1f} s")

    def print_answer(self, text: str) -> None:
        """Print the verdict: on stderr for people, on stdout for --json."""
        self._print(1 if self.settings["json"] else 2, text.rstrip("\n") + "\n")

    def hush(self) -> None:
        """Close what we print on: a monitor that kept it open would hold `torchrun | cat`."""
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 1)
        os.dup2(null, 2)
        os.close(null)

    def note(self, member: RankState | None, event: Event) -> None:
        """Write an event down."""
        rank = event.rank if member is None else member.rank
        event = event.replace(at=event.at or time.monotonic(), rank=rank)
        self.files.note(encode(event))
        self.outer.tell(event)

    def _print(self, fd: int, text: str) -> None:
        # After a first line that was not taken, the next ones do not wait again.
        patience = VOICE_LIMIT if self._is_heard else 0.0
        data = text.encode(errors="replace")
        self._is_heard = write_within(fd, data, patience) == len(data)

    # ---- where things are ----------------------------------------------------------------------

    def stacks_file(self, rank: int) -> Path:
        """Return where a rank's own timer leaves its stacks."""
        return self.folder / f"{self._prefix}stacks-of-rank-{rank}.txt"

    def _run_path(self) -> tuple[Path, list[str]]:
        """Return where the run folder is to be, and what is inside that for this monitor."""
        chosen = self.folder / f"{self._prefix}{PATH_FILE}"
        with contextlib.suppress(OSError):  # a monitor that takes over goes on in the same folder
            return Path(chosen.read_text()), []
        start = Path(str(self.settings["folder_of_start"]))
        if not self.settings["run_dir"]:
            return start / "runs" / self._new_name(), []
        # Nodes may share the file system.
        name = self.place["node_name"]
        inside = [f"node-{name}"] if name else []
        if (number := self._number_of_job()) > 1:
            inside.append(f"job-{number}")
        if self.attempt:
            inside.append(f"attempt-{self.attempt}")
        return start / str(self.settings["run_dir"]), inside

    def _run(self) -> str:
        """Return what all have in common on this node that write into one run folder."""
        launcher = int(self.place["launcher_pid"])
        mark = os.environ.get(OUTER_VARIABLE) or f"{launcher}-{started(launcher)}"
        return name_run(mark)

    def note_run_folder(self) -> None:
        """Leave word for a monitor that takes over; say what became of the run folder."""
        with contextlib.suppress(OSError):
            (self.folder / f"{self._prefix}{PATH_FILE}").write_text(str(self.files.path))
        for sentence in self.files.take_news():
            self.say(sentence)

    def _number_of_job(self) -> int:
        """Return which of the jobs of its `hangbisect run` on this machine this is, from 1: the
        first to ask for a number gets it, and has it in each of its attempts.
        """
        mark = os.environ.get(OUTER_VARIABLE)
        # A script may start several at once, which have a port each; torchrun's attempts have too.
        port = "" if "TORCHELASTIC_RUN_ID" in os.environ else os.environ.get("MASTER_PORT", "")
        who = f"launcher-{self.place['launcher_pid']}{port and f'-{port}'}"
        if not self.place["launcher"]:
            who = str(self.place["job"])
        node = f"{name}-" if (name := self.place["node_name"]) else ""  # each counts for itself
        for number in range(1, MOST_JOBS if mark else 1):
            taken = os.path.join(os.path.dirname(str(mark)), f"job-{node}{number}")
            try:
                os.symlink(who, taken)  # at once made and written
                return number
            except FileExistsError:
                with contextlib.suppress(OSError):
                    if os.readlink(taken) == who:
                        return number
            except OSError:
                break
        return 1

    def _new_name(self) -> str:
        return f"{stamp()}-{self.place['job'][:6]}"

    def _temporary_path(self) -> str:
        base = str(self.settings["folder_for_temporary_files"])
        return os.path.join(base, f"hangbisect-{self.place['job']}.tmp")

    async def choose_another_run_folder(self) -> None:
        """The run folder cannot be made: use one in a folder for temporary files."""
        why, name = self.files.trouble, self._new_name()
        before = str(self.settings["folder_for_temporary_files"])
        try:
            base = await call_with_limit(_find_folder_of_runs, before, limit=FOLDER_LIMIT)
        except (OSError, TimeoutError, RuntimeError):
            return  # they stay where they are on the node's own disk
        self.files.move(Path(base) / name)
        self.say(f"The run folder cannot be used ({why}): using {self.files.path}")

    def move(self, folder: Path) -> None:
        """Move our socket's folder, with all that is in it. Raises OSError if it cannot be."""
        os.rename(self.folder, folder)
        self.files.follow(self.folder, folder)
        self.folder = folder

    def remove_folder(self, whole: bool = True) -> None:
        """Remove our socket's folder, or only our part of it; of what has no copy elsewhere, the
        files stay.
        """
        self.files.close()
        stage = self.files.stage
        is_kept = not self.files.is_published and bool(self.members.by_rank)
        with contextlib.suppress(OSError):
            is_kept = is_kept and stage is not None and not our_folders.holds_nothing(str(stage))
        if stage is not None and not is_kept:
            shutil.rmtree(stage, ignore_errors=True)
        path, told = (self.folder / f"{self._prefix}{name}" for name in (PATH_FILE, TOLD_FILE))
        if is_kept:
            with contextlib.suppress(OSError):
                os.rename(path, told)
        first = self.folder / f"{self._prefix}run"
        if first != stage:  # it could not be written any more: all of it went on elsewhere
            shutil.rmtree(first, ignore_errors=True)
        with contextlib.suppress(OSError):
            for entry in list(self.folder.iterdir()):
                if entry not in (stage, told) and entry.name.startswith(self._prefix):
                    with contextlib.suppress(OSError):
                        entry.unlink(missing_ok=True)
            is_empty = our_folders.holds_nothing(str(self.folder))
            if whole and (is_empty or not any(self.folder.glob("*run"))):
                shutil.rmtree(self.folder, ignore_errors=True)

    def remove_temporary_files(self) -> None:
        """Remove what the job's processes left in its folder for temporary files."""
        shutil.rmtree(self.temporary, ignore_errors=True)

    def versions(self) -> dict[str, str]:
        """Return the versions of what took part."""
        versions = {"hangbisect": VERSION}
        first = next(iter(self.members), None)
        if first is not None:
            versions["python"] = first.python
            versions.update(first.versions)
        return versions


def _find_folder_of_runs(before: str) -> str:
    """Return a folder for runs, made for this user alone: in the folder for temporary files, else
    where there is room. Raises OSError.
    """
    name = f"hangbisect-runs-{os.getuid()}"
    for base in (before, "/tmp", *our_folders.bases()):
        with contextlib.suppress(OSError):
            our_folders.make(os.path.join(base, name))
            return os.path.join(base, name)
    return our_folders.make_new(f"{name}-")


def _has_hung_up(writer: asyncio.StreamWriter) -> bool:
    """Return whether the other side is gone. Writing to it would close this one as well, with what
    is still to be read there (asyncio, _SelectorSocketTransport.write).
    """
    poll = select.poll()
    poll.register(writer.get_extra_info("socket"), 0)  # POLLHUP is told in any case (poll(2))
    return any(event & select.POLLHUP for _, event in poll.poll(0))


def _parse_checkpoint(row: Message) -> Checkpoint:
    phases = tuple(Phase(**phase) for phase in row["phases"])
    return Checkpoint(**{**row, "phases": phases})
