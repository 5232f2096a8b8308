"""How a command is set as it stands, and which toggles change anything about it."""

from __future__ import annotations

from hangbisect.toggles.command_toggles import (
    Known,
    apply_setting,
    find_usable_toggles,
    values_as_run,
)
from hangbisect.toggles.table import TOGGLES
from hangbisect.toggles.toggle import AS_SET, Toggle, safer
from hypothesis import given
from hypothesis import strategies as st

OURS = ("torchrun", "--nproc_per_node=2", "-m", "bisect", "--fast-dev-run", "1")
THEIRS = ("torchrun", "--nproc_per_node=2", "train.py", "--lr", "0.1")


# ---- as it is run --------------------------------------------------------------------------------


def test_a_value_is_read_from_flags_defaults_and_environment() -> None:
    found = values_as_run((*OURS, "--num_workers=4"), {"NCCL_P2P_DISABLE": "1"}, TOGGLES)
    assert found["num_workers"] == "4"
    assert found["wandb"] == "logger"
    assert found["world_size"] == "2"
    assert found["nccl_p2p_disable"] == "1"
    assert found["torch_distributed_debug"] == "OFF"
    assert "tokenizers_parallelism" not in found
    assert "omp_num_threads" not in values_as_run(("python", "-m", "bisect"), {}, TOGGLES)


def test_torchrun_sets_the_threads_of_openmp_itself_for_several_ranks() -> None:
    assert values_as_run(OURS, {}, TOGGLES)["omp_num_threads"] == "1"
    assert values_as_run(OURS, {"OMP_NUM_THREADS": "4"}, TOGGLES)["omp_num_threads"] == "4"


def test_the_environment_counts_where_the_flag_does_not_overrule_it() -> None:
    assert values_as_run(OURS, {"HF_HUB_OFFLINE": "yes"}, TOGGLES)["hub"] == "offline"
    assert values_as_run(OURS, {"WANDB_MODE": "disabled"}, TOGGLES)["wandb"] == "off"
    tokens = (*OURS, "--tokenizers-parallelism", "on")
    assert (
        values_as_run(tokens, {"TOKENIZERS_PARALLELISM": "false"}, TOGGLES)[
            "tokenizers_parallelism"
        ]
        == "on"
    )


def test_a_default_of_ours_is_not_taken_for_that_of_a_script() -> None:
    found = values_as_run(THEIRS, {"WANDB_MODE": "offline"}, TOGGLES)
    assert found["wandb"] == "offline"
    assert not {"num_workers", "strategy", "hub", "compile", "barriers"} & set(found)


# ---- which are of use ----------------------------------------------------------------------------


def named(command: str, environ: dict[str, str], known: Known) -> dict[str, Toggle]:
    return {t.name: t for t in find_usable_toggles(command.split(), environ, TOGGLES, known)[0]}


def test_of_use_is_what_has_a_safer_value_that_can_be_applied() -> None:
    left = named(" ".join(OURS), {}, Known(has_gpu=False))
    assert {"wandb", "make_logs_dir", "strategy", "callbacks", "world_size"} <= set(left)
    assert not {"num_workers", "hub", "compile", "packing", "barriers", "backend"} & set(left)
    assert left["wandb"].values == ("logger", "rank0", "offline", "off")
    assert left["world_size"].values == ("2", "1")


def test_each_other_one_has_its_reason() -> None:
    left, why_not = find_usable_toggles(OURS, {}, TOGGLES, Known(has_gpu=False))
    assert {t.name for t in left} | set(why_not) == {t.name for t in TOGGLES}
    assert not {t.name for t in left} & set(why_not)
    assert why_not["hub"] == "it changes nothing without --tokenizer or --model"
    assert why_not["num_workers"] == "it is 0 already"
    assert why_not["nccl_p2p_disable"] == "there is no GPU here"
    assert why_not["proxy"] == "no proxy is set"
    with_model = find_usable_toggles((*OURS, "--model", "x"), {}, TOGGLES)[1]
    assert with_model["generation_config"] == "the pipeline startup does not read it"


