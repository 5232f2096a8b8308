"""Say what on this machine and in this environment would make a job hang, before it does.

hangbisect doctor                                   here, in seconds
torchrun --nproc_per_node=2 -m bisect doctor        once a node; the nodes connect to every other
srun hangbisect doctor                              the same in a job of Slurm's

Each line is ok, warning, problem or not known, with the value and the next step; only what is not
ok is shown without --all. It changes nothing: no file is written, no signal sent, no process left.
Exit status: 0 ok or warnings only, 1 a problem, 2 the command line is wrong. Under torchrun the
status is torchrun's own.
"""

from __future__ import annotations

import json
import os
import sys

from ..base.argument_types import positive
from ..base.words import terminal_width
from . import make_parser

_LIMIT, _LIMIT_OF_NODES = 10.0, 30.0  # seconds


def run(argv: list[str]) -> int:
    """Examine this node, if this is its first rank; print the findings, return the exit status."""
    parser = make_parser("doctor", __doc__)
    add = parser.add_argument
    add("--all", action="store_true", help="show what is ok, too")
    add("--json", action="store_true", help="everything as JSON, a line a node")
    add("--plain", action="store_true", help="no colours")
    limit_help = f"time limit of all checks ({_LIMIT:g}; {_LIMIT_OF_NODES:g} with several nodes)"
    add("--limit", metavar="SECONDS", type=positive("--limit"), help=limit_help)
    args = parser.parse_all(argv)
    from ..base.place import find_place

    place = find_place()
    from ..doctor import catalogue
    from ..doctor.catalogue import FAMILIES
    from ..doctor.examination import Setting, ancestors, examine

    above = tuple(ancestors())
    setting = Setting(
        environ=dict(os.environ),
        place=place,
        ancestors=tuple(one for _, one in above),
        pids=tuple(pid for pid, _ in above),
    )
    if place.local_rank != 0 and setting.is_launched:
        return 0  # one of this node speaks
    limit = args.limit or (_LIMIT if setting.nodes == 1 else _LIMIT_OF_NODES)
    found = examine(setting.within(limit), FAMILIES)
    if args.json:
        text = json.dumps(
            catalogue.examination_json(found, place.host, place.node), ensure_ascii=False
        )
    else:
        terminal = sys.stdout.isatty()
        dumb = os.environ.get("TERM") == "dumb" or "NO_COLOR" in os.environ or args.plain
        where = place.host + (f" (node {place.node})" if setting.nodes > 1 else "")
        report = catalogue.format_examination(
            found, where, everything=args.all, width=terminal_width(), colours=terminal and not dumb
        )
        text = "\n".join(report)
    # One write: the reports of several nodes must not mix.
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
    return 1 if found.level == "problem" else 0
