"""The pods of a job, by their labels, and how each is asked or started in.

A container may seldom trace, and seldom has us in it. `kubectl debug` adds one beside it that
shares its processes (--target) and may (the profile "general" adds SYS_PTRACE: kubernetes.io,
"Debugging Profiles"). Its image must have us in it: nothing is installed in a container that may
trace. Without such an image, or where that is refused, `kubectl exec` asks in the container. A pod
that does not run is asked nothing: it is named, with its reason.
"""

from __future__ import annotations

import json
import os
import runpy
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from ..base.errors import HangbisectError, UsageError
from ..base.lazy_dataclass import dataclass
from .nodes import Node, NodeAnswer, RemoteJob, answer_arguments, run_program

KUBECTL_LIMIT = 15.0  # seconds for the list of pods
POD_WINDOW = 32  # each kubectl is a stream through the one API server
DEBUG_PROFILE = "general"
IMAGE_VARIABLE = "HANGBISECT_IMAGE"
_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
_OF_JOB = "batch.kubernetes.io/job-name"  # labels that a Job's controller gives
_INDEX = "batch.kubernetes.io/job-completion-index"


@dataclass(frozen=True)
class Pod:
    """A pod, for example one of an Indexed Job."""

    name: str
    container: str  # that it is about: the one that an annotation names, else the first
    node: str = ""  # of the cluster, on which it runs
    address: str = ""
    trouble: str = ""  # why it does not run: "is Pending: 0/3 nodes are available"; "": it runs


async def list_pods(selector: str, namespace: str | None, instead: str) -> tuple[Pod, ...]:
    """Return the pods with these labels ("app=idle"), as parse_pods() does.

    Raises UsageError where there is no kubectl, HangbisectError where it does not answer; both say
    what to do `instead`.
    """
    words = ("get", "pods", f"--selector={selector}", "--output=json")
    command = (*kubectl_command(namespace), *words)
    return parse_pods(await run_program(command, KUBECTL_LIMIT, instead))


def parse_pods(printed: bytes) -> tuple[Pod, ...]:
    """Return the pods in `kubectl get pods --output=json`, without those that have done their work,
    and those in whose place there is another one. Raises HangbisectError.
    """
    try:
        items: Sequence[Any] = json.loads(printed)["items"]
        live = {_place_of(item) for item in items if _phase_of(item) in ("Running", "Pending")}
        return tuple(
            Pod(
                str(item["metadata"]["name"]),
                _find_container(item),
                str(item["spec"].get("nodeName") or ""),
                str(item["status"].get("podIP") or ""),
                "" if _phase_of(item) == "Running" else _explain(item),
            )
            for item in items
            if _phase_of(item) in ("Running", "Pending")
            or (_phase_of(item) in ("Failed", "Unknown") and _place_of(item) not in live - {None})
        )
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise HangbisectError(f"kubectl printed no list of pods: {error!r}") from None


def _phase_of(item: Mapping[str, Any]) -> str:
    return str(item.get("status", {}).get("phase"))


def _place_of(item: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the Job of a pod, and its number there; None where it has none."""
    labels = item["metadata"].get("labels") or {}
    return (str(labels[_OF_JOB]), str(labels[_INDEX])) if {_OF_JOB, _INDEX} <= {*labels} else None


def _explain(item: Mapping[str, Any]) -> str:
    """Return why a pod does not run, in words."""
    status = item["status"]
    listed = ("initContainerStatuses", "containerStatuses")
    states = [one.get("state") or {} for name in listed for one in status.get(name) or ()]
    if status["phase"] == "Pending":
        return f"is Pending: {_explain_pending(status, states) or 'nothing says why'}"
    ended = (one["terminated"] for one in states if one.get("terminated"))
    failed: Mapping[str, Any] = next((one for one in ended if one.get("exitCode") != 0), {})
    words = [status.get("reason"), status.get("message")]
    if failed:
        words += [failed.get("reason"), f"(exit status {failed.get('exitCode')})"]
    why = " ".join(" ".join(str(word) for word in words if word).split())
    phase = "has failed" if status["phase"] == "Failed" else "is in a state that is not known"
    return f"{phase}: {why or 'nothing says why'}"


def _explain_pending(status: Mapping[str, Any], states: Sequence[Mapping[str, Any]]) -> str:
    """Return why a pod waits, by the function of our launcher for Kubernetes: that is a file which
    people copy, and imports nothing of ours.
    """
    from ..trials.matrix import launcher_folder

    launcher = runpy.run_path(str(launcher_folder() / "kubernetes"))
    return str(launcher["explain_pending"](status, states))


def _find_container(item: Mapping[str, Any]) -> str:
    annotations = item["metadata"].get("annotations") or {}
    return str(annotations.get(_DEFAULT_CONTAINER) or item["spec"]["containers"][0]["name"])


async def find_pods(
    selector: str,
    namespace: str | None,
    span: float | None,
    only: Mapping[str, str] | None = None,
) -> RemoteJob:
    """Return the pods that `selector` ("app=train") names: those that run, and why others do not.

    Raises UsageError where none runs, or there is no kubectl; HangbisectError where it does not
    answer.
    """
    listed = await list_pods(selector, namespace, "In the pod: hangbisect attach")
    found = [pod for pod in listed if not pod.trouble]
    absent = tuple(_absent_pod(pod, namespace) for pod in listed if pod.trouble)
    if not found:
        whys = "".join(f"\n  {one.node.name} {one.trouble}" for one in absent)
        raise UsageError(
            f"no pod runs with the labels {selector!r}{whys}",
            f"kubectl get pods --selector={shlex.quote(selector)} shows what there is.",
        )
    image = os.environ.get(IMAGE_VARIABLE)
    asked = ("hangbisect", *answer_arguments(span, only))
    nodes = tuple(pod_node(pod.name, pod.container, namespace, asked, image) for pod in found)
    says = f"the job in {len(nodes)} pods"
    end_it = f"kubectl delete pod {' '.join(pod.name for pod in found)}"
    return RemoteJob(nodes, says, end_it, window=POD_WINDOW, can_end=False, absent=absent)


def _absent_pod(pod: Pod, namespace: str | None) -> NodeAnswer:
    paste = shlex.join((*kubectl_command(namespace), "describe", "pod", pod.name))
    return NodeAnswer(Node(pod.name, (), paste), None, pod.trouble, has_no_job=True)


def pod_node(
    name: str, container: str, namespace: str | None, asked: Sequence[str], image: str | None
) -> Node:
    """Return a pod with the ways to ask it, by the command `asked`. `image` is one that has us in
    it; without, it is only asked inside.
    """
    base = kubectl_command(namespace)
    execute = (*base, "exec", name, f"--container={container}", "--stdin", "--", *asked)
    beside = (f"--image={image or 'IMAGE'}", f"--target={container}", f"--profile={DEBUG_PROFILE}")
    debug = (*base, "debug", name, *beside)
    paste = shlex.join((*debug, "-it", "--", "hangbisect", "attach"))
    if image is None:
        return Node(name, (execute,), f"{paste}    IMAGE: one that has hangbisect")
    return Node(name, ((*debug, "--stdin", "--quiet", "--", *asked), execute), paste)


def kubectl_command(namespace: str | None) -> tuple[str, ...]:
    """Return kubectl with the namespace, if one is named."""
    return ("kubectl", *((f"--namespace={namespace}",) if namespace else ()))
