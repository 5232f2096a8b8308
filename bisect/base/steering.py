"""The words by which toggles are applied inside a script of the user's own, in one variable.

HANGBISECT_STEER="num_workers=0,strategy=?": the rank side (rank/patches.py) changes the arguments
of the calls that a toggle is about, or, for "?", only tells that the script comes to them.
"""

from __future__ import annotations

from collections.abc import Mapping

VARIABLE = "HANGBISECT_STEER"
ASKED = "?"  # in the place of a value: tell when the call is reached, and change nothing
IN_CODE = ":in-code"  # told after a toggle's name: the script says the value itself


def parse_toggle_values(text: str) -> dict[str, str]:
    """Return the values of toggles by name; what is no NAME=VALUE is left out."""
    pairs = [word.partition("=") for word in text.split(",")]
    return {name.strip(): value.strip() for name, _, value in pairs if name.strip() and value}


def format_toggle_values(setting: Mapping[str, str]) -> str:
    """Return the text that parse_toggle_values() reads."""
    return ",".join(f"{name}={value}" for name, value in setting.items())
