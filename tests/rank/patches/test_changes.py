"""What each toggle does to the arguments of a call, and what it says of them."""

from __future__ import annotations

import multiprocessing
from types import SimpleNamespace
from typing import Any

import pytest
from hangbisect.base.variables import ASKED
from hangbisect.rank import call_changes
from hangbisect.rank.call_changes import Call, ScriptValue


def call(*args: Any, names: str = "", **kwargs: Any) -> Call:
    return Call(tuple(names.split()), args, kwargs)


@pytest.fixture(autouse=True)
def no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)


# ---- a call --------------------------------------------------------------------------------------


def test_an_argument_is_found_and_changed_however_it_is_given() -> None:
    one = call("loader", "data", 4, names="self dataset batch_size shuffle", num_workers=2)
    assert (one.get("batch_size"), one.get("num_workers"), one.get("shuffle", 7)) == (4, 2, 7)
    for name in ("batch_size", "num_workers", "shuffle"):
        one.set(name, 1)
    one.reset("timeout", 0)
    assert (one.args, one.kwargs) == (["loader", "data", 1], {"num_workers": 1, "shuffle": 1})


# ---- loaders -------------------------------------------------------------------------------------


def test_without_workers_a_loader_gets_nothing_that_needs_them() -> None:
    one = call(num_workers=4, prefetch_factor=2, persistent_workers=True, timeout=60)
    assert call_changes.set_num_workers(one, "0") == ScriptValue("4")
    assert one.kwargs == {
        "num_workers": 0,
        "prefetch_factor": None,
        "persistent_workers": False,
        "timeout": 0,
    }


def test_with_fewer_workers_it_keeps_the_rest() -> None:
    one = call(num_workers=4, prefetch_factor=2)
    call_changes.set_num_workers(one, "1")
    assert one.kwargs == {"num_workers": 1, "prefetch_factor": 2}


def test_what_is_only_asked_stays() -> None:
    one = call(num_workers=4, multiprocessing_context="spawn")
    told = [
        f(one, ASKED)
        for f in (
            call_changes.set_num_workers,
            call_changes.set_worker_start,
            call_changes.set_pin_memory,
        )
    ]
    assert told == [ScriptValue("4"), ScriptValue("spawn"), ScriptValue("off")]
    assert one.kwargs == {"num_workers": 4, "multiprocessing_context": "spawn"}


def test_a_loader_without_workers_starts_none_in_any_way() -> None:
    assert call_changes.set_worker_start(call(num_workers=0), "spawn") is None


def test_how_workers_start_is_asked_without_choosing_it() -> None:
    context = multiprocessing.get_context("forkserver")
    assert call_changes.set_worker_start(
        call(num_workers=1, multiprocessing_context=context), ASKED
    ) == (ScriptValue("forkserver"))
    said = call_changes.set_worker_start(call(num_workers=1), ASKED)
    chosen = multiprocessing.get_start_method(allow_none=True)
    assert said == ScriptValue(chosen or multiprocessing.get_all_start_methods()[0])


def test_texts_are_packed_no_more_in_either_set() -> None:
    one = call(packing=True, eval_packing=True)
    assert call_changes.set_packing(one, "off") == ScriptValue("on")
    assert one.kwargs == {"packing": False, "eval_packing": False}


# ---- W&B -----------------------------------------------------------------------------------------


def test_every_rank_but_0_gets_a_disabled_run(monkeypatch: pytest.MonkeyPatch) -> None:
    first = call(project="p")
    assert call_changes.set_wandb_mode(first, "rank0") == ScriptValue("rank0")
    assert first.kwargs == {"project": "p"}
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    other = call(project="p")
    assert call_changes.set_wandb_mode(other, "rank0") == ScriptValue("every-rank")
    assert other.kwargs == {"project": "p", "mode": "disabled"}
    login = call()
    assert call_changes.skip_wandb_login(login, "rank0") == ScriptValue("every-rank")
    assert (login.answered, login.answer) == (True, True)


def test_a_mode_is_given_only_where_the_script_gives_one() -> None:
    one = call()
    assert call_changes.set_wandb_mode(one, "offline") == ScriptValue("rank0")
    assert one.kwargs == {}
    for given in ({"mode": "online"}, {"settings": {"mode": "online"}}):
        one = call(**given)
        assert call_changes.set_wandb_mode(one, "off") == ScriptValue("rank0", in_code=True)
        assert one.kwargs["mode"] == "disabled"
    assert call_changes.set_wandb_mode(call(mode="offline"), ASKED) == ScriptValue(
        "offline", in_code=True
    )


