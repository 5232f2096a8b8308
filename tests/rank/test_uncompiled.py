"""Calls of ours below a compiled function."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from hangbisect.rank.function_patching import HIDDEN_FILE, exclude_from_compile


class Frames:
    """As torch._C._dynamo.eval_frame: what compiles the frames that begin."""

    def __init__(self, now: Any) -> None:
        self.now = now

    def set_eval_frame(self, new: Any) -> Any:
        before, self.now = self.now, new
        return before


@pytest.mark.parametrize("compiler", [None, "a compiler"])
def test_nothing_is_compiled_meanwhile_and_everything_afterwards(
    compiler: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = Frames(compiler)
    monkeypatch.setitem(sys.modules, "torch._dynamo", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "torch._C._dynamo.eval_frame", frames)

    def ours(error: type[Exception] | None) -> Any:
        if error is not None:
            raise error("of ours")
        return frames.now

    called = exclude_from_compile(ours)
    assert called(None) is None
    assert frames.now == compiler
    with pytest.raises(ValueError, match="of ours"):
        called(ValueError)
    assert frames.now == compiler
    assert called.__code__.co_filename == HIDDEN_FILE  # which torch.compile leaves out


def test_where_torch_is_not_there_the_call_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch._C._dynamo.eval_frame", raising=False)
    assert exclude_from_compile(lambda x: x + 1)(1) == 2
