"""The pipeline of one module alone, called again with the inputs of a real job.

The table is at the end; before it is step 10: each input through the module, what it takes and what
differs.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from typing import TYPE_CHECKING, Any

from ..base.checkpoints import Phase
from ..base.errors import UsageError
from ..base.files import write_whole
from . import module_steps, replay_inputs, replay_preflight
from .replay_inputs import Result, format_summary, format_table, results_as_data
from .shared_steps import PhasesInOrder, make_pipeline, row

if TYPE_CHECKING:
    from ..rank.walk import Context
    from .module_call import CallResult, TensorDifference
    from .module_inputs import Turn
    from .module_steps import ReadyModule
    from .replay_inputs import ChosenInputs


_SETTINGS = ("compile", "attention", "packing", "zero", "precision", "backward")
_SAY_EVERY = 0.2  # seconds between two lines of inputs that went well: all are in the table


def replay(context: Context) -> list[Result]:
    """Call the module with each input; return what came of them. Raises what the module does, and
    RuntimeError where outputs differ by more than --tolerance, and UsageError where nothing was
    compared with it.
    """
    walk = _Walk(context)
    began = time.monotonic()
    try:
        walk.through(context.products["inputs"])
    finally:
        _say_results(walk.results, time.monotonic() - began, context)
    walk.phase("teardown")
    group = context.imports("torch.distributed")
    if context.products["distributed"] and group.is_initialized():
        context.about_to("torch.distributed.destroy_process_group")
        group.destroy_process_group()
    return walk.results


class _Walk:
    """Through the inputs of one rank."""

    def __init__(self, context: Context) -> None:
        from .module_call import OutputComparer

        self.results: list[Result] = []
        self.phase = PhasesInOrder(context).begin
        self._context = context
        self._ready: ReadyModule = context.products["ready"]
        self._comparer = OutputComparer(context)
        self._failures: list[str] = []
        self._said = 0.0

    def through(self, chosen: ChosenInputs) -> None:
        """Do all forwards."""
        from .module_inputs import iterate_turns

        self.phase("first_input")
        for turn in iterate_turns(chosen, self._ready, self._context):
            self._one(turn, f"{turn.number} of {chosen.forwards}")
            self._context.pulse(turn.number)
            self.phase("steady")
        if self._failures:
            more = len(self._failures) - 1
            raise RuntimeError(self._failures[0] + (f"; and {more} more" if more else ""))
        self._check_compared()

    def _check_compared(self) -> None:
        args = self._context.args
        compared = any(one.difference is not None for one in self.results)
        if args.tolerance is not None and self.results and not compared:
            raise UsageError(
                f"--tolerance {args.tolerance:g}: nothing was compared, for "
                f"{args.outputs or 'what was captured'} has no output with numbers of these inputs",
                "Write some with --save-outputs DIR, and compare with them: --outputs DIR",
            )

    def _one(self, turn: Turn, which: str) -> None:
        from .module_call import CallResult, call_module

        context, args = self._context, self._context.args
        cls = type(self._ready.module)

        def begins(part: str) -> None:
            self.phase(f"first_{part}")
            words = f" with input {which}, {turn.given.name}"
            loud = not self.results or (not args.quiet and self._is_time)
            context.about_to(f"{cls.__module__}.{cls.__qualname__}.{part}", words, printed=loud)

        called = CallResult()
        try:
            call_module(self._ready, turn.given, args.backward, called, begins)
        except UsageError:
            raise
        except Exception as error:
            self._failed(turn, called, error, which)
            if not args.keep_going:
                error.add_note(f"With input {which}: {turn.path}")
                raise
            return
        if turn.counts:
            self._done(turn, called, which)

    def _failed(self, turn: Turn, called: CallResult, error: Exception, which: str) -> None:
        text = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"[:500]
        self.results.append(self._result(turn, called, raised=text))
        self._failures.append(f"input {which} ({turn.given.name}): {text}")
        self._context.say(f"Input {which} failed after {called.forward_s:.3f} s: {text}")

    def _done(self, turn: Turn, called: CallResult, which: str) -> None:
        from .module_call import describe_excess

        args, found = self._context.args, self._comparer.difference(turn, called.output)
        result = self._result(turn, called, found)
        self.results.append(result)
        if not args.quiet and (result.first or self._is_time):
            self._said = time.monotonic()
            self._context.say(f"Input {which}: {result.in_words()}")
        if args.save_outputs:
            self._keep(turn, called.output)
        why = describe_excess(found, args.tolerance)
        if why is not None:
            self._failures.append(f"input {which} ({turn.given.name}) {why}")

    @property
    def _is_time(self) -> bool:
        """Whether it is long enough ago that an input had a line."""
        return time.monotonic() - self._said >= _SAY_EVERY

    def _keep(self, turn: Turn, output: Any) -> None:
        from .replay_inputs import keep_output

        place, folder = self._context.place, self._context.args.save_outputs
        keep_output(output, folder, turn.path, self._ready.module, place.rank, place.world_size)

    def _result(
        self,
        turn: Turn,
        called: CallResult,
        found: TensorDifference | None = None,
        raised: str = "",
    ) -> Result:
        return Result(
            name=turn.given.name,
            captured_on=turn.given.rank,
            tokens=turn.given.tokens,
            forward_s=called.forward_s,
            backward_s=called.backward_s,
            memory_bytes=called.memory_bytes,
            difference=found.largest if found else None,
            differs_in=found.where if found else "",
            raised=raised,
            first=not self.results,
        )


def _say_results(results: list[Result], seconds: float, context: Context) -> None:
    """Print the table, and write it as JSON into the run folder's logs."""
    if not results:
        return
    for line in (*format_table(results), format_summary(results)):
        context.say(line)
    settings = {name: getattr(context.args, name) for name in _SETTINGS}
    folder = os.path.join(context.run_dir, "logs")
    path = os.path.join(folder, f"replay-rank{context.place.rank}.json")
    os.makedirs(folder, exist_ok=True)
    data = results_as_data(results, settings, context.place.rank, seconds)
    write_whole(path, json.dumps(data, indent=2, allow_nan=False).encode())
    context.say(f"As JSON: {path}")


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


def _add_replay_arguments(group: argparse._ActionsContainer) -> None:
    from ..base.argument_types import count, not_negative

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


# Deadlines in seconds: half a minute for what is local, minutes for what reads gigabytes; a quarter
# of an hour for the first forward, which compiles, and for the first backward.
_PHASES = (
    Phase("first_input", "capture", 120),
    Phase("first_forward", "module", 900),
    Phase("first_backward", "module", 900),
    Phase("steady", "module", None),
    Phase("teardown", "strategy", 120),
)


PIPELINE = make_pipeline(
    "replay",
    (
        row("arguments", "Args parsed", "arguments", 30, replay_preflight.arguments),
        row("inputs", "Captured inputs listed", "capture", 120, replay_inputs.captured_inputs),
        row("preflight", "Preflight passed", "module", 120, replay_preflight.preflight,
            skippable=True),
        row("memory_budget", "Memory budget made", "memory", 300, replay_preflight.memory_budget,
            skippable=True),
        row("module", "Module built", "module", 900, module_steps.module),
        row("distributed", "Process group ready", "strategy", 300, module_steps.distributed),
        row("weights", "Weights loaded", "module", 900, module_steps.weights),
        row("ready", "Module ready", "module", 600, module_steps.ready),
        row("replay", "Inputs replayed", "module", 900, replay, phases=_PHASES),
    ),
    _add_replay_arguments,
    shows_itself="replay",
    aliases=(("model", "module"),),
)  # fmt: skip
