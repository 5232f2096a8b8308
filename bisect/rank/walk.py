"""Walk a pipeline on one rank: each step, its line, its barrier."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from .context import Context
from .lines import Lines
from .link import Link
from .sight import StackTimer
from .users_own import load, wants_one

if TYPE_CHECKING:
    from ..pipelines.pipeline import Step


def walk(steps: Sequence[Step], context: Context, lines: Lines, link: Link) -> None:
    """Do every step up to --until, in order; raises whatever a step raises."""
    timer: StackTimer | None = None
    for step in steps:
        checkpoint = step.checkpoint
        context.begin(checkpoint)
        if timer:
            timer.arm(min(context.deadline or context.args.stall, context.args.stall))
        title = f"CHECKPOINT {checkpoint.number}: {checkpoint.title}"
        if checkpoint.name in context.args.skip:
            title += " (skipped)"
            context.not_exercised.append(f"{checkpoint.title} (skipped)")
        else:
            context.inject(checkpoint.name)
            context.products[checkpoint.name] = _doing(step, context)(context)
        if timer:
            timer.disarm()
        lines.say(title)
        _arrive(checkpoint.number, context, link)
        link.listen()
        _use_temporary_folder(context, link)
        if timer is None and link.welcome.get("stacks_file"):
            timer = StackTimer(link.welcome["stacks_file"])
        if checkpoint.name == context.args.until:
            lines.say(f"Stopping after {checkpoint.name}, as asked")
            context.not_exercised.append(f"what comes after {checkpoint.name} (--until)")
            break


def _arrive(number: int, context: Context, link: Link) -> None:
    link.tell("reached", n=number)
    if context.args.barriers == "lockstep" and link.lockstep:
        link.hold("arrive", n=number, held=True)
    elif context.args.barriers != "off":
        link.tell("arrive", n=number, held=False)


def _use_temporary_folder(context: Context, link: Link) -> None:
    """Have the job's temporary files where the monitor removes them, however the job ends."""
    if context.step.number == 1:
        if not link.welcome:
            link.await_welcome()
        if link.welcome.get("tmp"):
            os.environ["TMPDIR"] = link.welcome["tmp"]


def _is_set(args: argparse.Namespace, name: str, value: str) -> bool:
    return getattr(args, name, None) == value


def _doing(step: Step, context: Context) -> Callable[[Context], Any]:
    """Return the step's function: the user's own (--use), else the pipeline's."""
    place = context.args.use.get(step.checkpoint.name)
    if place is None or (step.given_up and _is_set(context.args, *step.given_up)):
        return step.run
    function = load(place)

    def users_own(context: Context) -> Any:
        given = SimpleNamespace(args=context.args, context=context, **context.products)
        words = (given,) if wants_one(function, place) else ()
        context.about_to(place.replace(":", "."))
        return function(*words)

    return users_own
