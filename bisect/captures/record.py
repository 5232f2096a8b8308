"""What a capture's file says beside its tensors, as text in the header of the safetensors file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

SCHEMA = 1
KEY = "hangbisect"  # in the file's metadata
LONGEST = 16 << 20  # bytes of text


@dataclass(frozen=True)
class Record:
    """What is known of a call of forward."""

    kind: Literal["inputs", "outputs"]
    name: str
    module: str  # "package.module.Class"
    rank: int
    world_size: int
    host: str
    pid: int
    at: float  # when forward was called, seconds since 1970; 0.0 if not known
    training: bool  # the module's mode
    grad: bool  # gradients were kept
    tree: Any  # tree.py; of inputs that of a dict of "args" and "kwargs"
    raised: str = ""  # what forward raised, and so has no outputs

    def as_text(self) -> str:
        """Return it as it stands in the file. Raises ValueError if it is too long."""
        text = json.dumps({"schema": SCHEMA, **vars(self)}, allow_nan=False)
        if len(text) > LONGEST:
            raise ValueError(f"what is no tensor takes {len(text):,} bytes; {LONGEST:,} are taken")
        return text


def read(metadata: Mapping[str, str] | None) -> Record:
    """Return what a file's metadata say. Raises ValueError for any other file's."""
    text = (metadata or {}).get(KEY)
    if text is None:
        raise ValueError("it is safetensors, but no capture: nothing in it says of which call")
    if len(text) > LONGEST:
        raise ValueError(f"what is no tensor in it takes {len(text):,} bytes")
    try:
        said = json.loads(text)
        if said.pop("schema") != SCHEMA:
            raise ValueError("it is of another version of hangbisect")
        found = Record(**said)
    except (TypeError, KeyError, AttributeError, RecursionError, json.JSONDecodeError) as error:
        raise ValueError(f"what it says of its call cannot be read: {error}") from None
    for field, right in _TYPES.items():
        if type(getattr(found, field)) not in right:
            raise ValueError(f"what it says of its call cannot be read: {field}")
    return found


_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("kind", "name", "module", "host", "raised"), (str,)),
    **dict.fromkeys(("rank", "world_size", "pid"), (int,)),
    **dict.fromkeys(("training", "grad"), (bool,)),
    "at": (float, int),
    "tree": (dict, list, str, int, float, bool, type(None)),
}
