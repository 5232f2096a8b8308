"""How machines are asked: the commands, and what stands in their place on PATH."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hangbisect.attach import nodes, pods
from hangbisect.attach.inquiry import ask_nodes
from hangbisect.attach.node_facts import NodeFacts
from hangbisect.attach.node_messages import Summary, write_message
from hangbisect.attach.nodes import Node, RemoteJob, answer_arguments
from hangbisect.base.argument_types import Parser
from hangbisect.base.errors import HangbisectError, UsageError
from hangbisect.base.host_names import check_one_word
from hangbisect.base.process_facts import Frame, Look, Thread
from hangbisect.base.rank_facts import RankFacts
from hangbisect.commands import attach
from hangbisect.commands.attach import add_node_options, asks_other_nodes
from hangbisect.evidence.external_tools import find_program

from ...transcripts import DOCS, block, is_printed

SLEEPS = (Frame("prepare", "/home/ada/train.py", 13),)
REDUCES = (
    Frame("all_reduce", "/v/site-packages/torch/distributed/distributed_c10d.py", 3252),
    Frame("train", "/home/ada/train.py", 18),
)


def facts(rank: int, frames: tuple[Frame, ...], pid: int = 7) -> NodeFacts:
    """What a machine with one rank of two tells."""
    threads = (Thread(pid, "MainThread", False, False, frames),) if frames else ()
    look = Look(1.0, pid, 1, "python", ("python", "train.py"), 9.0, "S", "py-spy", threads)
    one = RankFacts(rank, pid=pid, host="vm", looks=(look, look))
    return NodeFacts("vm", ("python", "train.py"), 2, False, 9.0, 5.0, 2.5, (one,), quiet=(rank,))


def answer(told: NodeFacts) -> bytes:
    """What a machine says from first to last, whatever it is asked."""
    summary = Summary(told)
    first = summary.message()
    pids = [one.pid or 0 for one in told.ranks]
    said = [{"is": "ready"}, first, summary.details(summary.looks.stacks, pids)]
    return b"".join(write_message("", one) for one in said)


StandIn = Callable[[str, str], None]


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """Put a shell script in the place of a program; what it is called with goes to `calls`."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fact0").write_bytes(answer(facts(0, REDUCES)))
    (tmp_path / "fact1").write_bytes(answer(facts(1, SLEEPS)))

    def put(name: str, script: str) -> None:
        file = tmp_path / name
        file.write_text(f'#!/bin/sh\ncd {tmp_path}\necho {name} "$@" >> calls\n{script}\n')
        file.chmod(0o755)
        find_program.cache_clear()

    return put


def calls() -> list[str]:
    return Path("calls").read_text().splitlines()


UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
}
PODS = json.dumps(
    {
        "items": [
            {
                "metadata": {"name": f"train-{n}"},
                "spec": {"containers": [{"name": "pytorch"}, {"name": "sidecar"}]},
                "status": {"phase": phase, "conditions": [UNSCHEDULABLE] * (n == 2)},
            }
            for n, phase in enumerate(["Running", "Running", "Pending"])
        ]
    }
)


def test_pods_are_asked_beside_their_container_and_where_that_is_refused_inside(
    stand_in: StandIn, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(pods.IMAGE_VARIABLE, "here/hangbisect:1")
    Path("pods").write_text(PODS)
    stand_in(
        "kubectl",
        'case "$1 $2" in\n'
        '"get pods") cat pods;;\n'
        '"debug train-0") echo "Targeting container pytorch. {"; cat fact0;;\n'
        '"debug train-1") echo "Error: pods is forbidden: ephemeralcontainers" >&2; exit 1;;\n'
        '"exec train-1") cat fact1;;\nesac',
    )
    assert attach.run(["--kubernetes", "app=train"]) == 4
    assert sorted(call.partition(" -- ")[0] for call in calls()) == [
        "kubectl debug train-0 --image=here/hangbisect:1 --target=pytorch --profile=general "
        "--stdin --quiet",
        "kubectl debug train-1 --image=here/hangbisect:1 --target=pytorch --profile=general "
        "--stdin --quiet",
        "kubectl exec train-1 --container=pytorch --stdin",
        "kubectl get pods --selector=app=train --output=json",
    ]
    printed = capsys.readouterr()
    assert is_printed(block("how-to/kubernetes.md", "culprit   rank 1 train-1 pid 7"), printed.out)
    shown = block("how-to/kubernetes.md", "train-2: is Pending")
    assert is_printed(shown, printed.err)
    assert "Asking 2 of the job in 2 pods" in printed.err


def pod(name: str, phase: str, index: str = "", **status: object) -> dict[str, object]:
    """What kubectl lists of a pod (PodStatus of Kubernetes' API)."""
    numbered = {"job-name": "train", "job-completion-index": index} if index else {}
    labels = {f"batch.kubernetes.io/{label}": value for label, value in numbered.items()}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [{"name": "pytorch"}]},
        "status": {"phase": phase, **status},
    }


