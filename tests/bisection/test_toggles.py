"""The table of toggles holds together."""

from __future__ import annotations

from dataclasses import replace

from hangbisect.base.argument_types import Parser
from hangbisect.base.pipeline import PIPELINES, find_pipeline
from hangbisect.rank.watch_options import add_watch_options
from hangbisect.toggles.table import TOGGLES, toggle
from hangbisect.toggles.toggle import ANY, Toggle

from ..examples import for_each

each = for_each(TOGGLES, lambda entry: entry.name)


@each
def test_the_default_is_one_of_the_values(entry: Toggle) -> None:
    assert entry.default is None or entry.default in entry.values


@each
def test_what_it_sets_in_the_environment_belongs_to_its_values(entry: Toggle) -> None:
    assert {value for value, _, _ in entry.environment} <= set(entry.values)


@each
def test_it_belongs_to_a_component_of_the_pipeline(entry: Toggle) -> None:
    table = [
        row for name in PIPELINES if name in entry.pipelines for row in find_pipeline(name).table
    ]
    components = {row.component for row in table}
    components |= {phase.component for row in table for phase in row.phases}
    # "network": what W&B and the hub have in common; "server": of no pipeline of ours.
    assert entry.component in {*components, "network", "server"}


def test_names_and_flags_are_found_once() -> None:
    assert len({entry.name for entry in TOGGLES}) == len(TOGGLES)
    for found in (
        [entry.flag for entry in TOGGLES if entry.flag],
        [entry.variable for entry in TOGGLES if entry.variable],
    ):
        assert len(set(found)) == len(found)
    assert all(toggle(entry.name) is entry for entry in TOGGLES)


def test_what_nearly_always_hides_a_hang_is_a_probe() -> None:
    probes = {entry.name for entry in TOGGLES if entry.kind == "probe"}
    assert probes == {
        *("backend", "accelerator", "barriers"),
        *("world_size", "cuda_launch_blocking", "tensor_parallel_size"),
    }


@each
def test_each_has_a_way_to_be_applied_that_the_table_names(entry: Toggle) -> None:
    assert entry.flag or entry.by_environment or entry.launcher or entry.servers
    assert not (entry.flag and entry.variable)
    assert entry.read_how
    assert entry.cost
    assert entry.help


@each
def test_the_pipelines_that_read_a_flag_take_it(entry: Toggle) -> None:
    for name in [name for name in PIPELINES if entry.flag and name in entry.pipelines]:
        parser = Parser()
        add_watch_options(parser)
        find_pipeline(name).add_arguments(parser)
        for value in entry.read_by(name).values:
            assert str(getattr(parser.parse_all([entry.flag, value]), entry.dest)) == value


@each
def test_what_is_changed_in_the_code_belongs_to_its_values(entry: Toggle) -> None:
    assert {value for value, _ in entry.in_code} <= {*entry.values, ANY}
    for value, change in entry.in_code:
        assert change.isprintable()
        assert ("VALUE" in change) == (value == ANY)


def test_a_change_in_the_code_names_the_value() -> None:
    assert toggle("num_workers").change_in_code("0") == "DataLoader(num_workers=0)"
    assert toggle("wandb").change_in_code("rank0").startswith("wandb.init(mode='disabled') on")
    assert toggle("wandb").change_in_code("offline") == ""  # WANDB_MODE says it
    overruled = replace(toggle("wandb"), overruled=True)
    assert overruled.change_in_code("offline") == "wandb.init(mode='offline')"
    assert toggle("hub").change_in_code("offline") == ""


def test_what_the_table_must_have_is_there() -> None:
    names = (
        *("wandb", "strategy", "make_logs_dir", "hub", "num_workers", "worker_start"),
        *("tokenizers_parallelism", "backend", "accelerator", "barriers", "world_size", "compile"),
        *("callbacks", "pin_memory", "proxy", "generation_config", "device_map"),
        *("gradient_checkpointing", "attention", "packing"),
        *("max_new_tokens", "max_length", "do_sample", "quantization"),
    )
    variables = (
        *("NCCL_P2P_DISABLE", "NCCL_IB_DISABLE", "NCCL_SHM_DISABLE", "NCCL_NVLS_ENABLE"),
        *("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TORCH_DISTRIBUTED_DEBUG"),
        *("CUDA_LAUNCH_BLOCKING", "OMP_NUM_THREADS"),
    )
    assert {*names, *(variable.lower() for variable in variables)} <= {t.name for t in TOGGLES}
    assert set(variables) == {entry.variable for entry in TOGGLES if entry.variable}
