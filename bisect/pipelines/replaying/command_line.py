"""The arguments of the pipeline `replay`; its toggles are in the table of toggles."""

from __future__ import annotations

import argparse

_TEXTS = (
    ("--captures", "DIR", "the captured inputs (captures, or what HANGBISECT_CAPTURE_DIR says)"),
    ("--captured", "NAME", "of several modules whose inputs are there: the one of this name"),
    ("--model", "NAME_OR_PATH", "without --use module=...: AutoModelForCausalLM (a small one)"),
    (
        "--weights",
        "PATH",
        "into the module: a file of safetensors or of torch.save's, or a folder with a model",
    ),
    ("--save-module", "DIR", "write the module's weights there, for --weights of a later run"),
    ("--save-outputs", "DIR", "keep what each input gives, as captures keep it"),
    (
        "--outputs",
        "DIR",
        "what is compared with: outputs of an earlier --save-outputs (those captured)",
    ),
)
_SWITCHES = (
    ("--backward", "do a backward pass too: from the loss, or the sum of what is returned"),
    ("--keep-going", "after an input that fails go on with the next (one rank alone)"),
    ("--quiet", "no lines for each input: the table alone"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this pipeline, and the toggles that its steps read."""
    from ...bisection.toggles import toggles_of
    from ...rank.argument_types import count, not_negative
    from ...rank.toggle_argument import add_toggles

    group = parser.add_argument_group("the pipeline")
    add = group.add_argument
    for flag, metavar, help in _TEXTS:
        add(flag, metavar=metavar, help=help)
    add(
        "--input-file",
        metavar="FILE",
        action="append",
        default=[],
        help="this capture alone; repeatable",
    )
    add("--rank", metavar="N", type=count("--rank"), help="inputs of this rank alone, on each rank")
    add("--max-inputs", metavar="N", type=count("--max-inputs", 1),
        help="of each rank the first N (all)")  # fmt: skip
    add("--batch-size", metavar="N", type=count("--batch-size", 1), default=2,
        help="rows of the input that is made where none was captured (2)")  # fmt: skip
    add("--length", metavar="N", type=count("--length", 1), default=64,
        help="and how long each is (64)")  # fmt: skip
    add(
        "--tolerance",
        metavar="X",
        type=not_negative("--tolerance"),
        help="fail where an output differs by more than X; 0: by anything",
    )
    for flag, help in _SWITCHES:
        add(flag, action="store_true", help=help)
    add_toggles(group, toggles_of("replay"))