def test_a_rank_where_the_script_itself_starts_nothing_says_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert call_changes.set_wandb_mode(call(mode="disabled"), ASKED) is None


# ---- trainers ------------------------------------------------------------------------------------


class DDPStrategy:
    def __init__(self, start_method: str = "popen") -> None:
        self._start_method = start_method


class FSDPStrategy:
    pass


@pytest.mark.parametrize(
    ("given", "said", "then"),
    [
        ("auto", "auto", "ddp"),
        ("fsdp", "fsdp", "ddp"),
        ("ddp_find_unused_parameters_true", "ddp", "ddp_find_unused_parameters_true"),
        ("ddp_spawn", "ddp_spawn", "ddp"),
        (FSDPStrategy(), "FSDPStrategy", "ddp"),
    ],
)
def test_a_strategy_is_changed_unless_it_is_of_the_kind(given: Any, said: str, then: str) -> None:
    one = call(strategy=given)
    assert call_changes.set_strategy(one, "ddp") == ScriptValue(said)
    assert one.kwargs["strategy"] == then


def test_ddp_of_ones_own_keeps_its_options() -> None:
    mine = DDPStrategy()
    one = call(strategy=mine)
    assert call_changes.set_strategy(one, "ddp") == ScriptValue("ddp")
    assert one.kwargs["strategy"] is mine
    assert call_changes.set_strategy(call(strategy=DDPStrategy("fork")), ASKED) == ScriptValue(
        "DDPStrategy"
    )


def test_on_the_cpu_there_are_as_many_processes_as_were_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    for devices in ("auto", -1, [0, 1, 2, 3]):
        one = call(accelerator="gpu", devices=devices)
        assert call_changes.set_accelerator(one, "cpu") == ScriptValue("gpu", in_code=True)
        assert one.kwargs == {"accelerator": "cpu", "devices": 4}
    one = call(devices=2)
    call_changes.set_accelerator(one, "cpu")
    assert one.kwargs["devices"] == 2


class Callback:
    pass


class ModelCheckpoint(type("Checkpoint", (Callback,), {})):  # type: ignore[misc]  # made by name
    pass


def test_callbacks_that_the_training_needs_stay() -> None:
    kept = ModelCheckpoint()
    one = call(callbacks=[Callback(), kept, Callback])
    assert call_changes.remove_callbacks(one, "none") == ScriptValue("")
    assert one.kwargs["callbacks"] == [kept]
    alone = call(callbacks=Callback())
    call_changes.remove_callbacks(alone, "none")
    assert alone.kwargs["callbacks"] == []


def test_without_others_there_is_nothing_to_leave_out() -> None:
    assert call_changes.remove_callbacks(call(), "none") == ScriptValue("none")
    assert call_changes.remove_callbacks(call(callbacks=[ModelCheckpoint()]), ASKED) == ScriptValue(
        "none"
    )


# ---- models and groups ---------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["auto", "balanced", {"a": 0, "b": 1}])
def test_a_model_that_is_placed_over_devices_is_placed_no_more(given: Any) -> None:
    one = call(device_map=given)
    assert call_changes.remove_device_map(one, "none") == ScriptValue("auto")
    assert one.kwargs["device_map"] != given


@pytest.mark.parametrize("given", [None, "cuda:1", {"": 0}, 0])
def test_a_model_on_one_device_stays_there(given: Any) -> None:
    one = call(device_map=given)
    assert call_changes.remove_device_map(one, "none") == ScriptValue("none")
    assert one.kwargs["device_map"] == given


def test_a_script_generates_fewer_tokens_however_it_says_how_many() -> None:
    given = call(max_new_tokens=2000)
    assert call_changes.set_max_new_tokens(given, "256") == ScriptValue("2000")
    assert given.kwargs["max_new_tokens"] == 256
    by_config = call(generation_config=SimpleNamespace(max_new_tokens=64, do_sample=True))
    assert call_changes.set_max_new_tokens(by_config, ASKED) == ScriptValue("64")
    assert call_changes.set_do_sample(by_config, "off") == ScriptValue("on")
    assert by_config.kwargs["do_sample"] is False
    assert call_changes.set_max_new_tokens(call(), ASKED) == ScriptValue("")


def test_a_group_on_gloo_is_bound_to_no_gpu() -> None:
    one = call("nccl", names="backend init_method", device_id=1)
    assert call_changes.set_backend(one, "gloo") == ScriptValue("nccl")
    assert (one.args, one.kwargs) == (["gloo"], {"device_id": None})
    assert call_changes.set_backend(call(), ASKED) == ScriptValue("auto")
