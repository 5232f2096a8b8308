"""Step 16: N inference steps, alone or inside of a loop of the user's own.

With `--use step=my.module:function` the function is called once a step. What it does before it asks
for an answer is its observation, the answers are its decision, what it does after them its action.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...rank.users_own import load
from ..model_steps import TEXT
from ..phases_in_order import PhasesInOrder
from .one_generation import Answer, answer
from .words import duration

if TYPE_CHECKING:
    from ...rank.context import Context

STEP = "step"  # of --use
_SHIPPED = 1200  # characters of our own page that are a prompt


@dataclass(frozen=True)
class Given:
    """What a step of the user's own gets."""

    number: int  # from 1
    generate: Callable[[str], str]  # the model's answer to a prompt
    args: Any  # the parsed arguments
    context: Any  # what a pipeline's own step gets: say(text), about_to(call)
    products: Mapping[str, Any]  # of the steps before, by name: "tokenizer", "weights"


def steps(context: Context) -> list[Answer]:
    """Do all steps, and return the answers."""
    place = context.args.use.get(STEP)
    function = load(place) if place else None
    answers: list[Answer] = []
    phase = PhasesInOrder(context).begin
    for number in range(1, context.args.steps + 1):
        began = time.monotonic()
        if number > 1:
            phase("steady")
        if function is None:
            answers.append(answer(_prompt(context), number, context, phase))
        else:
            answers += _step_of_the_user(function, place, number, context, phase)
        took = duration(time.monotonic() - began)
        context.say(f"Step {number} of {context.args.steps} done in {took}")
    return answers


def _step_of_the_user(
    function: Callable[[Given], object],
    place: str,
    number: int,
    context: Context,
    phase: Callable[[str], None],
) -> list[Answer]:
    """Do one step of the user's loop; return what the model answered in it."""
    answers: list[Answer] = []
    at = time.monotonic()

    def told(part: str) -> None:
        nonlocal at
        now = time.monotonic()
        context.say(f"Step {number}: {part} ({duration(now - at)})")
        at = now

    def generate(prompt: str) -> str:
        told("observation received" if not answers else "between two answers")
        answers.append(answer(prompt, number, context, phase))
        told("decision received")
        phase("action")
        return answers[-1].text

    phase("observation")
    context.about_to(place.replace(":", "."), f" for step {number}")
    function(Given(number, generate, context.args, context, context.products))
    told("action executed" if answers else "nothing was generated")
    return answers


def _prompt(context: Context) -> str:
    """Return the text of --prompt-file, else the beginning of a page that ships."""
    named = context.args.prompt_file
    with open(named or TEXT, encoding="utf-8", errors="replace") as file:
        return file.read(-1 if named else _SHIPPED)
