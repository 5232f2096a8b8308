"""The same hangs, looked at by what people use today and by hangbisect.

Who names the culprit, and after how long? Four ranks, real processes. Each way has SECONDS
(--patience) until it may speak:

- monitored barrier: torch.distributed.monitored_barrier(timeout, wait_all_ranks=True) after every
  step of a plain script, as its documentation recommends.
- library: nothing is added to that script; the time limit of its process group is so short.
- /stacks and /pyspy_dump: torch.distributed.debug.start_debug_server() as the first thing of that
  script; somebody looks at its pages so many seconds after the hang began.
- hangbisect: the same functions hang in its pipeline, with --stall of so many seconds.

"named" means: the text says which ranks are at fault, all of them and no others. The reading is
kind: "Please check rank 0 logs" names rank 0 if rank 0 reports nobody, and a number at the end of
the store's key that nobody set names that rank. A page with the stacks of all ranks names nobody;
"shown" means that the culprits' stacks are on it, with the call that hangs. Seconds are counted
from the moment in which the last culprit began to hang. Torch's debug server wants the package
tabulate.

    python benchmarks/what_people_use.py [--kinds rank0,gil] [--ways library,hangbisect] [--json F]
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from jobs import wide
from plain_hangs import KINDS
from ways_to_look import WAYS, Said

_WIDTHS = (9, 32, 8, 18, 6, 6, 6, 0)
_HEAD = ("hang", "what", "culprit", "looked at by", "named", "shown", "s", "words")


def _row(said: Said) -> str:
    kind = KINDS[said.kind]
    shown = {None: "-", True: "yes", False: "no"}[said.shown]
    culprit = ",".join(map(str, kind.ranks))
    named = said.named(kind)
    if named == "wrong":
        named = "not " + ",".join(map(str, said.ranks or ()))
    seconds = "-" if said.seconds is None else f"{said.seconds:.1f}"
    words = " ".join(said.words.split())[:70]
    row = (said.kind, kind.title, culprit, said.way, named, shown, seconds, words)
    return wide(row, _WIDTHS)


def _summary(all_said: list[Said]) -> str:
    lines = []
    for way in dict.fromkeys(said.way for said in all_said):
        mine = [said for said in all_said if said.way == way]
        named = [said for said in mine if said.named(KINDS[said.kind]) == "yes"]
        wrong = sum(said.named(KINDS[said.kind]) == "wrong" for said in mine)
        shown = sum(bool(said.shown) for said in mine)
        times = sorted(said.seconds for said in named if said.seconds is not None)
        typical = f", after {times[len(times) // 2]:.1f} s (median)" if times else ""
        also = f", stacks shown {shown}" if way.startswith("/") else ""
        blamed = f", wrong ranks {wrong}" if wrong else ""
        lines.append(
            f"{way:18} named the culprit {len(named)} of {len(mine)}{typical}{blamed}{also}"
        )
    return "\n".join(lines)


def main() -> int:
    """Run them all; return 1 if hangbisect did not name a culprit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--patience", type=float, default=10.0, help="seconds")
    parser.add_argument("--json", type=Path, help="write all that was said into a file")
    options = parser.parse_args()
    print(wide(_HEAD, _WIDTHS))
    all_said: list[Said] = []
    for name in options.kinds.split(","):
        for way in options.ways.split(","):
            for said in WAYS[way](name, options.patience):
                all_said.append(said)
                print(_row(said), flush=True)
    print(_summary(all_said))
    if options.json:
        options.json.write_text(json.dumps([asdict(said) for said in all_said], indent=1))
    ours = [said for said in all_said if said.way == "hangbisect"]
    return int(any(said.named(KINDS[said.kind]) != "yes" for said in ours))


if __name__ == "__main__":
    raise SystemExit(main())
