"""Messages of JSON that have a type: what a class with annotations says of its fields is checked as
it is read, and what does not fit raises nothing.

Not dataclasses: ranks and monitors load this before all else, and forty of those take 10 ms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

if TYPE_CHECKING:
    from typing import Self, TypeGuard, dataclass_transform
else:  # ranks may be of Python 3.9

    def dataclass_transform(**_):
        return lambda made: made


Message = dict[str, Any]  # as JSON has it
LARGEST_NUMBER = 1 << 40  # of what is told: pids, bytes, seconds since 1970
HIGHEST_RANK = 1 << 24
ABSENT: Any = object()  # a value that is not there, or is none of its type


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value of JSON is a number to reckon with."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return abs(value) < LARGEST_NUMBER


def is_rank(value: object) -> TypeGuard[int]:
    """Return whether a value of JSON may be a rank's number."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < HIGHEST_RANK


Rank = int  # the number of a rank, or of a checkpoint
_CHECKS: dict[str, Callable[[Any], bool]] = {  # by the words of an annotation
    "Rank": is_rank,
    "int": lambda value: is_number(value) and isinstance(value, int),
    "float": is_number,
    "str": lambda value: isinstance(value, str),
    "bool": lambda value: isinstance(value, bool),
}


class Field:
    """A field of a message: what reads a value of JSON (ABSENT if it is none of the type), and the
    default (ABSENT: none).
    """

    __slots__ = ("default", "may_be_none", "reads")

    def __init__(self, hint: str, default: Any) -> None:
        """`hint` is its annotation."""
        self.reads = _make_reader(hint.removesuffix(" | None"))
        self.may_be_none = hint.endswith(" | None")
        self.default = default


def _make_reader(hint: str) -> Callable[[Any], Any]:
    outer, _, inner = hint.removesuffix("]").partition("[")
    fits = _CHECKS[inner.rpartition(", ")[2] if outer == "Mapping" else inner[:-5] or outer]

    def read_all(value: Any) -> Any:
        is_list = isinstance(value, (list, tuple)) and all(map(fits, value))
        return tuple(value) if is_list else ABSENT

    def read_named(value: Any) -> Any:
        """What does not fit is left out. JSON has numbers as texts where they are names."""
        if not isinstance(value, dict):
            return ABSENT
        named = {name: one for name, one in value.items() if fits(one)}
        if inner.startswith("str"):
            return named
        return {int(n): one for n, one in named.items() if str(n).isdecimal() and len(str(n)) < 8}

    if outer == "Mapping":
        return read_named
    return read_all if inner else lambda value: value if fits(value) else ABSENT


@dataclass_transform(kw_only_default=True, frozen_default=True)
class TypedMessage:
    """Makes of a class with annotations what a frozen dataclass is, with keywords alone."""

    kind: ClassVar[str] = ""  # its "t" in JSON
    outer: ClassVar[tuple[str, ...] | None] = None  # of an event
    _fields: ClassVar[dict[str, Field]]

    def __init__(self, **values: Any) -> None:
        known = fields_of(type(self))
        made = {name: values.get(name, field.default) for name, field in known.items()}
        wrong = [*(values.keys() - known), *(n for n, value in made.items() if value is ABSENT)]
        if wrong:
            raise TypeError(f"{type(self).__name__}: {', '.join(wrong)}")
        self.__dict__.update(made)

    def replace(self, **values: Any) -> Self:
        """Return it with other values of these fields."""
        return type(self)(**{**self.__dict__, **values})

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen: {name}")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]  # some fields are mappings

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{n}={v!r}' for n, v in self.__dict__.items())})"


def fields_of(kind: type[TypedMessage]) -> dict[str, Field]:
    """Return the fields of a kind of messages by name. Made when first asked for: a rank that loads
    this needs those of few.
    """
    known: dict[str, Field] | None = kind.__dict__.get("_fields")
    if known is None:
        above = kind.__mro__[1]
        known = {} if kind is TypedMessage else dict(fields_of(above))
        for name, hint in kind.__annotations__.items() if kind is not TypedMessage else ():
            # Where a class has no annotations, Python 3.9 shows those of the class above.
            if not hint.startswith("ClassVar"):
                known[name] = Field(hint, kind.__dict__.get(name, ABSENT))
        kind._fields = known
    return known


_T = TypeVar("_T", bound=TypedMessage)


def decode_as(kinds: Mapping[str, type[_T]], said: Mapping[str, Any]) -> _T | None:
    """Return what is said as one of `kinds`, None where it is none of them, or does not fit."""
    kind = said.get("t")
    found = kinds.get(kind) if isinstance(kind, str) else None
    values = read_fields(found, said) if found is not None else None
    if found is None or values is None:
        return None
    made = object.__new__(found)
    made.__dict__.update(values)
    return made


def read_fields(kind: type[TypedMessage], said: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what an object of JSON says of each field of a kind, the default where that is nothing
    or no value of its type; None where there is no default.
    """
    values = {}
    for name, field in fields_of(kind).items():
        value = said.get(name, ABSENT)
        if value is not ABSENT and not (value is None and field.may_be_none):
            value = field.reads(value)
        if value is ABSENT:
            value = None if field.may_be_none and field.default is ABSENT else field.default
            if value is ABSENT:
                return None
        values[name] = value
    return values
