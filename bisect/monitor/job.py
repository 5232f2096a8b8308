"""The job as one monitor holds it: settings, members, connections, files, and its voice."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..checkpoints import Checkpoint, Phase
from ..pipelines import find as find_pipeline
from ..rank.lines import write_within
from ..stamp import stamp
from ..version import VERSION
from .clocks import Limits
from .ending import Family
from .known_hang import known_hang
from .live import Live
from .members import Member, Members, Message
from .outer_link import OUTER_VARIABLE, OuterLink
from .rank_logs import RankLogs
from .reports import Reports
from .run_folder import RunFolder

if TYPE_CHECKING:
    from ..facts import MachineFacts, SlowStep, Verdict

VOICE_LIMIT = 1.0  # seconds for a reader to take what we print


class Job:
    """Everything that the monitor's parts share."""

    def __init__(self, settings: Message) -> None:
        """`settings` are what the first rank sent along (commands/walk.py)."""
        self.settings = settings
        self.place: Message = settings["place"]
        self.own = bool(settings.get("own"))  # ranks run a script of the user's own
        self.table = (
            find_pipeline("startup").table
            if self.own
            else tuple(_checkpoint(row) for row in settings["table"])
        )
        self.limits = Limits(
            settings["timeout"],
            settings["stall"],
            settings["slow_limit"],
            known=known_hang(settings["known_hang"]) if settings["known_hang"] else None,
        )
        self.members = Members(self.table, self.own)
        self.family = Family(self.place["job"])
        self.folder = Path(settings["folder"])
        self.files = RunFolder(self.folder / "run", self._run_path())
        self.temporary = Path(self._temporary_path())
        self.lockstep = settings["barriers"] == "lockstep"
        self.began = time.monotonic()
        self.writers: dict[int, asyncio.StreamWriter] = {}
        self.signal_writers: dict[int, asyncio.StreamWriter] = {}  # by rank
        self.pidfds: dict[int, int] = {}  # by rank
        self.logs = RankLogs()
        self.notes: list[str] = []
        self._is_heard = True
        self.outer = OuterLink(os.environ.get(OUTER_VARIABLE, ""))
        self.slow_steps: dict[tuple[int, str | None], SlowStep] = {}
        self.barrier_opened: str | None = None
        self.tried_to_look = False
        self.cannot_look = ""  # why py-spy may not look, "" if it may
        self.machine: MachineFacts | None = None  # as it was when a clock ran out
        self.verdict: Verdict | None = None
        self.closed_at = 0.0
        self.was_ended = False  # by us
        self.closing = False  # a verdict is being made or was made
        self.changed = asyncio.Event()
        self.live = Live(self)
        self.reports = Reports()

    @property
    def attempt(self) -> int:
        """TORCHELASTIC_RESTART_COUNT of this attempt."""
        return int(self.place["attempt"])

    @property
    def started(self) -> float:
        """When the first rank of the job began."""
        return min((m.began for m in self.members), default=self.began)

    @property
    def ends_it(self) -> bool:
        """A verdict ends the job. A script of the user's own goes on, unless that was asked for."""
        return str(self.settings["on_hang"]) == "end"

    @property
    def is_quiet(self) -> bool:
        """All ranks are past what is watched, or have ended."""
        members = list(self.members)
        return bool(members) and all(m.quiet or m.left for m in members)

    # ---- talking to ranks and to people ------------------------------------------------------

    def tell(self, rank: int, kind: str, **fields: Any) -> None:
        """Send a message to a rank, if it is still there. Never waits."""
        writer = self.writers.get(rank)
        if writer is not None and not writer.is_closing():
            writer.write(json.dumps({"t": kind, **fields}).encode() + b"\n")

    def say(self, text: str) -> None:
        """Print a line of the monitor's own on the starter's stderr."""
        stamp = time.strftime("%H:%M:%S") + f".{int(time.time() % 1 * 1000):03d}"
        elapsed = time.monotonic() - self.started
        for line in text.splitlines():
            self._print(2, f"[{stamp}][+{elapsed:.3f}s][watch][PID:{os.getpid()}] {line}\n")
        self.note(None, {"t": "said", "text": text})

    def print_answer(self, text: str) -> None:
        """Print the verdict: on stderr for people, on stdout for --json."""
        self._print(1 if self.settings["json"] else 2, text.rstrip("\n") + "\n")

    def hush(self) -> None:
        """Close what we print on: a monitor that kept it open would hold `torchrun | cat`."""
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 1)
        os.dup2(null, 2)
        os.close(null)

    def note(self, member: Member | None, event: Message) -> None:
        """Write an event down."""
        event = {"at": time.monotonic(), **event}
        if member is not None:
            event["rank"] = member.rank
        self.files.note(event)
        self.outer.tell(event)

    def _print(self, fd: int, text: str) -> None:
        # After a first line that nobody took, the next ones do not wait again.
        patience = VOICE_LIMIT if self._is_heard else 0.0
        data = text.encode(errors="replace")
        self._is_heard = write_within(fd, data, patience) == len(data)

    # ---- where things are ----------------------------------------------------------------------

    def stacks_file(self, rank: int) -> Path:
        """Return where a rank's own timer leaves its stacks."""
        return self.folder / f"stacks-of-rank-{rank}.txt"

    def _run_path(self) -> Path:
        start = Path(str(self.settings["folder_of_start"]))
        if self.settings["run_dir"]:
            path = start / str(self.settings["run_dir"])
            if self.place["node"]:  # nodes may share the file system
                path /= f"node-{self.place['node']}"
            return path / f"attempt-{self.attempt}" if self.attempt else path
        # A monitor that takes over goes on in the same folder.
        chosen = self.folder / "run-path"
        if not chosen.exists():
            chosen.write_text(str(start / "runs" / self._new_name()))
        return Path(chosen.read_text())

    def _new_name(self) -> str:
        return f"{stamp()}-{self.place['job'][:6]}"

    def _temporary_path(self) -> str:
        base = str(self.settings["folder_for_temporary_files"])
        return os.path.join(base, f"hangbisect-{self.place['job']}.tmp")

    def choose_another_run_folder(self) -> None:
        """The run folder cannot be made: use one in the folder for temporary files."""
        why = self.files.trouble
        base = Path(self.settings["folder_for_temporary_files"]) / f"hangbisect-runs-{os.getuid()}"
        self.files.move(base / self._new_name())
        (self.folder / "run-path").write_text(str(self.files.path))
        self.say(f"The run folder cannot be used ({why}): using {self.files.path}")

    def remove_folder(self) -> None:
        """Remove our socket's folder; of what has no copy elsewhere, the files stay."""
        if self.files.is_published:
            shutil.rmtree(self.folder, ignore_errors=True)
        elif self.folder.is_dir():
            for entry in self.folder.iterdir():
                if entry != self.files.stage:
                    entry.unlink(missing_ok=True)

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


def _checkpoint(row: Message) -> Checkpoint:
    phases = tuple(Phase(**phase) for phase in row["phases"])
    return Checkpoint(**{**row, "phases": phases})
