"""An answer walked back: each toggle from its safest value to the least that still passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..facts import Setting
from .asking import Ask, Choice, Steps


def walked_back(answer: Sequence[Choice]) -> Steps[Setting]:
    """Return the least values of these toggles that pass; at their safest they do.

    Of each toggle the values are tried from the least change on, with the others as they are then,
    so none below the one that is returned passes. A toggle that is no longer needed with the
    milder values of the others is left out.
    """
    setting: dict[str, str] = {choice.name: choice.safest for choice in answer}
    for choice in answer:
        for value in choice.values[:-1]:
            milder = {**setting, choice.name: value}
            why = f"does {choice.name}={value} do?"
            if (yield Ask(milder, why)) == "pass":
                setting = milder
                break
    milder_than_safest = any(setting[choice.name] != choice.safest for choice in answer)
    if milder_than_safest:
        return (yield from _without_each(setting))
    return setting


def _without_each(setting: Mapping[str, str]) -> Steps[Setting]:
    for name in reversed(list(setting)):
        less = {other: value for other, value in setting.items() if other != name}
        if less and (yield Ask(less, f"can {name} be left out?")) == "pass":
            return (yield from _without_each(less))
    return setting