def test_of_a_users_own_command_only_what_can_be_said_to_it_is_left() -> None:
    left = named("torchrun --nproc_per_node=4 t.py", {"https_proxy": "p:1"}, Known(True, "h.org"))
    assert left["wandb"].values == (AS_SET, "rank0", "offline", "off")
    assert left["num_workers"].values == (AS_SET, "0")
    assert left["strategy"].values == (AS_SET, "ddp")
    assert left["hub"].values == (AS_SET, "offline")
    assert left["world_size"].values == ("4", "2", "1")
    assert left["proxy"].values == ("as-set", "excepted:h.org", "off")
    assert left["nccl_ib_disable"].values == ("0", "1")
    assert not {"make_logs_dir", "barriers"} & set(left)


def test_what_parts_the_nodes_is_of_no_use_to_a_job_of_several() -> None:
    command = "torchrun --nnodes 2 --nproc_per_node=4 t.py"
    assert "gloo_socket_ifname" in named(command.replace("nodes 2", "nodes 1"), {}, Known())
    why_not = find_usable_toggles(command.split(), {}, TOGGLES)[1]
    assert why_not["gloo_socket_ifname"] == "--nnodes 2: it starts several nodes"


def test_without_a_host_in_question_none_is_excepted() -> None:
    left = named("torchrun t.py", {"https_proxy": "p:1"}, Known())
    assert left["proxy"].values == ("as-set", "off")


def test_what_is_left_can_be_applied_value_by_value() -> None:
    environ = {"https_proxy": "p:1", "TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
    for command in (OURS, (*OURS, "--model", "x", "--num-workers", "2"), THEIRS):
        for entry in find_usable_toggles(command, environ, TOGGLES, Known(True, "h.org"))[0]:
            for value in entry.values:
                apply_setting(command, {entry.name: value}, TOGGLES, environ)
            if len(entry.values) > 1:
                assert safer(entry, entry.values[0]) == entry.values[1:]


@given(
    st.lists(
        st.one_of(
            st.text("abc-=./ '\"$é", max_size=6),
            st.sampled_from([*OURS, "-n", "srun", "t.py", "launch"]),
        )
    )
)
def test_any_words_can_be_looked_at(words: list[str]) -> None:
    left, why_not = find_usable_toggles(words, {}, TOGGLES)
    assert len(left) + len(why_not) == len(TOGGLES)
    for entry in left:
        apply_setting(words, {entry.name: entry.values[-1]}, TOGGLES)


# ---- other pipelines -----------------------------------------------------------------------------

GENERATES = ("python", "-m", "bisect", "--pipeline", "generation")


def test_a_toggle_that_the_pipeline_does_not_read_is_not_tried() -> None:
    left, why_not = find_usable_toggles(GENERATES, {}, TOGGLES, Known(has_gpu=True))
    assert why_not["wandb"] == "the pipeline generation does not read it"
    assert why_not["gloo_socket_ifname"] == "the pipeline generation does not read it"
    assert why_not["packing"] == "the pipeline generation does not read it"
    assert "max_new_tokens" in {entry.name for entry in left}
    of_startup = find_usable_toggles(OURS, {}, TOGGLES)[1]
    assert of_startup["max_new_tokens"] == "the pipeline startup does not read it"


def test_new_tokens_are_halved_from_what_is_run() -> None:
    left = {entry.name: entry for entry in find_usable_toggles(GENERATES, {}, TOGGLES)[0]}
    assert left["max_new_tokens"].values == ("512", "256", "128")
    fewer = (*GENERATES, "--max-new-tokens", "200")
    left = {entry.name: entry for entry in find_usable_toggles(fewer, {}, TOGGLES)[0]}
    assert left["max_new_tokens"].values == ("200", "128")


def test_a_toggle_has_the_values_that_its_pipeline_gives_it() -> None:
    left = {entry.name: entry for entry in find_usable_toggles(GENERATES, {}, TOGGLES)[0]}
    assert left["device_map"].values == ("auto", "none")
    offloaded = (*GENERATES, "--device-map", "cpu-offload")
    left = {entry.name: entry for entry in find_usable_toggles(offloaded, {}, TOGGLES)[0]}
    assert left["device_map"].values == ("cpu-offload", "auto", "none")
    changed = apply_setting(offloaded, {"device_map": "none"}, TOGGLES).command
    assert changed == (*GENERATES, "--device-map", "none")
