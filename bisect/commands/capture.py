"""Keep the inputs of a module's forward in a running job, without a restart; list and import them.

hangbisect capture on [DIR]              every job that captures into DIR begins, within a second
hangbisect capture off [DIR]             they end it
hangbisect capture status [DIR]          is it on, which ranks capture, why one has stopped
hangbisect capture list [DIR]            what was captured: rank, time, shapes, types, how it ended
hangbisect capture import FILE...        older dumps (.pt, .pkl) as captures; nothing is executed

In the job one line, which costs next to nothing while it is off: hangbisect.capture(module). Or
none: hangbisect run --capture my.module:Class -- torchrun ...
DIR is "captures", or HANGBISECT_CAPTURE_DIR, for the command and for the job.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
from collections import Counter

from ..base.argument_types import count, positive, wrong
from ..base.errors import HangbisectError, UsageError
from . import make_parser

_WHAT = ("on", "off", "status", "list", "import")


def run(argv: list[str]) -> int:
    """Do it; 1 if a file could not be read, else 0."""
    parser = make_parser("capture", __doc__)
    add = parser.add_argument
    most = count("--max-captures", 1)
    add("--max-captures", metavar="N", type=most, help="with on: of each rank (100)")
    gigabytes = positive("--max-gb", "gigabytes")
    add("--max-gb", metavar="G", type=gigabytes, help="with on: of all ranks together (10)")
    add("--into", metavar="DIR", help="with import: where the captures go")
    add("--name", metavar="NAME", default="imported", help="with import: the module's (imported)")
    add("--json", action="store_true", help="with list: as JSON")
    add("what", nargs="?", metavar="WHAT", help=", ".join(_WHAT))
    add("where", nargs="*", metavar="DIR", help='"captures"; with import the dumps')
    args = parser.parse_all(argv)
    if args.what is None:
        raise UsageError(f"capture needs one of {', '.join(_WHAT)}", "hangbisect capture on")
    if args.what not in _WHAT:
        raise wrong("capture", args.what, _WHAT)
    if args.what == "import":
        return _import(args)
    if len(args.where) > 1:
        raise UsageError(f"capture {args.what} takes one folder, not {len(args.where)}")
    from ..captures.capture_file import find_folder

    where = find_folder(*args.where)
    if args.what == "list":
        return _list(where, args.json)
    return _switch(args, where)


def _switch(args: argparse.Namespace, where: str) -> int:
    from ..captures import capture_file
    from ..captures.capture_file import CaptureLimits

    try:
        if args.what == "on":
            default = CaptureLimits()
            limits = CaptureLimits(
                args.max_captures or default.captures, args.max_gb or default.gigabytes
            )
            capture_file.turn_on(where, limits)
        elif args.what == "off" and not capture_file.turn_off(where):
            print(f"hangbisect: it was off already: {where}", file=sys.stderr)
    except OSError as error:
        raise HangbisectError(f"{error.filename}: {error.strerror}") from None
    return _status(where)


def _status(where: str) -> int:
    from ..captures import capture_file
    from ..captures.capture_file import INPUTS, rank_in_name
    from ..captures.reading import format_status

    names = os.listdir(where) if os.path.isdir(where) else []
    captures = Counter(rank_in_name(name) or 0 for name in names if name.endswith(INPUTS))
    text = format_status(
        capture_file.read_switch(where),
        capture_file.read_states(where),
        captures,
        socket.gethostname(),
        where,
    )
    print("\n".join(text))
    return 0


def _list(where: str, as_json: bool) -> int:
    _needs("safetensors")
    from ..base.words import terminal_width
    from ..captures.reading import format_listing, list_folder

    found = list_folder(where)
    if as_json:
        unreadable = [str(error) for error in found.unreadable]
        whole = {"captures": [one.as_data() for one in found.captures], "unreadable": unreadable}
        print(json.dumps({"schema": 1, "folder": where, **whole}, indent=2))
    else:
        print("\n".join(format_listing(found, where, terminal_width())))
    for error in found.unreadable:
        print(f"hangbisect: {error}", file=sys.stderr)
    return 1 if found.unreadable else 0


def _import(args: argparse.Namespace) -> int:
    if not args.where:
        raise UsageError(
            "capture import needs the files to import", "hangbisect capture import dumps/*.pt"
        )
    _needs("safetensors", "torch")
    from ..captures.capture_file import find_folder
    from ..captures.reading import Unreadable, convert_dump

    into, refused = find_folder(args.into or ""), 0
    try:
        os.makedirs(into, exist_ok=True)
        for file in args.where:
            try:
                made = convert_dump(file, into, args.name)
            except Unreadable as error:
                refused += 1
                print(f"hangbisect: {error}", file=sys.stderr)
                continue
            print(made.path)
            for name in made.left_out:
                print(f"hangbisect: {file}: {name} could not be kept", file=sys.stderr)
    except OSError as error:
        raise HangbisectError(f"{error.filename or into}: {error.strerror}") from None
    return 1 if refused else 0


def _needs(*packages: str) -> None:
    from importlib.util import find_spec

    for package in packages:
        if find_spec(package) is None:
            raise HangbisectError(f"{package} is not installed here", f"pip install {package}")
