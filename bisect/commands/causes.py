"""List the known causes of hangs, or explain one.

hangbisect causes              all of them, family by family
hangbisect causes ID           why it happens, how it is recognised, what avoids it and at what
                               cost, and who reported it
hangbisect causes [ID] --json  the same, to be read by a program
"""

from __future__ import annotations

import json

from ..base.argument_types import Parser, nearest
from ..base.errors import UsageError


def run(argv: list[str]) -> int:
    """Print the list, or one cause."""
    from ..diagnosis.causes.catalogue import FAMILIES
    from ..report import causes

    parser = Parser(prog="hangbisect causes", epilog=__doc__)
    parser.add_argument("-h", "--help", action="help", help="show this")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("id", nargs="?", metavar="ID", help="the cause to explain")
    args = parser.parse_all(argv)
    everything = {known.id: (known, family) for family in FAMILIES for known in family.causes}
    if args.id is not None and args.id not in everything:
        raise UsageError(
            f"there is no cause {args.id!r}{nearest(args.id, everything)}",
            "`hangbisect causes` lists them all.",
        )
    chosen = list(everything.values()) if args.id is None else [everything[args.id]]
    if args.json:
        data = [causes.cause_json(known, family) for known, family in chosen]
        print(json.dumps(data if args.id is None else data[0], indent=2, ensure_ascii=False))
    elif args.id is None:
        print(causes.list_causes(FAMILIES))
    else:
        print(causes.explain_cause(*chosen[0]))
    return 0
