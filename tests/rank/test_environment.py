"""The environment block."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from hangbisect.base.environment import cuda, lines, process_group, relevant, state
from hypothesis import given
from hypothesis import strategies as st

from ..programs import run_program

ENVIRON = {
    "RANK": "1",
    "MASTER_ADDR": "n01",
    "NCCL_DEBUG": "INFO",
    "WANDB_API_KEY": "0" * 40,
    "TOKENIZERS_PARALLELISM": "false",
    "HTTPS_PROXY": "http://ada:pw@proxy:1",
    "https_proxy": "http://proxy:2",
    "HOME": "/home/ada",
}


def test_variables_that_decide_how_ranks_meet_are_taken_and_no_others() -> None:
    assert relevant(ENVIRON) == {
        "RANK": "1",
        "MASTER_ADDR": "n01",
        "NCCL_DEBUG": "INFO",
        "WANDB_API_KEY": "*** (40 characters)",
        "TOKENIZERS_PARALLELISM": "false",
        "HTTPS_PROXY": "http://ada:***@proxy:1",
        "https_proxy": "http://proxy:2",
    }


@pytest.mark.parametrize(
    "name",
    [
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "CUDA_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "NCCL_IB_HCA",
        "GLOO_SOCKET_IFNAME",
        "FI_PROVIDER",
        "UCX_TLS",
        "TORCH_NCCL_BLOCKING_WAIT",
        "TORCHELASTIC_RUN_ID",
        "WANDB_MODE",
        "HF_HUB_OFFLINE",
        "TOKENIZERS_PARALLELISM",
        "SLURM_JOB_ID",
        "KUBERNETES_SERVICE_HOST",
        "http_proxy",
        "HTTP_PROXY",
        "no_proxy",
        "ALL_PROXY",
    ],
)
def test_every_family_is_there(name: str) -> None:
    assert name in relevant({name: "x"})


def test_the_block_says_what_is_not_set_where_that_matters() -> None:
    text = "\n".join(lines("at the start", {"RANK": "0"}))
    assert "Environment at the start" in text
    assert "RANK=0" in text
    assert "WORLD_SIZE (not set)" in text
    assert "CUDA_VISIBLE_DEVICES (not set)" in text
    assert "process group: none yet" in text


@given(st.dictionaries(st.sampled_from(["RANK", "SLURM_A", "SLURM_B", "NCCL_X"]), st.text()))
def test_each_variable_stands_on_the_block_once(environ: dict[str, str]) -> None:
    text = "\n".join(lines("now", environ))
    assert all(text.count(f" {name}=") >= 1 for name in environ)


def test_torch_is_never_loaded_for_it(package: Path) -> None:
    code = (
        "import sys, runpy, importlib.util as u\n"
        f"s = u.spec_from_file_location('pkg', {str(package / '__init__.py')!r},"
        f" submodule_search_locations=[{str(package)!r}])\n"
        "sys.modules['pkg'] = u.module_from_spec(s)\n"
        "from pkg.base.environment import lines, state\n"
        "print(state(), *lines('now'))\n"
        "print('torch' in sys.modules)\n"
    )
    done = run_program(code)
    assert "torch is not loaded yet" in done.stdout
    assert done.stdout.splitlines()[-1] == "False"


def test_a_torch_that_is_half_way_through_its_import_is_let_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    assert cuda() is None


def test_a_driver_that_fails_is_said_and_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    def device_count() -> int:
        raise RuntimeError("driver too old")

    torch = SimpleNamespace(cuda=SimpleNamespace(device_count=device_count))
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert "not available: driver too old" in "\n".join(lines("now", {}))


def test_a_process_group_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = SimpleNamespace(
        is_initialized=lambda: True,
        get_backend=lambda: "gloo",
        get_rank=lambda: 1,
        get_world_size=lambda: 2,
    )
    monkeypatch.setitem(sys.modules, "torch.distributed", distributed)
    assert process_group() == {"backend": "gloo", "rank": 1, "size": 2}
    assert state(os.environ)["process_group"]["size"] == 2