PULL = {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "me/x:1"'}}
KILLED = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        (pod("p", "Running"), ""),
        (
            pod("p", "Pending", conditions=[UNSCHEDULABLE]),
            "is Pending: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
        ),
        (
            pod("p", "Pending", containerStatuses=[{"state": PULL}]),
            'is Pending: ImagePullBackOff Back-off pulling image "me/x:1"',
        ),
        (
            pod("p", "Pending", initContainerStatuses=[{"state": PULL}], containerStatuses=None),
            'is Pending: ImagePullBackOff Back-off pulling image "me/x:1"',
        ),
        (pod("p", "Pending"), "is Pending: nothing says why"),
        (
            pod("p", "Failed", reason="Evicted", message="The node was low on resource: memory."),
            "has failed: Evicted The node was low on resource: memory.",
        ),
        (
            pod("p", "Failed", containerStatuses=[{"state": KILLED}]),
            "has failed: OOMKilled (exit status 137)",
        ),
        (
            pod("p", "Unknown", reason="NodeLost"),
            "is in a state that is not known: NodeLost",
        ),
    ],
)
def test_a_pod_that_does_not_run_has_its_reason(listed: dict[str, object], said: str) -> None:
    (found,) = pods.parse_pods(json.dumps({"items": [listed]}).encode())
    assert found.trouble == said


def test_pods_that_are_done_or_replaced_are_not_missing() -> None:
    listed = [
        pod("train-0-a", "Failed", "0"),
        pod("train-0-b", "Running", "0"),
        pod("train-1-a", "Failed", "1"),
        pod("warm-up", "Succeeded"),
    ]
    found = pods.parse_pods(json.dumps({"items": listed}).encode())
    assert [(one.name, bool(one.trouble)) for one in found] == [
        ("train-0-b", False),
        ("train-1-a", True),
    ]


