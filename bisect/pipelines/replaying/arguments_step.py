"""Step 2: what the arguments of a replay may say, as far as no library is needed to tell."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from ...captures import places
from ...errors import UsageError
from ..argument_checks import as_path, check_is_there, hide_gpus
from ..script_steps import in_words

if TYPE_CHECKING:
    from ...rank.context import Context

_CHOOSES = ("captures", "captured", "rank", "max_inputs")


def arguments(context: Context) -> argparse.Namespace:
    """Check what belongs together and what needs the file system; return the arguments."""
    args = context.args
    check_together(args, context.place.world_size)
    for file in args.input_file:
        check_is_there("--input-file", file, context)
    for flag in ("captures", "weights", "outputs"):
        check_is_there(f"--{flag}", getattr(args, flag), context)
    check_kinds(args)
    check_is_there("--model", as_path(args.model), context)
    hide_gpus(args.accelerator)
    context.say("Arguments: " + in_words(args))
    return args


def check_together(args: argparse.Namespace, ranks: int) -> None:
    """Raise UsageError for arguments that contradict one another."""
    chosen = [name for name in _CHOOSES if getattr(args, name) is not None]
    if args.input_file and chosen:
        flag = f"--{chosen[0].replace('_', '-')}"
        raise UsageError(
            f"--input-file names the captures, and {flag} chooses among those of a folder",
            "Leave one of them out.",
        )
    if args.model and "module" in args.use:
        raise UsageError(
            f"--model and --use module={args.use['module']} both say what the module is",
            "Leave one of them out; the function can read given.args.weights.",
        )
    if args.keep_going and ranks > 1:
        raise UsageError(
            f"--keep-going is for one rank, and there are {ranks}: after a failure the others wait "
            "for collectives that this rank no longer joins",
            "Leave it out, or start one rank: python -m bisect --pipeline replay",
        )
    if args.outputs and args.save_outputs and _same(args.outputs, args.save_outputs):
        raise UsageError(
            f"--outputs and --save-outputs both name {args.outputs}: what is compared with would "
            "be overwritten",
            "Name another folder.",
        )
    if args.save_outputs and any(_same(one, args.save_outputs) for one in _captured_in(args)):
        raise UsageError(
            f"--save-outputs names {args.save_outputs}, where the captures are: the outputs that "
            "were captured would be overwritten",
            "Name another folder.",
        )


def check_kinds(args: argparse.Namespace) -> None:
    """Raise UsageError for a file where a folder is wanted, the reverse, and a folder into which
    nothing can be written.
    """
    for file in args.input_file:
        if os.path.isdir(file):
            raise UsageError(
                f"--input-file names {file!r}, which is a folder",
                f"All that was captured in it: --captures {file}",
            )
    for flag, instead in (
        ("captures", "This one capture alone: --input-file {}"),
        ("outputs", "It takes the folder of an earlier --save-outputs."),
    ):
        path = getattr(args, flag)
        if path is not None and not os.path.isdir(path):
            raise UsageError(f"--{flag} names {path!r}, which is no folder", instead.format(path))
    for flag in ("save_module", "save_outputs"):
        path = getattr(args, flag)
        if path is not None and not _can_be_written(path):
            raise UsageError(
                f"--{flag.replace('_', '-')} names {path!r}, and no file can be written there",
                "Name a folder of yours; it is made if it is not there.",
            )


def _can_be_written(folder: str) -> bool:
    there = os.path.abspath(folder)
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    return os.path.isdir(there) and os.access(there, os.W_OK | os.X_OK)


def _captured_in(args: argparse.Namespace) -> list[str]:
    if args.input_file:
        return [os.path.dirname(os.path.abspath(file)) for file in args.input_file]
    return [places.folder(args.captures or "")]


def _same(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)
