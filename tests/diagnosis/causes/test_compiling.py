"""Compilations that fail."""

from __future__ import annotations

import pytest

from .scenes import Shows, causes_of, ended

# As people reported it (Dao-AILab/flash-attention#1351).
PACKED = (
    "torch._dynamo.exc.TorchRuntimeError: Failed running call_function "
    "flash_attn._flash_attn_varlen_forward(*(FakeTensor(..., size=(10,), dtype=torch.int32))): "
    "flash_attn::_flash_attn_varlen_forward() Expected a value of type 'int' for argument "
    "'max_seqlen_q' but instead found type 'FakeTensor'."
)
SHOWS: Shows = {"fake-tensor": lambda: ended(PACKED)}


@pytest.mark.parametrize(
    "error",
    [
        "TypeError: flash_attn_varlen_func() got an unexpected keyword argument 'max_seqlen_q'",
        "TorchRuntimeError: Expected a value of type 'Tensor' for argument 'q' but instead found "
        "type 'int'.",
        "RuntimeError: Unable to cast Python instance of type <class 'str'> to C++ type 'int'",
        "DataDependentOutputException: aten._local_scalar_dense.default on a FakeTensor",
    ],
)
def test_another_error_of_the_same_words_is_another_cause(error: str) -> None:
    assert "fake-tensor" not in causes_of(ended(error))


def test_packed_samples_make_it_more_certain_and_other_functions_are_found_too() -> None:
    other = PACKED.replace("flash_attn", "own").replace("max_seqlen_q", "length")
    sure = causes_of(ended(PACKED))["fake-tensor"].agreement
    assert 0.8 < causes_of(ended(other))["fake-tensor"].agreement < sure
