"""The answer on a job: in its run folder, and in words or as JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..report.as_json import as_json
from .judging import Judgement
from .run_files import new_run_dir, write

HANG, MOVES = 3, 0  # exit status


@dataclass(frozen=True)
class Wanted:
    """How an answer is wanted."""

    run_dir: Path | None  # None: a new folder; none for a job that moves
    as_object: bool  # the verdict as JSON, on stdout
    pid: int  # by which a new folder is named


def timed(found: Judgement, began: float) -> Judgement:
    """Return a judgement with the time that it took since `began`, on the monotonic clock."""
    took = round(time.monotonic() - began, 3)
    seconds = replace(found.verdict.seconds, to_verdict=took)
    return replace(found, verdict=replace(found.verdict, seconds=seconds))


async def tell(
    found: Judgement,
    wanted: Wanted,
    words: Callable[[str], Sequence[str]],
    further: Sequence[str] = (),
) -> tuple[int, str]:
    """Write what was found and say it; return the exit status, and where the files are, "" if
    there are none. `words` are asked with that; `further` are for the run folder as well.
    """
    where = ""
    if not found.moving or wanted.run_dir is not None:
        place, trouble = await write(found, wanted.run_dir or new_run_dir(wanted.pid), further)
        where = str(place)
        if trouble:
            said = f"The run folder could not be written: {trouble}; files are in {place}"
            print(said, file=sys.stderr, flush=True)
    if wanted.as_object:
        print(json.dumps(as_json(found.verdict), ensure_ascii=False), flush=True)
    else:
        print("\n".join(words(where)), flush=True)
    return HANG if found.verdict.outcome == "hang" else MOVES, where
