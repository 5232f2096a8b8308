"""The words by which tasks get onto nodes, and what a task tells its command."""

from __future__ import annotations

import json
import os
import shlex

import pytest
from hangbisect.attach.pods import parse_pods
from hangbisect.base.errors import HangbisectError
from hangbisect.base.json_codec import from_json
from hangbisect.nodes.engines import (
    list_pod_nodes,
    make_kubernetes_engine,
    make_slurm_engine,
    make_ssh_engine,
)
from hangbisect.nodes.node_task import PORTS, TaskOrders, make_environment

ORDERS = TaskOrders((("n1", "n4"), ("n2",)), (0, 1), 7, 9.0, ("train", "a b"), "/home/ada")


@pytest.fixture
def programs(tmp_path: os.PathLike[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ssh", "srun"):
        path = os.path.join(tmp_path, name)
        with open(path, "w") as file:
            file.write("#!/bin/sh\n")
        os.chmod(path, 0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


@pytest.mark.usefixtures("programs")
def test_by_ssh_each_node_gets_its_own_set() -> None:
    environ = {"PATH": "/opt/bin", "NCCL_DEBUG": "INFO", "WANDB_API_KEY": "secret"}
    commands = make_ssh_engine(environ).make_commands(ORDERS)
    assert [one.nodes for one in commands] == [("n1",), ("n4",), ("n2",)]
    words = commands[1].words
    assert words[-3:-1] == ("--", "n4")
    assert "BatchMode=yes" in words
    told = json.loads(shlex.split(words[-1])[-1])
    assert told["sets"] == [["n1", "n4"]]
    assert told["node"] == "n4"
    assert told["command"] == ["train", "a b"]
    assert told["environment"] == {"PATH": "/opt/bin", "NCCL_DEBUG": "INFO"}


@pytest.mark.usefixtures("programs")
def test_of_slurms_it_is_one_step_for_all_sets() -> None:
    environ = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "64", "SLURM_CONF": "/etc/s", "HOME": "/root"}
    (command,) = make_slurm_engine(environ).make_commands(ORDERS)
    assert command.nodes == ("n1", "n4", "n2")
    words = command.words
    assert {"--jobid=7", "--nodelist=n1,n4,n2", "--nodes=3", "--ntasks=3", "--overlap"} <= {*words}
    assert json.loads(words[-1])["sets"] == [["n1", "n4"], ["n2"]]
    # Those of the allocation would be options of this step.
    assert command.environment == {"SLURM_CONF": "/etc/s", "HOME": "/root"}


PODS = {
    "items": [
        {
            "metadata": {"name": f"idle-{number}", "annotations": None},
            "spec": {"nodeName": f"n{number}", "containers": [{"name": "train"}]},
            "status": {"phase": "Running", "podIP": f"10.8.0.{number}"},
        }
        for number in (1, 2, 4)
    ]
}


def test_in_pods_each_node_gets_its_own_set_and_its_first_one_by_its_address() -> None:
    pods = parse_pods(json.dumps(PODS).encode())
    environ = {"PATH": "/opt/bin", "NCCL_DEBUG": "INFO", "WANDB_API_KEY": "secret"}
    commands = make_kubernetes_engine(environ, pods, "ml").make_commands(ORDERS)
    assert [one.nodes for one in commands] == [("n1",), ("n4",), ("n2",)]
    words = commands[1].words
    assert words[:2] == ("kubectl", "--namespace=ml")
    assert words[2:-2] == ("exec", "idle-4", "--container=train", "--stdin", "--", "hangbisect")
    told = json.loads(words[-1])
    assert (told["sets"], told["node"], told["folder"]) == ([["n1", "n4"]], "n4", "")
    assert told["environment"] == {"NCCL_DEBUG": "INFO"}
    asked = from_json(TaskOrders, told)
    assert make_environment(asked, "n4", ("n1", "n4"))["MASTER_ADDR"] == "10.8.0.1"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"status": {"phase": "Pending"}}, "only n2"),
        ({"spec": {"nodeName": "n2", "containers": [{"name": "train"}]}}, "twice"),
        (
            {"spec": {"containers": [{"name": "train"}]}},
            "does not say where",
        ),
        ({"metadata": 3}, "no list of pods"),
    ],
)
def test_pods_among_which_nothing_can_be_searched(change: dict[str, object], why: str) -> None:
    first, second, _ = PODS["items"]
    listed = json.dumps({"items": [first | change, second]}).encode()

    def list_nodes() -> None:
        list_pod_nodes([pod for pod in parse_pods(listed) if not pod.trouble], "app=idle")

    with pytest.raises(HangbisectError, match=why):
        list_nodes()


def test_a_command_learns_which_nodes_its_set_has() -> None:
    told = make_environment(ORDERS, "n4", ("n1", "n4"))
    assert told["MASTER_ADDR"] == told["PET_MASTER_ADDR"] == "n1"
    assert (told["NODE_RANK"], told["NNODES"], told["HANGBISECT_NODE_NAMES"]) == ("1", "2", "n1,n4")
    assert (told["RANK"], told["WORLD_SIZE"]) == ("1", "2")
    assert "HANGBISECT_NODES" not in told  # the option --nodes of a watch, which may be the command
    other = make_environment(ORDERS, "n2", ("n2",))
    assert (other["NODE_RANK"], other["NNODES"], other["MASTER_ADDR"]) == ("0", "1", "n2")
    ports = {int(told["MASTER_PORT"]), int(other["MASTER_PORT"])}
    assert len(ports) == 2  # two sets may have nodes on one machine
    assert ports <= set(PORTS)
