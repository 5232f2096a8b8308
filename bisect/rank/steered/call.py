"""A call under way: its arguments by name, which may be changed before it is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


class Call:
    """The arguments of one call, or the answer that it gets in place of being made."""

    def __init__(
        self, names: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """`names` are those of the parameters that may be given by position."""
        self.args, self.kwargs = list(args), dict(kwargs)
        self.answered = False
        self.answer: Any = None
        self._names = names

    def get(self, name: str, default: Any = None) -> Any:
        """Return the argument of that name, `default` where it is not given."""
        at = self._at(name)
        return self.kwargs.get(name, default) if at is None else self.args[at]

    def set(self, name: str, value: Any) -> None:
        """Change the argument, or give it."""
        at = self._at(name)
        if at is None:
            self.kwargs[name] = value
        else:
            self.args[at] = value

    def reset(self, name: str, value: Any) -> None:
        """Change the argument if it is given: what is not given may not exist."""
        if name in self.kwargs or self._at(name) is not None:
            self.set(name, value)

    def answer_with(self, answer: Any) -> None:
        """Do not make the call: who makes it gets `answer`."""
        self.answered, self.answer = True, answer

    def _at(self, name: str) -> int | None:
        at = self._names.index(name) if name in self._names else len(self.args)
        return at if at < len(self.args) else None


@dataclass(frozen=True)
class Said:
    """What a script itself says of a toggle in a call."""

    value: str = ""  # "" where that is not known
    in_code: bool = False  # it overrules what the environment says


# Returns what the script says, None where the call is not what the toggle is about, and changes the
# call to the value, unless that is steering.ASKED.
Change = Callable[[Call, str], Said | None]
