"""Pods of a Kubernetes cluster, by their labels.

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

from ...errors import HangbisectError, UsageError
from .asking import output_of
from .node import Elsewhere, Node
from .ourselves import words

LIMIT = 15.0  # seconds for the list of pods
PROFILE = "general"
IMAGE_VARIABLE = "HANGBISECT_IMAGE"
_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"


async def pods(
    selector: str,
    namespace: str | None,
    span: float | None,
    only: Mapping[str, str] | None = None,
) -> Elsewhere:
    """Return the running pods that `selector` ("app=train") names.

    Raises UsageError where there is none, or no kubectl; HangbisectError where it does not answer.
    """
    listing = (*_base(namespace), "get", "pods", f"--selector={selector}", "--output=json")
    found = parse(await output_of(listing, LIMIT, "In the pod: hangbisect attach"))
    if not found:
        raise UsageError(
            f"no pod runs with the labels {selector!r}",
            f"kubectl get pods --selector={shlex.quote(selector)} shows what there is.",
        )
    image = os.environ.get(IMAGE_VARIABLE)
    asked = ("hangbisect", *words(span, only))
    nodes = tuple(pod(name, box, namespace, asked, image) for name, box in found.items())
    return Elsewhere(
        nodes, f"the job in {len(nodes)} pods", f"kubectl delete pod {' '.join(found)}"
    )


def parse(printed: bytes) -> dict[str, str]:
    """Return the running pods in `kubectl get pods --output=json`, each with the container that it
    is about: the one that an annotation names, else the first.
    """
    try:
        items: Sequence[Any] = json.loads(printed)["items"]
        return {
            str(item["metadata"]["name"]): _container(item)
            for item in items
            if item.get("status", {}).get("phase") == "Running"
        }
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise HangbisectError(f"kubectl printed no list of pods: {error!r}") from None


def _container(item: Mapping[str, Any]) -> str:
    annotations = item["metadata"].get("annotations") or {}
    return str(annotations.get(_DEFAULT_CONTAINER) or item["spec"]["containers"][0]["name"])


def pod(
    name: str, container: str, namespace: str | None, asked: Sequence[str], image: str | None
) -> Node:
    """Return a pod with the ways to ask it, by the command `asked`. `image` is one that has us in
    it; without, it is only asked inside.
    """
    base = _base(namespace)
    execute = (*base, "exec", name, f"--container={container}", "--", *asked)
    beside = (f"--image={image or 'IMAGE'}", f"--target={container}", f"--profile={PROFILE}")
    debug = (*base, "debug", name, *beside)
    paste = shlex.join((*debug, "-it", "--", "hangbisect", "attach"))
    if image is None:
        return Node(name, (execute,), f"{paste}    IMAGE: one that has hangbisect")
    return Node(name, ((*debug, "--stdin", "--quiet", "--", *asked), execute), paste)


def _base(namespace: str | None) -> tuple[str, ...]:
    return ("kubectl", *((f"--namespace={namespace}",) if namespace else ()))
