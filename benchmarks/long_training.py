"""A training that goes on for minutes, under clocks much shorter: it is never late and never hung.

`--max-steps` is what a default run has, 10000; the program ends it with SIGTERM after the minutes
asked for, and the outcome must be `interrupted`. Nothing may have been said of it before.

    python benchmarks/long_training.py [--minutes 5] [--busy 0] [--timeout 15] [--stall 5]
"""

from __future__ import annotations

import argparse
import signal
import time

from default_settings import events
from jobs import Running, busy, folder, start, wide

STARTING = 90.0  # seconds until the first step
SAID = ("is late", "stands still", "SLOW", "HANG", "Taken back", "Barrier opened")


def trained(running: Running, seconds: float) -> float:
    """Let it train so long; return the seconds that it trained before it ended, if it did."""
    limit = time.monotonic() + STARTING
    while "Phase steady" not in running.said() and time.monotonic() < limit:
        if running.process.poll() is not None:
            return 0.0
        time.sleep(0.1)
    began = time.monotonic()
    while running.process.poll() is None and time.monotonic() < began + seconds:
        time.sleep(0.2)
    return time.monotonic() - began


def main() -> int:
    """Train; return 1 if it was called anything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--max-steps", default="10000")
    parser.add_argument("--timeout", default="15")
    parser.add_argument("--stall", default="5")
    parser.add_argument("--busy", type=int, default=0, help="processes that burn CPU meanwhile")
    options = parser.parse_args()
    clocks = ["--timeout", options.timeout, "--stall", options.stall]
    with folder() as here, busy(options.busy):
        running = start(["--max-steps", options.max_steps, *clocks], here)
        seconds = trained(running, 60 * options.minutes)
        by_itself = running.process.poll() is not None
        running.process.send_signal(signal.SIGTERM)
        ended = running.end(60)
        steps = [e["step"] for e in events(ended.run_dir) if e["t"] == "pulse"]
    outcome = ended.verdict.get("outcome")
    expected = "ok" if by_itself else "interrupted"
    said = [line for line in ended.err.splitlines() if any(word in line for word in SAID)]
    widths = (9, 6, 11, 6, 12, 0)
    print(wide(("trained s", "steps", "outcome", "status", "slow steps", "left"), widths))
    slow = len(ended.verdict.get("slow_steps", ()))
    left = "" if ended.clean else f"{ended.left_processes} {ended.left_files}"
    print(wide((seconds, max(steps, default=0), outcome, ended.status, slow, left), widths))
    for line in said:
        print(f"said: {line}")
    print(
        f"{max(steps, default=0)} steps in {seconds / 60:.1f} minutes with --timeout "
        f"{options.timeout} --stall {options.stall}: said of it {len(said)} times; "
        f"{outcome} in the end, as {'it ended by itself' if by_itself else 'we ended it'}"
    )
    return int(bool(said) or outcome != expected or not ended.clean)


if __name__ == "__main__":
    raise SystemExit(main())
