"""The LightningModule around a model."""

from __future__ import annotations

import importlib.util

import pytest


@pytest.mark.skipif(importlib.util.find_spec("pytorch_lightning") is None, reason="no Lightning")
# torch's own, while it is imported.
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@pytest.mark.parametrize("compiled", [True, False])
def test_the_model_goes_through_torch_compile_if_that_is_asked_for(compiled: bool) -> None:
    import torch  # here and not above: each worker reads this file
    from hangbisect.pipelines.lightning_modules import LLMModule

    module = LLMModule(torch.nn.Linear(1, 1), compiled)
    # Where Module.compile() keeps what it made; the first batch would compile for a minute.
    assert (module.model._compiled_call_impl is not None) == compiled
    assert "model.weight" in module.state_dict()
