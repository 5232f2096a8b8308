"""The pods of a job, by their labels, and how each is asked or started in.

A container may seldom trace, and seldom has us in it. `kubectl debug` adds one beside it that
shares its processes (--target) and may (the profile "general" adds SYS_PTRACE: kubernetes.io,
"Debugging Profiles"). Its image must have us in it: nothing is installed in a container that may
trace. Without such an image, or where that is refused, `kubectl exec` asks in the container.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from ..base.errors import HangbisectError, UsageError
from ..base.lazy_dataclass import dataclass
from .nodes import Node, RemoteJob, answer_arguments, run_program

KUBECTL_LIMIT = 15.0  # seconds for the list of pods
POD_WINDOW = 32  # each kubectl is a stream through the one API server
DEBUG_PROFILE = "general"
IMAGE_VARIABLE = "HANGBISECT_IMAGE"
_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"


@dataclass(frozen=True)
class Pod:
    """A pod that runs, for example one of an Indexed Job."""

    name: str
    container: str  # that it is about: the one that an annotation names, else the first
    node: str = ""  # of the cluster, on which it runs
    address: str = ""


async def list_pods(selector: str, namespace: str | None, instead: str) -> tuple[Pod, ...]:
    """Return the running pods with these labels ("app=idle").

    Raises UsageError where there is no kubectl, HangbisectError where it does not answer; both say
    what to do `instead`.
    """
    words = ("get", "pods", f"--selector={selector}", "--output=json")
    command = (*kubectl_command(namespace), *words)
    return parse_pods(await run_program(command, KUBECTL_LIMIT, instead))


def parse_pods(printed: bytes) -> tuple[Pod, ...]:
    """Return the running pods in `kubectl get pods --output=json`. Raises HangbisectError."""
    try:
        items: Sequence[Any] = json.loads(printed)["items"]
        return tuple(
            Pod(
                str(item["metadata"]["name"]),
                _find_container(item),
                str(item["spec"].get("nodeName") or ""),
                str(item["status"].get("podIP") or ""),
            )
            for item in items
            if item.get("status", {}).get("phase") == "Running"
        )
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise HangbisectError(f"kubectl printed no list of pods: {error!r}") from None


def _find_container(item: Mapping[str, Any]) -> str:
    annotations = item["metadata"].get("annotations") or {}
    return str(annotations.get(_DEFAULT_CONTAINER) or item["spec"]["containers"][0]["name"])


async def find_pods(
    selector: str,
    namespace: str | None,
    span: float | None,
    only: Mapping[str, str] | None = None,
) -> RemoteJob:
    """Return the running pods that `selector` ("app=train") names.

    Raises UsageError where there is none, or no kubectl; HangbisectError where it does not answer.
    """
    found = await list_pods(selector, namespace, "In the pod: hangbisect attach")
    if not found:
        raise UsageError(
            f"no pod runs with the labels {selector!r}",
            f"kubectl get pods --selector={shlex.quote(selector)} shows what there is.",
        )
    image = os.environ.get(IMAGE_VARIABLE)
    asked = ("hangbisect", *answer_arguments(span, only))
    nodes = tuple(pod_node(pod.name, pod.container, namespace, asked, image) for pod in found)
    says = f"the job in {len(nodes)} pods"
    end_it = f"kubectl delete pod {' '.join(pod.name for pod in found)}"
    return RemoteJob(nodes, says, end_it, window=POD_WINDOW, can_end=False)


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
