"""What a function of the user's own may return as the module."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hangbisect.base.errors import UsageError
from hangbisect.pipelines.module_steps import describe_module, get_built_module


def context(made: Any) -> Any:
    return SimpleNamespace(
        products={"module": made},
        args=SimpleNamespace(use={"module": "my:module"}),
        imports=lambda name: torch,
    )


def test_a_module_is_taken() -> None:
    net = torch.nn.Linear(2, 2)
    assert get_built_module(context(net)) is net


@pytest.mark.parametrize(
    ("made", "what"), [(None, "NoneType"), ((torch.nn.Identity(),), "tuple"), ("gpt2", "str")]
)
def test_anything_else_is_named_with_the_function_that_returned_it(made: Any, what: str) -> None:
    with pytest.raises(UsageError, match=rf"^--use module=my:module returned {what}: it is") as got:
        get_built_module(context(made))
    assert "given.args" in got.value.help


def test_a_class_is_no_module() -> None:
    with pytest.raises(UsageError, match="returned type"):
        get_built_module(context(torch.nn.Identity))


def test_a_module_in_words_has_its_class_and_its_size() -> None:
    assert describe_module(torch.nn.Linear(1023, 4)) == "Linear with 4,096 parameters, 16 KiB"
    assert (
        describe_module(torch.nn.Linear(3, 4).bfloat16()) == "Linear with 16 parameters, 32 bytes"
    )
    assert describe_module(torch.nn.Identity()) == "Identity with 0 parameters, 0 bytes"
