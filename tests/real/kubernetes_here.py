"""A stand-in for kubectl and the cluster behind it: no Kubernetes can run here. It keeps a Job as
its API does, and each pod is a process of this machine.

What a pod is (its name, index, command, states, log and end) follows the API: Indexed Jobs
(kubernetes.io/docs/concepts/workloads/controllers/job), expansion of $(NAME) in commands
(third_party/forked/golang/expansion), states of pods (PodStatus). A pod's name is this machine's.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

_KUBECTL = """#!{python}
import json, os, re, signal, subprocess, sys, time
from pathlib import Path

FOLDER = Path({folder!r})
words = [w for w in sys.argv[1:]]
(FOLDER / "asked").open("a").write(" ".join(words) + "\\n")
if "--namespace" in words:
    at = words.index("--namespace")
    del words[at : at + 2]
job = FOLDER / "job.json"


def expand(text, variables):
    def value(found):
        return "$" if found[0] == "$$" else variables.get(found[1], found[0])
    return re.sub(r"\\$\\$|\\$\\(([A-Za-z_][A-Za-z0-9_]*)\\)", value, text)


def start(data):
    spec = data["spec"]["template"]["spec"]
    container = spec["containers"][0]
    for index in range(data["spec"]["completions"]):
        name = data["metadata"]["name"]
        variables = {{"JOB_COMPLETION_INDEX": str(index)}}
        for one in container["env"]:
            variables[one["name"]] = expand(one["value"], variables)
        command = [expand(word, variables) for word in container["command"]]
        command = [word.replace(f"{{name}}-0.{{name}}", "127.0.0.1") for word in command]
        pod = FOLDER / f"{{name}}-{{index}}-x"
        pod.mkdir()
        shell = f'"$@" > {{pod}}/log 2>&1; echo $? > {{pod}}/new; mv {{pod}}/new {{pod}}/status'
        process = subprocess.Popen(
            ["sh", "-c", shell, "sh", *command], env={{**os.environ, **variables}},
            start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        (pod / "pid").write_text(str(process.pid))


def state(pod):
    if not (pod / "pid").exists():
        return {{"phase": "Pending"}}
    if not (pod / "status").exists():
        return {{"phase": "Running", "containerStatuses": [{{"state": {{"running": {{}}}}}}]}}
    code = int((pod / "status").read_text())
    ended = {{"containerStatuses": [{{"state": {{"terminated": {{"exitCode": code}}}}}}]}}
    return {{"phase": "Failed" if code else "Succeeded", **ended}}


if words[0] == "create":
    items = json.load(sys.stdin)["items"]
    job.write_text(json.dumps(items[1]))
    (FOLDER / "manifest.json").write_text(json.dumps(items))
elif words[0] == "get":
    if (FOLDER / "away").exists():
        (FOLDER / "away").unlink()
        sys.exit("The connection to the server was refused - did you specify the right host?")
    data = json.loads(job.read_text())
    count = FOLDER / "count"
    asked = int(count.read_text()) if count.exists() else 0
    count.write_text(str(asked + 1))
    names = [f"{{data['metadata']['name']}}-{{i}}-x" for i in range(data["spec"]["completions"])]
    if asked < {pending}:
        reason = {{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                  "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."}}
        status = {{"phase": "Pending", "conditions": [reason]}}
        found = [{{"metadata": {{"name": name}}, "status": status}} for name in names]
    else:
        if not (FOLDER / names[0]).exists():
            start(data)
        found = [{{"metadata": {{"name": name}}, "status": state(FOLDER / name)}} for name in names]
    print(json.dumps({{"items": found}}))
elif words[0] == "logs":
    pod = FOLDER / words[-1]
    with open(pod / "log", "rb") as log:
        is_over = False
        while not is_over:
            is_over = (pod / "status").exists()
            sys.stdout.buffer.write(log.read())
            sys.stdout.flush()
            time.sleep(0.1)
elif words[0] == "delete":
    for pid in FOLDER.glob("*/pid"):
        try:
            os.killpg(int(pid.read_text()), signal.SIGKILL)
        except ProcessLookupError:
            pass
else:
    sys.exit(f"what is {{words[0]}}?")
"""


@dataclass
class Cluster:
    """A cluster that has one Job; its kubectl is in `path`, to be put before PATH."""

    folder: Path
    path: Path

    def asked(self) -> list[str]:
        """Return the commands that kubectl got."""
        return (self.folder / "asked").read_text().splitlines()

    def pids(self) -> list[int]:
        """Return what runs, or ran, as a pod."""
        return [int(file.read_text()) for file in self.folder.glob("*/pid")]


def make_cluster(folder: Path, pending: int = 1) -> Cluster:
    """Return a cluster, in an empty folder, whose pods are Pending for so many questions."""
    cluster = Cluster(folder / "cluster", folder / "kubectl")
    cluster.folder.mkdir()
    cluster.path.mkdir()
    text = _KUBECTL.format(python=sys.executable, folder=str(cluster.folder), pending=pending)
    program = cluster.path / "kubectl"
    program.write_text(text)
    program.chmod(0o755)
    return cluster
