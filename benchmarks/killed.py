"""The monitor, a rank or the launcher killed with SIGKILL at a random moment.

Afterwards nothing may be left, neither a process nor a file, and a sentence must say what
happened. Moments are drawn over the whole life of the victim, every fifth from its first 100 ms
and every fifth from its last 300 ms.

    python benchmarks/killed.py [--runs 30] [--seed 2] [--only monitor]
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import time
from dataclasses import dataclass

from jobs import Ended, Running, folder, start, wide

VICTIMS = ["monitor", "rank1", "launcher", "rank0"]
STEPS = ["--fast-dev-run", "1"]
# What may be said of each, ours first.
SENTENCES = {
    "monitor": [r"The monitor died.*", r"Going on without the watch.*"],
    "rank": [r"culprit .*signal 9.*", r"Signal 9 \(SIGKILL\) received by PID \d+"],
    "launcher": [r"The launcher is gone.*"],
}


@dataclass(frozen=True)
class Shot:
    """Whom to kill, and how many seconds after it appeared."""

    victim: str
    after: float


def lives() -> dict[str, float]:
    """Return for how many seconds each victim lives in a healthy run."""
    began: dict[str, float] = {}
    ended: dict[str, float] = {}
    with folder() as here:
        running = start(STEPS, here)
        while running.process.poll() is None:
            for victim in VICTIMS:
                if running.pid_of(victim) is not None:
                    ended[victim] = time.monotonic()
                    began.setdefault(victim, ended[victim])
            time.sleep(0.05)
        running.end(10)
    return {victim: ended[victim] - began[victim] for victim in VICTIMS}


def shots(runs: int, seed: int, lives: dict[str, float], victims: list[str]) -> list[Shot]:
    """Draw whom to kill when, the same for the same seed."""
    draw = random.Random(seed)
    found = []
    for number in range(runs):
        victim = victims[number % len(victims)]
        life = lives[victim]
        turn = number // len(victims) % 5
        span = {0: (0.0, 0.1), 4: (life - 0.3, life)}.get(turn, (0.0, life))
        found.append(Shot(victim, draw.uniform(*span)))
    return found


def kill(running: Running, shot: Shot) -> str:
    """Kill the victim at its moment; return how it went: "killed", or why not."""
    pid = running.wait_for(shot.victim)
    if pid is None:
        return "never seen"
    descriptor = os.pidfd_open(pid)
    try:
        time.sleep(shot.after)
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        return "killed"
    except ProcessLookupError:
        return "was over"
    finally:
        os.close(descriptor)


def sentence(victim: str, ended: Ended) -> str:
    """Return what was said about it, "" for nothing."""
    for pattern in SENTENCES[victim.rstrip("01")]:
        for text in (ended.err, ended.out):
            if found := re.search(pattern, text):
                return " ".join(found[0].split())
    return ""


def wrong(shot: Shot, how: str, ended: Ended, said: str) -> str:
    """Return what is wrong with the end of a run, "" if nothing is."""
    if not ended.clean:
        return f"left {ended.left_processes} {ended.left_files}"
    outcome = ended.verdict.get("outcome")
    if how != "killed":
        return "" if outcome == "ok" else f"outcome {outcome}"
    # The shell says of a launcher that was killed before any rank started that it was killed.
    if not said and not (shot.victim == "launcher" and "][R" not in ended.out):
        return "" if outcome == "ok" else "nothing said"
    if (outcome == "ok" and ended.status > 0) or (shot.victim == "monitor" and outcome != "ok"):
        return f"outcome {outcome}, status {ended.status}"
    return ""


def main() -> int:
    """Kill them; return 1 if a run left something or said nothing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--only", help=f"one of {', '.join(VICTIMS)}")
    options = parser.parse_args()
    victims = [options.only] if options.only else VICTIMS
    widths = (3, 8, 7, 10, 11, 6, 5, 62, 0)
    head = ("run", "victim", "after", "how", "outcome", "status", "s", "said", "result")
    print(wide(head, widths))
    wrongs = 0
    for number, shot in enumerate(shots(options.runs, options.seed, lives(), victims), 1):
        with folder() as here:
            running = start(STEPS, here)
            how = kill(running, shot)
            ended = running.end(120)
        said = sentence(shot.victim, ended)
        result = wrong(shot, how, ended, said)
        wrongs += bool(result)
        row = (number, shot.victim, shot.after, how, ended.verdict.get("outcome"), ended.status)
        print(wide((*row, ended.seconds, said[:62], result or "right"), widths), flush=True)
    print(f"{options.runs - wrongs} of {options.runs} left nothing and said what happened")
    return int(wrongs > 0)


if __name__ == "__main__":
    raise SystemExit(main())
