"""Nested arguments become JSON and tensors, and come back; nothing else ever does."""

from __future__ import annotations

import json
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hangbisect.captures.capture_file import (
    NotKept,
    decode_value,
    encode_value,
    fields_as_dict,
    walk_leaves,
)
from hypothesis import given
from hypothesis import strategies as st

PLAIN = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text() | st.floats()
KEYS = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text()
NESTED = st.recursive(
    PLAIN,
    lambda inside: st.lists(inside) | st.lists(inside).map(tuple) | st.dictionaries(KEYS, inside),
    max_leaves=20,
)
Point = namedtuple("Point", "x y")


def through(value: Any) -> Any:
    """Return a value as it comes back from its text."""
    tensors: dict[str, Any] = {}

    def keep(tensor: Any) -> str:
        tensors[str(len(tensors))] = tensor
        return str(len(tensors) - 1)

    text = json.dumps(encode_value(value, keep), allow_nan=False)
    return decode_value(json.loads(text), tensors)


@given(NESTED)
def test_what_is_made_of_plain_values_comes_back(value: Any) -> None:
    assert repr(through(value)) == repr(value)


def test_tensors_come_back_where_they_were() -> None:
    ids, mask = torch.arange(6).view(2, 3), torch.ones(2, dtype=torch.bfloat16)
    back = through({"a": [ids, (mask, None)], "dtype": torch.bfloat16, "on": torch.device("cpu")})
    assert torch.equal(back["a"][0], ids)
    assert torch.equal(back["a"][1][0], mask)
    assert back["dtype"] is torch.bfloat16
    assert back["on"] == torch.device("cpu")


def test_kinds_of_dicts_and_tuples_come_back_as_plain_ones() -> None:
    assert through(OrderedDict(a=1)) == {"a": 1}
    assert through(Point(1, 2)) == (1, 2)


@dataclass
class Returned:
    """What a module of one's own may return."""

    logits: Any
    cache: Any = None


def test_a_dataclass_that_was_returned_is_the_dict_of_its_fields() -> None:
    assert fields_as_dict(Returned(3)) == {"logits": 3, "cache": None}
    ordered = OrderedDict(a=1)
    for other in (ordered, (1, 2), None, Returned):
        assert fields_as_dict(other) is other


@pytest.mark.parametrize(
    "value",
    [object(), {1}, b"bytes", 1 << 70, torch.empty(2, device="meta"), {(1, 2): 3}, print],
    ids=lambda value: type(value).__name__,
)
def test_what_has_no_form_on_disk_is_named(value: Any) -> None:
    back = through([value, 1])
    assert isinstance(back[0], NotKept)
    assert back[0].what.endswith(type(value).__name__)
    assert back[1] == 1


def test_what_contains_itself_comes_to_an_end() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert "NotKept" in repr(through(endless))


@pytest.mark.parametrize(
    "tree",
    [
        {"is": "tensor", "name": "0", "shape": [3], "dtype": "int64"},  # of another shape
        {"is": "tensor", "name": "7", "shape": [2], "dtype": "int64"},  # not there
        {"is": "tensor"},
        {"is": "dtype", "value": "load"},
        {"is": "device", "value": "nowhere"},
        {"is": "dict", "in": [[[], 1]]},
        {"is": "tuple", "in": 5},
        {"is": "float", "value": "1e9"},
        {"is": "call", "value": "os.system"},
        {"args": []},
    ],
    ids=str,
)
def test_a_made_up_tree_is_refused(tree: Any) -> None:
    with pytest.raises(ValueError, match=r"its? "):
        decode_value(tree, {"0": torch.arange(2)})


def test_leaves_have_the_names_of_arguments() -> None:
    tree = encode_value({"args": (1, [2]), "kwargs": {"ids": "x"}}, lambda tensor: "0")
    assert dict(walk_leaves(tree)) == {"args.0": 1, "args.1.0": 2, "kwargs.ids": "x"}
