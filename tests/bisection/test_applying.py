"""What is started under a setting of the toggles, and how a command is set as it stands."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest
from hangbisect.base.errors import UsageError
from hangbisect.toggles.command_toggles import (
    AppliedSetting,
    apply_setting,
    find_usable_toggles,
    format_command,
    values_as_run,
    walks_pipeline,
)
from hangbisect.toggles.table import TOGGLES, toggle
from hangbisect.toggles.toggle import AS_SET
from hypothesis import given
from hypothesis import strategies as st

OURS = ("torchrun", "--nproc_per_node=2", "-m", "bisect", "--fast-dev-run", "1")
THEIRS = ("torchrun", "--nproc_per_node=2", "train.py", "--lr", "0.1")


def line(command: str, environ: dict[str, str] | None = None, **setting: str) -> str:
    return format_command(apply_setting(command.split(), setting, TOGGLES, environ or {}))


# ---- whose command it is -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "torchrun --nproc_per_node=2 -m bisect --fast-dev-run 1",
        "torchrun --nproc_per_node 2 bisect --fast-dev-run 1",
        "torchrun --standalone /work/bisect/ --fast-dev-run 1",
        "python -m hangbisect",
        "hangbisect --fast-dev-run 1",
        "/opt/bin/hangbisect walk --fast-dev-run 1",
        "srun -n2 --job-name bisect python -u -m bisect --devices 2",
        "python -m torch.distributed.run --nproc-per-node=2 -m bisect",
        "accelerate launch --num_processes 2 -m bisect",
        "launchers/torchrun -m bisect --fast-dev-run 1",
        "nice -n 19 mpirun -np 2 python bisect",
    ],
)
def test_a_command_that_walks_a_pipeline_is_ours(command: str) -> None:
    assert walks_pipeline(command.split())


@pytest.mark.parametrize(
    "command",
    [
        "torchrun train.py --name bisect",
        "python -m train bisect",
        "srun --job-name bisect -n 2 python train.py",
        "srun -J bisect -n 2 python train.py",
        "hangbisect run -- torchrun train.py",
        "git bisect start",
        "python -c bisect",
        "",
    ],
)
def test_a_command_of_the_users_own_is_not(command: str) -> None:
    assert not walks_pipeline(command.split())


# ---- applying ------------------------------------------------------------------------------------


def test_in_a_pipeline_of_ours_the_flag_goes_to_the_end_and_replaces_an_earlier_one() -> None:
    assert line("torchrun -m bisect --wandb=logger --hub online", wandb="off") == (
        "torchrun -m bisect --hub online --wandb off"
    )
    assert line("hangbisect --make_logs_dir all", make_logs_dir="rank0") == (
        "hangbisect --make-logs-dir rank0"
    )


def test_the_launchers_words_are_not_taken_for_ours() -> None:
    assert line("mine --backend x python -m bisect --backend nccl", backend="gloo") == (
        "mine --backend x python -m bisect --backend gloo"
    )


def test_the_run_folder_is_left_out_so_that_what_it_rests_on_is_kept() -> None:
    assert line("hangbisect --run-dir runs/a --hub online") == "hangbisect --hub online"


def test_in_a_users_own_command_the_environment_says_it() -> None:
    assert line("torchrun train.py", wandb="offline", hub="offline") == (
        "WANDB_MODE=offline HF_HUB_OFFLINE=1 torchrun train.py"
    )
    assert line("python train.py", compile="off") == "TORCHDYNAMO_DISABLE=1 python train.py"


def test_what_no_variable_says_is_changed_inside_the_ranks_below_run() -> None:
    assert line("torchrun train.py", num_workers="0", wandb="rank0", hub="offline") == (
        "HF_HUB_OFFLINE=1 HANGBISECT_STEER=wandb=rank0,num_workers=0 "
        "hangbisect run -- torchrun train.py"
    )
    assert line("torchrun -m bisect", num_workers="0") == "torchrun -m bisect --num-workers 0"


def test_what_is_steered_already_stays_so() -> None:
    environ = {"HANGBISECT_STEER": "strategy=ddp,num_workers=4"}
    found = apply_setting(THEIRS, {"num_workers": "0"}, TOGGLES, environ).environment
    assert found == {"HANGBISECT_STEER": "strategy=ddp,num_workers=0"}
    assert values_as_run(THEIRS, environ, TOGGLES)["num_workers"] == "4"
    assert "strategy" not in values_as_run(THEIRS, {"HANGBISECT_STEER": "strategy=?"}, TOGGLES)


def test_a_variable_that_the_script_overrules_is_changed_inside_the_ranks_as_well() -> None:
    overruled = [replace(entry, overruled=True) for entry in TOGGLES]
    found = apply_setting(THEIRS, {"wandb": "offline"}, overruled).environment
    assert found == {"WANDB_MODE": "offline", "HANGBISECT_STEER": "wandb=offline"}


def test_what_nothing_outside_a_script_says_is_refused_with_the_next_step() -> None:
    with pytest.raises(UsageError, match=r"make_logs_dir=rank0 cannot be .*scenario file"):
        line("torchrun train.py", make_logs_dir="rank0")
    with pytest.raises(UsageError, match="hub=rank0-first cannot be applied"):
        line("torchrun train.py", hub="rank0-first")


def test_a_toggle_or_value_that_there_is_not_is_named_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="no toggle 'wanbd'; did you mean 'wandb'"):
        line("hangbisect", wanbd="off")
    with pytest.raises(UsageError, match=r"wandb=offfline .*did you mean 'offline'"):
        line("hangbisect", wandb="offfline")
    with pytest.raises(UsageError, match=r"num_workers=many .*a whole number"):
        line("hangbisect", num_workers="many")
    with pytest.raises(UsageError, match=r"world_size=0 .*from 1"):
        line("torchrun -m bisect", world_size="0")
    with pytest.raises(UsageError, match="the pipeline startup does not read it"):
        line("hangbisect", generation_config="direct")


def test_variables_go_beside_a_command_whoever_wrote_it() -> None:
    for command in ("torchrun -m bisect", "torchrun train.py"):
        assert line(command, nccl_p2p_disable="1", omp_num_threads="1") == (
            f"NCCL_P2P_DISABLE=1 OMP_NUM_THREADS=1 {command}"
        )
    assert line("hangbisect", gloo_socket_ifname=AS_SET) == "hangbisect"


def test_a_proxy_is_left_out_for_one_host_beside_those_that_are_excepted_already() -> None:
    environ = {"no_proxy": "localhost, corp", "NO_PROXY": "localhost"}
    setting = {"proxy": "excepted:api.wandb.ai"}
    found = apply_setting(("x",), setting, TOGGLES, environ).environment
    assert found == dict.fromkeys(("NO_PROXY", "no_proxy"), "localhost,corp,api.wandb.ai")
    with pytest.raises(UsageError, match="it wants a host, excepted:HOST"):
        line("x", proxy="excepted")


def test_without_a_proxy_all_its_variables_are_empty() -> None:
    found = apply_setting(("x",), {"proxy": "off"}, TOGGLES).environment
    assert set(found.values()) == {""}
    assert {"http_proxy", "https_proxy", "all_proxy", "HTTPS_PROXY"} <= set(found)
    assert format_command(AppliedSetting(("x",), {"all_proxy": ""})) == "all_proxy='' x"


def test_what_env_sets_inside_the_rank_does_not_have_the_last_word() -> None:
    command = "torchrun -m bisect --env NCCL_P2P_DISABLE=0 --env=OMP_NUM_THREADS=4 --env A=NCCL"
    assert values_as_run(command.split(), {}, TOGGLES)["omp_num_threads"] == "4"
    assert line(command, nccl_p2p_disable="1", omp_num_threads="1") == (
        "NCCL_P2P_DISABLE=1 OMP_NUM_THREADS=1 torchrun -m bisect --env A=NCCL"
    )


# ---- the number of ranks -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("torchrun --nproc_per_node=4 t.py", "torchrun --nproc_per_node=1 t.py"),
        ("torchrun --nproc-per-node 4 t.py -n 3", "torchrun --nproc-per-node 1 t.py -n 3"),
        ("torchrun t.py", "torchrun --nproc_per_node 1 t.py"),
        ("torchrun --nproc_per_node=gpu t.py", "torchrun --nproc_per_node=1 t.py"),
        ("srun -n4 python t.py", "srun -n1 python t.py"),
        ("srun -N 1 --ntasks=4 python t.py", "srun -N 1 --ntasks=1 python t.py"),
        ("srun -n 4 ./run -n 5", "srun -n 1 ./run -n 5"),
        ("nice -n 19 mpirun -np 4 python t.py", "nice -n 19 mpirun -np 1 python t.py"),
        ("mpirun -n 4 python -m bisect", "mpirun -n 1 python -m bisect"),
        ("mpirun python t.py", "mpirun -n 1 python t.py"),
        ("deepspeed --num_gpus 4 t.py", "deepspeed --num_gpus 1 t.py"),
        (
            "accelerate launch --num_processes=4 t.py",
            "accelerate launch --num_processes=1 t.py",
        ),
        ("accelerate launch t.py", "accelerate launch --num_processes 1 t.py"),
        ("python -m torch.distributed.run t.py", "python -m torch.distributed.run "
         "--nproc_per_node 1 t.py"),
        ("python -m bisect --devices 4", "python -m bisect --devices 1"),
        ("launchers/torchrun -m bisect", "NPROC_PER_NODE=1 launchers/torchrun -m bisect"),
        ("launchers/mine.sh t.py", "NPROC_PER_NODE=1 launchers/mine.sh t.py"),
        ("NAMED/mine python t.py", "NPROC_PER_NODE=1 NAMED/mine python t.py"),
    ],
)  # fmt: skip
def test_the_number_of_ranks_is_said_in_the_launchers_own_words(before: str, after: str) -> None:
    environ = {"NPROC_PER_NODE": "4"} if "mine" in before else {}
    assert line(before, environ, world_size="1") == after


@pytest.mark.parametrize(
    ("command", "environ", "why"),
    [
        ("torchrun --nnodes=2 --nproc_per_node=4 t.py", {}, "several nodes"),
        ("srun -N2 -n 4 python t.py", {}, "-N2: it starts several nodes"),
        ("srun -n 4 python t.py", {"SLURM_NNODES": "2"}, "SLURM_NNODES=2"),
        ("launchers/srun -m bisect", {"NNODES": "2"}, "NNODES=2"),
        ("./run.sh", {}, "no launcher that is known"),
    ],
)
def test_where_it_cannot_be_changed_it_is_said_why(
    command: str, environ: dict[str, str], why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        line(command, environ, world_size="1")
    assert why in find_usable_toggles(command.split(), environ, TOGGLES)[1]["world_size"]


# ---- always --------------------------------------------------------------------------------------

WORDS = st.text("abc-=./ '\"$é", max_size=6)


@st.composite
def settings(draw: st.DrawFn) -> dict[str, str]:
    """Values that can be applied to OURS and a few words."""
    chosen = draw(st.lists(st.sampled_from(TOGGLES), unique_by=lambda t: t.name, max_size=8))
    setting = {}
    for entry in chosen:
        if "startup" in entry.pipelines:
            values = [v for v in entry.values if v != "excepted"]
            setting[entry.name] = draw(st.sampled_from([*values, AS_SET]))
    return setting


@given(settings(), st.lists(WORDS))
def test_applying_twice_is_the_same_as_once(setting: dict[str, str], words: list[str]) -> None:
    once = apply_setting((*OURS, *words), setting, TOGGLES)
    assert apply_setting(once.command, setting, TOGGLES) == once


@given(settings(), st.lists(WORDS))
def test_the_other_words_of_a_command_stay_as_they_are(
    setting: dict[str, str], words: list[str]
) -> None:
    setting.pop("world_size", None)
    found = apply_setting((*OURS, *words), setting, TOGGLES).command
    assert found[: len(OURS) + len(words)] == (*OURS, *words)
    theirs = {n: v for n, v in setting.items() if toggle(n).variable}
    assert apply_setting((*THEIRS, *words), theirs, TOGGLES).command == (*THEIRS, *words)


@given(settings(), st.lists(WORDS))
def test_what_is_pasted_splits_back_into_the_same_words(
    setting: dict[str, str], words: list[str]
) -> None:
    found = apply_setting((*OURS, *words), setting, TOGGLES)
    variables = [f"{name}={value}" for name, value in found.environment.items()]
    assert shlex.split(format_command(found)) == [*variables, *found.command]


@given(settings())
def test_what_was_applied_is_how_it_is_run_then(setting: dict[str, str]) -> None:
    found = apply_setting(OURS, setting, TOGGLES)
    now = values_as_run(found.command, found.environment, TOGGLES)
    wanted = {n: v for n, v in setting.items() if v != AS_SET and n != "proxy"}
    assert {n: now[n] for n in wanted} == wanted
