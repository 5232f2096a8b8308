"""Put the changes of toggles into the calls that they are about, once those are there."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from ...steering import IN_CODE
from ..after_import import after_import
from ..torch_functions import parameters
from ..tracebacks import without_our_frame
from ..watched.wrapping import Function, in_place_of, put
from .call import Call, Said
from .row import Row
from .table import TABLE


def steer(wanted: Mapping[str, str], tell: Callable[[str], None]) -> None:
    """Change the calls of the toggles in `wanted` to their values, whenever they are made."""
    steering = _Steering(wanted, tell)
    by_module: dict[str, list[Row]] = {}
    for row in TABLE:
        if row.toggle in wanted:
            by_module.setdefault(row.module, []).append(row)
    for name, rows in by_module.items():
        after_import(name, functools.partial(steering.take, rows))


class _Steering:
    """What is wanted, and what has been told."""

    def __init__(self, wanted: Mapping[str, str], tell: Callable[[str], None]) -> None:
        self._wanted = wanted
        self._tell = tell
        self._told: set[str] = set()

    def take(self, rows: Sequence[Row], module: ModuleType) -> None:
        """Put the changes of `rows` into the calls that `module` defines; raises nothing."""
        for attribute in dict.fromkeys(row.attribute for row in rows):
            mine = [row for row in rows if row.attribute == attribute]
            with contextlib.suppress(Exception):
                if attribute:
                    put(module, attribute, functools.partial(self._steered, mine))
                else:
                    self._change(mine, Call((), (), {}))

    def _steered(self, rows: Sequence[Row], function: Function) -> Function:
        names = parameters(function)

        def call(*args: Any, **kwargs: Any) -> Any:
            made = self._change(rows, Call(names, args, kwargs))
            if made.answered:
                return made.answer
            try:
                return function(*made.args, **made.kwargs)
            except BaseException as error:
                without_our_frame(error)
                raise

        return in_place_of(function, call)

    def _change(self, rows: Sequence[Row], call: Call) -> Call:
        """Return the call as it is to be made; a change that fails is left out."""
        for row in rows:
            with contextlib.suppress(Exception):
                said = row.change(call, self._wanted[row.toggle])
                if said is not None:
                    self._reached(row.toggle, said)
        return call

    def _reached(self, toggle: str, said: Said) -> None:
        words = [f"{toggle}={said.value}" if said.value else toggle]
        words += [toggle + IN_CODE] if said.in_code else []
        for word in words:
            if word not in self._told:
                self._told.add(word)
                self._tell(word)
