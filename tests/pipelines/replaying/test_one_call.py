"""One forward, and one backward."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from hangbisect.base.errors import UsageError
from hangbisect.pipelines.module_call import CallResult, call_module, find_loss
from hangbisect.pipelines.module_inputs import ModuleInput
from hangbisect.pipelines.module_steps import ReadyModule


class Net(torch.nn.Module):
    """Fails for negative inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 1)

    def forward(self, rows: Any) -> Any:
        """Return what it gives, and its mode."""
        if (rows < 0).any():
            raise ValueError("a negative input")
        return {"logits": self.linear(rows), "mode": (self.training, torch.is_grad_enabled())}


def ready(module: Any, backward: Any = lambda loss: loss.backward()) -> ReadyModule:
    return ReadyModule(module, module, torch.device("cpu"), None, backward, contextlib.nullcontext)


def given(rows: Any, training: bool = False, grad: bool = False) -> ModuleInput:
    return ModuleInput("one", 0, (rows,), {}, training, grad)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("grad", [True, False])
def test_it_is_called_in_the_mode_in_which_it_was_captured(training: bool, grad: bool) -> None:
    called, begun = CallResult(), list[str]()
    call_module(ready(Net()), given(torch.ones(2, 3), training, grad), False, called, begun.append)
    assert called.output["mode"] == (training, grad)
    assert called.output["logits"].requires_grad is grad
    assert called.backward_s is None
    assert called.forward_s > 0
    assert called.memory_bytes > 0
    assert begun == ["forward"]


def test_a_backward_has_gradients_and_leaves_none_behind() -> None:
    net, called, begun, seen = Net(), CallResult(), list[str](), list[Any]()

    def backward(loss: Any) -> None:
        loss.backward()
        seen.append(net.linear.weight.grad.clone())

    call_module(ready(net, backward), given(torch.ones(2, 3)), True, called, begun.append)
    assert begun == ["forward", "backward"]
    assert seen[0].tolist() == [[1.0, 1.0, 1.0]]
    assert called.backward_s is not None
    assert net.linear.weight.grad is None


def test_of_a_forward_that_fails_the_time_is_known() -> None:
    called = CallResult()
    with pytest.raises(ValueError, match="a negative input"):
        call_module(ready(Net()), given(-torch.ones(2, 3)), True, called, lambda part: None)
    assert called.output is None
    assert called.forward_s > 0
    assert torch.is_grad_enabled()


def test_the_loss_is_taken_where_there_is_one() -> None:
    loss = torch.tensor(3.0, requires_grad=True)
    assert find_loss({"logits": torch.ones(2, requires_grad=True), "loss": loss}) is loss


def test_else_the_means_of_all_that_has_a_gradient_are_added() -> None:
    one = torch.tensor([1.0, 3.0], requires_grad=True)
    two = torch.tensor([[5.0]], requires_grad=True)
    assert find_loss([one, (two, torch.ones(9)), "x"]).item() == 7.0
    assert find_loss(one).item() == 2.0
    several = torch.tensor([2.0, 4.0], requires_grad=True)  # for each sample: no loss to begin with
    assert find_loss({"loss": several}).item() == 3.0
    assert find_loss({"loss": torch.tensor(9.0), "logits": one}).item() == 2.0


def test_a_half_is_added_up_in_full_precision() -> None:
    loss = find_loss(torch.ones(4, dtype=torch.bfloat16, requires_grad=True))
    assert loss.dtype is torch.float32


@pytest.mark.parametrize("output", [None, torch.ones(2), {"loss": torch.tensor(1.0)}, []], ids=str)
def test_where_nothing_has_a_gradient_there_is_no_backward(output: Any) -> None:
    with pytest.raises(UsageError, match="nothing that the module returned has a gradient"):
        find_loss(output)