def test_where_no_pod_runs_each_is_named_with_its_reason(
    stand_in: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = [pod("train-0", "Pending", conditions=[UNSCHEDULABLE])]
    Path("pods").write_text(json.dumps({"items": listed}))
    stand_in("kubectl", "cat pods")
    with pytest.raises(UsageError, match=r"no pod runs .*\n  train-0 is Pending: 0/3 nodes"):
        attach.run(["--kubernetes", "app=train"])


def test_ranks_that_are_to_be_in_a_pending_pod_are_missing_with_it(
    stand_in: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = [pod("train-0", "Running"), pod("train-1", "Pending", conditions=[UNSCHEDULABLE])]
    Path("pods").write_text(json.dumps({"items": listed}))
    stand_in("kubectl", 'case "$1" in get) cat pods;; exec) cat fact0;; esac')
    assert attach.run(["--kubernetes", "app=train", "--json"]) == 4
    verdict = json.loads(capsys.readouterr().out)
    assert verdict["outcome"] == "silent"
    why = "train-1 is Pending: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    assert why in json.dumps(verdict)


def test_without_an_image_that_has_us_nothing_is_put_beside_a_pod() -> None:
    asked = ("hangbisect", *answer_arguments(4.0, {"RUN": "a b"}))
    debug, execute = pods.pod_node("p", "c", "ml", asked, "here/hangbisect:1").ways
    assert debug[:5] == ("kubectl", "--namespace=ml", "debug", "p", "--image=here/hangbisect:1")
    inside = debug[debug.index("--") + 1 :]
    assert inside == ("hangbisect", "attach", "--answer", "--for", "4", "--in=RUN=a b")
    assert execute[:4] == ("kubectl", "--namespace=ml", "exec", "p")
    without = pods.pod_node("p", "c", "ml", asked, None)
    assert without.ways == (execute,)
    assert "--image=IMAGE" in without.paste


def test_hosts_are_asked_by_ssh_without_a_prompt(
    stand_in: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in("ssh", 'case "$*" in *" a "*) cat fact0;; *" b "*) cat fact1;; esac')
    assert attach.run(["--hosts", "a,b", "--json"]) == 4
    assert all("-o BatchMode=yes -o ConnectTimeout=10 -T" in call for call in calls())
    verdict = json.loads(capsys.readouterr().out)
    assert (verdict["ranks"]["culprit"], verdict["where"][0]["host"]) == ([1], "b")


def test_a_machine_that_does_not_answer_is_reported_and_the_others_are_used(
    stand_in: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in("ssh", 'case "$*" in *" a "*) cat fact0;; *) exec sleep 30;; esac')
    assert attach.run(["--hosts", "a,b", "--limit", "1.5"]) == 4
    printed = capsys.readouterr()
    assert "b: no answer within 2 s\n    there: ssh b hangbisect attach" in printed.err
    node = nodes.slurm_node("n1", "4711", None, {})
    shown = block("how-to/hung-on-slurm.md", "n1: no answer within 30 s")
    assert shown == ["n1: no answer within 30 s", f"    there: {node.paste}"]
    assert "culprit   none that can be named" in printed.out
    assert "cause     unknown" in printed.out
    assert "note      b is not seen: no answer within 2 s" in printed.out


def test_of_a_rank_without_a_stack_it_is_said_what_there_is(
    stand_in: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in("ssh", 'case "$*" in *" a "*) cat fact0;; *) cat fact1;; esac')
    Path("fact1").write_bytes(answer(facts(1, ())))
    assert attach.run(["--hosts", "a,b"]) == 4
    told = capsys.readouterr().out
    assert "rank 1   pid 7   call: not readable" in told
    assert "rank 0   pid 7   call" not in told


def test_of_several_jobs_there_one_can_be_named(stand_in: StandIn) -> None:
    stand_in("ssh", 'echo "which? hangbisect attach 4711" >&2; exit 2')
    with pytest.raises(HangbisectError):
        attach.run(["--hosts", "a", "--in", "TORCHELASTIC_RUN_ID=x"])
    assert calls()[0].endswith("attach --answer --in=TORCHELASTIC_RUN_ID=x")
    (said,) = asyncio.run(ask_nodes(nodes.find_ssh_hosts("a", None), 30.0))
    assert said.trouble.startswith("several jobs run there: --in NAME=VALUE")


def test_where_nobody_answers_nothing_is_judged(stand_in: StandIn) -> None:
    stand_in("ssh", 'echo "hangbisect: no job runs here" >&2; exit 2')
    with pytest.raises(HangbisectError, match="none of 2 machines told anything"):
        attach.run(["--hosts", "a,b"])


def test_a_step_beside_the_jobs_own_is_free_of_our_variables() -> None:
    node = nodes.slurm_node(
        "n1", "4711", None, {"SLURM_NTASKS": "8", "SLURM_CONF": "x", "HOME": "/"}
    )
    (command,) = node.ways
    assert command[:4] == ("env", "-u", "SLURM_NTASKS", "srun")
    assert {"--overlap", "--jobid=4711", "--nodelist=n1", "--gres=none"} < set(command)
    assert command[-2:] == ("--answer", "--in=SLURM_JOB_ID=4711")
    assert node.paste.startswith("srun --overlap --jobid=4711 --nodelist=n1 -N1 -n1 --gres=none")


def test_several_jobs_of_slurms_are_listed(stand_in: StandIn) -> None:
    rows = "4711|n[1-2]|2|1:02:03|train a|b\n4712|n3|1|5:00|eval\n"
    assert [one.name for one in nodes.parse_squeue(rows)] == ["train a|b", "eval"]
    stand_in("squeue", f"printf '{rows}'")
    with pytest.raises(UsageError, match="2 jobs of yours run") as error:
        attach.run(["--slurm"])
    assert "hangbisect attach --slurm 4712    eval, n3, 5:00" in error.value.help
    stand_in("squeue", "true")
    with pytest.raises(UsageError, match="no job of yours runs"):
        attach.run(["--slurm"])
    stand_in("squeue", "echo slurm_load_jobs error: Invalid job id specified >&2; exit 1")
    with pytest.raises(UsageError, match="Invalid job id"):
        attach.run(["--slurm", "77"])


def test_a_kubectl_that_hangs_and_a_slurm_without_squeue_are_a_sentence(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stand_in("kubectl", "exec sleep 60")
    monkeypatch.setattr(pods, "KUBECTL_LIMIT", 0.5)
    with pytest.raises(HangbisectError, match="kubectl did not answer within 0 s"):
        attach.run(["--kubernetes", "app=train"])
    monkeypatch.setenv("PATH", str(tmp_path))
    find_program.cache_clear()
    with pytest.raises(UsageError, match="there is no squeue here") as error:
        attach.run(["--slurm"])
    assert "a login node" in error.value.help
    find_program.cache_clear()


# As `scontrol show node --oneliner` of Slurm 22.05 prints them, without most of their fields.
SHOWN_NODES = """\
NodeName=n1 Arch=x86_64 CPUAlloc=1 State=MIXED ThreadsPerCore=1 Comment=a State=b
NodeName=n2 Arch=x86_64 State=MIXED+DRAIN ThreadsPerCore=1 Reason=GPU 3 fell off [root@2026-11-29T09:46:28]
NodeName=n3 Arch=x86_64 State=ALLOCATED* ThreadsPerCore=1
NodeName=n4 State=DOWN* Partitions=all Reason=Not responding [slurm@2026-11-29T09:46:28] Comment=(null)
NodeName=n5 State=IDLE+DYNAMIC_NORM
"""  # noqa: E501
SAID_OF_NODES = {
    "n2": "Slurm says that it is MIXED+DRAIN: GPU 3 fell off",
    "n3": "Slurm says that it is ALLOCATED*, which does not respond",
    "n4": "Slurm says that it is DOWN*: Not responding",
}


def test_what_slurm_says_of_nodes_that_are_not_well() -> None:
    assert nodes.parse_node_states(SHOWN_NODES) == SAID_OF_NODES
    assert nodes.parse_node_states("n1\nn2\n") == {}


def test_a_drained_node_is_named_and_one_that_does_not_answer_with_what_slurm_says(
    stand_in: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("shown").write_text(SHOWN_NODES)
    stand_in("squeue", "echo '4711|n[2,4]|2|5:00|train'")
    stand_in("scontrol", 'case "$2" in hostnames) echo n2; echo n4;; *) cat shown;; esac')
    stand_in(
        "srun", 'case "$*" in *n2,n4*) exit 1;; *nodelist=n2*) cat fact1;; *) exec sleep 30;; esac'
    )
    attach.run(["--slurm", "--limit", "2"])
    told = capsys.readouterr()
    assert f"n2: {SAID_OF_NODES['n2']}\n" in told.err
    assert f"n4: no answer within 2 s; {SAID_OF_NODES['n4']}\n    there: srun" in told.err
    (file,) = Path("runs").glob("*/verdict.json")
    notes = json.loads(file.read_text())["notes"]
    assert f"n2: {SAID_OF_NODES['n2']}" in notes
    assert f"n4 is not seen: no answer within 2 s; {SAID_OF_NODES['n4']}" in notes


def test_a_slurm_that_says_nothing_of_its_nodes_is_asked_all_the_same(
    stand_in: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in("squeue", "echo '4711|n[1-2]|2|5:00|train'")
    stand_in("scontrol", 'case "$2" in hostnames) echo n1; echo n2;; *) exit 1;; esac')
    stand_in(
        "srun", 'case "$*" in *n1,n2*) exit 1;; *nodelist=n1*) cat fact0;; *) cat fact1;; esac'
    )
    assert attach.run(["--slurm"]) == 4
    assert "Slurm says" not in capsys.readouterr().err


def test_a_job_that_ends_meanwhile_is_said_to_run_no_more(stand_in: StandIn) -> None:
    """Its nodes find no rank of it, and the one step of Slurm's says so of each."""
    stand_in("squeue", "echo '4711|n[1-2]|2|5:00|train'")
    stand_in("scontrol", "echo n1; echo n2")
    why = {"is": "trouble", "why": "No job runs here that can be seen"}
    Path("ended").write_bytes(b"".join(write_message(name, why) for name in ("n1", "n2")))
    stand_in("srun", "cat ended")
    with pytest.raises(HangbisectError, match="none of 2 machines told anything of Slurm's job"):
        attach.run(["--slurm"])
    assert len([call for call in calls() if call.startswith("srun")]) == 1


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--slurm", "1", "--hosts", "a"], "--slurm and --hosts contradict each other"),
        (["4711", "--hosts", "a"], "a PID is of this machine"),
        (["--kubernetes", "app=train", "--kill"], "--kill does not end what runs in pods"),
    ],
)
def test_what_goes_not_together_is_said(argv: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        attach.run(argv)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names no host"),
        (",", "names no host"),
        ("-oProxyCommand=x", "it would be an option"),
        ("ada@-oProxyCommand=x", "it would be an option"),
        ("a b", "it is no name"),
        ("n[1-1000000]", "more than 20000 names"),
        ("n[1-", "not closed"),
        ("n1:2,n2:2", "without slots"),
        ("@hosts.txt", "not a file of them"),
    ],
)
def test_hosts_are_names(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        nodes.find_ssh_hosts(text, None)


@pytest.mark.parametrize(
    ("argv", "is_wrong"),
    [
        (["--hosts", "n1,", "n2"], True),
        (["--hosts", "n1", "n2", "n3"], True),
        (["--hosts", "n1,n2", "4711"], False),
        (["--hosts", "n1,n2", "python3", "train.py"], False),
        (["--hosts", "n1,n2", "--json"], False),
        (["--hosts", "n1,n2"], False),
        (["4711"], False),
    ],
)
def test_a_blank_between_hosts_is_told(argv: list[str], is_wrong: bool) -> None:
    with pytest.raises(UsageError, match="one word") if is_wrong else contextlib.nullcontext():
        check_one_word(argv)


def test_hosts_have_ranges_users_and_addresses_and_each_is_asked_once() -> None:
    job = nodes.find_ssh_hosts("n[08-10],ada@login,[2001:db8::7],n09", None)
    assert [one.name for one in job.nodes] == ["n08", "n09", "n10", "ada@login", "2001:db8::7"]
    assert [one.ways[0][-3:-1] for one in job.nodes[3:]] == [
        ("--", "ada@login"),
        ("--", "2001:db8::7"),
    ]


def test_more_hosts_than_are_asked_at_once_are_not_ended() -> None:
    with pytest.raises(UsageError, match="--kill reaches 64 hosts at most"):
        attach.run(["--hosts", "n[1-65]", "--kill"])


def test_without_an_option_this_machine_is_meant() -> None:
    parser = Parser()
    parser.add_argument("pids", nargs="*")
    add_node_options(parser)
    args = parser.parse_all([])
    assert not asks_other_nodes(argparse.Namespace(**vars(args), pid=[], kill=False))


def test_a_program_that_is_not_there_is_no_end() -> None:
    node = Node("a", (("no-such-program",), ("false",)), "paste")
    (said,) = asyncio.run(ask_nodes(RemoteJob((node,), "a job", ""), 5.0))
    assert said.trouble.startswith("no-such-program could not be started")


def test_the_page_shows_the_options_and_the_commands() -> None:
    page = (DOCS / "reference" / "attach-elsewhere.md").read_text(encoding="utf-8")
    parser = Parser()
    add_node_options(parser)
    assert [flag for flag in parser.flags if f"| `{flag} " not in page] == []
    step = " ".join(nodes.slurm_step(["NODES"], "JOBID", None, {}))
    for count in ("--nodes=1", "--ntasks=1"):
        step = step.replace(f"{count} ", f"{count[:-1]}N ")
    assert f"`{step.partition('--job-name=hangbisect')[0]}--job-name=hangbisect " in page
    (by_ssh,) = nodes.find_ssh_hosts("HOST", None).nodes[0].ways
    assert f"`{' '.join(by_ssh[:-1])} " in page
    debug, execute = pods.pod_node("POD", "CONTAINER", None, answer_arguments(None), "IMAGE").ways
    assert f"`{' '.join(debug[: debug.index('--')])} -- " in page
    assert f"{' '.join(execute[: execute.index('--')])} -- " in page
