"""Slow, not hung."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hangbisect.base.process_facts import Look
from hangbisect.base.rank_facts import MachineFacts

from ..made_up import held, job, look, rank
from .scenes import Facts, Shows, causes_of
from .seen import first, sampled


def ended_slowly(one: Look, *children: Look, moved: str = "reads 41 MiB/s", **more: Any) -> Facts:
    facts = replace(first(one, *children), moved=moved)
    return job("limit", **more), [facts, held(1)]


def cold_compile() -> Facts:
    compiles = look(
        "_compile_kernel SP/torch/_inductor/codecache.py:2900",
        "compile_fx SP/torch/_inductor/compile_fx.py:1500",
        "step train.py:9",
        call="wait4",
    )
    child = look(pid=300, ppid=100, name="cc1plus", call="", state="R", rung="proc")
    return ended_slowly(compiles, child, moved="its child cc1plus (300) was started")


def slow_load() -> Facts:
    return ended_slowly(
        look(
            "load_file SP/safetensors/torch.py:313",
            "from_pretrained SP/transformers/modeling_utils.py:4000",
            "load train.py:3",
            call="pread64",
        )
    )


def slow_initialization() -> Facts:
    return ended_slowly(
        look("orthogonal_ SP/torch/nn/init.py:600", "build train.py:3", call="", state="R"),
        moved="runs through new code",
    )


def slow_import() -> Facts:
    return ended_slowly(
        look(
            "get_data <frozen importlib._bootstrap_external>:1073",
            "_find_and_load <frozen importlib._bootstrap>:1176",
            "<module> SP/torch/_meta_registrations.py:3",
            "_find_and_load <frozen importlib._bootstrap>:1176",
            "<module> SP/torch/__init__.py:2000",
            "_find_and_load <frozen importlib._bootstrap>:1176",
            "main train.py:1",
            call="openat",
        )
    )


def offloaded_weights() -> Facts:
    generates = look(
        "__getitem__ SP/accelerate/utils/offload.py:165",
        "AlignDevicesHook.pre_forward SP/accelerate/hooks.py:371",
        "DisableContext.__call__.<locals>._fn SP/torch/_dynamo/eval_frame.py:1446",
        "new_forward SP/accelerate/hooks.py:170",
        "GenerationMixin.generate SP/transformers/generation/utils.py:2600",
        "answer serve.py:9",
        call="",
        state="R",
    )
    return ended_slowly(generates, moved="runs through new code")


def one_rank_works_alone() -> Facts:
    works = look("clean data.py:30", "prepare_data data.py:9", "<module> train.py:3", call="read")
    return ended_slowly(works)


def machine_overloaded() -> Facts:
    works = look("step train.py:5", "<module> train.py:3", call="", state="R")
    looks = (sampled(works, 100.0), sampled(works, 110.0, delayed=7.0))
    ranks = [rank(n, *looks, moved="runs through new code") for n in (0, 1)]
    return job("limit", machine=MachineFacts(cores=1)), ranks


SHOWS: Shows = {
    "cold-compile": cold_compile,
    "slow-load": slow_load,
    "offloaded-weights": offloaded_weights,
    "slow-initialization": slow_initialization,
    "slow-import": slow_import,
    "one-rank-works-alone": one_rank_works_alone,
    "machine-overloaded": machine_overloaded,
}


def test_a_hang_is_never_said_to_be_slow() -> None:
    for name, facts in SHOWS.items():
        shown, ranks = facts()
        still = [replace(one, moved="") for one in ranks]
        assert name not in causes_of((replace(shown, ended="still"), still))


def test_a_rank_that_gets_its_core_is_not_on_an_overloaded_machine() -> None:
    works = look("step train.py:5", "<module> train.py:3", call="", state="R")
    looks = (sampled(works, 100.0), sampled(works, 110.0, delayed=0.5))
    ranks = [rank(n, *looks, moved="runs through new code") for n in (0, 1)]
    facts = job("limit", machine=MachineFacts(cores=1)), ranks
    assert "machine-overloaded" not in causes_of(facts)


def test_threads_of_openmp_want_cores_too() -> None:
    """Two ranks on four cores, each with a pool of as many threads as the machine has cores."""
    shown, ranks = machine_overloaded()
    shown = replace(shown, machine=MachineFacts(cores=4))
    assert "want one of" not in str(causes_of((shown, ranks))["machine-overloaded"].matched)
    pooled = [replace(one, looks=tuple(map(with_pool, one.looks))) for one in ranks]
    said = causes_of((shown, pooled))["machine-overloaded"].matched
    assert "8 threads of 2 processes want one of 4 cores" in str(said)


def with_pool(one: Look) -> Look:
    (main,) = one.kernel
    return replace(one, kernel=tuple(replace(main, tid=main.tid + n) for n in range(4)))


def test_code_that_is_never_compiled_is_not_taken_for_a_compilation() -> None:
    assert "cold-compile" not in causes_of(offloaded_weights())


def test_a_model_that_is_only_spread_over_gpus_brings_no_weights() -> None:
    shown, ranks = offloaded_weights()
    spread = look(
        "forward SP/torch/nn/modules/linear.py:134",
        "new_forward SP/accelerate/hooks.py:170",
        "GenerationMixin.generate SP/transformers/generation/utils.py:2600",
        "answer serve.py:9",
        call="",
        state="R",
    )
    only = replace(ranks[0], looks=(spread,), moved="")
    assert "offloaded-weights" not in causes_of((shown, [only, *ranks[1:]]))
    logged = "accelerate.big_modeling: Some parameters are on the meta device because they were "
    said = replace(only, output=(f"{logged}offloaded to the cpu and disk.",))
    found = causes_of((shown, [said, *ranks[1:]]))["offloaded-weights"]
    assert "(cpu and disk)" in found.why
    assert found.agreement >= 0.5


def test_what_moves_is_said() -> None:
    assert any("41 MiB/s" in fact for fact in causes_of(slow_load())["slow-load"].matched)
