"""What launchers need on the hosts that hosts.py makes: sshd, a Slurm, and a pdsh.

Each takes a second or two to come up, and ends with its host.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import hosts
from hosts import Host, Hosts

_CORES = 8  # of each node of Slurm's, however many there are: more tasks than cores is fine here
_SSH = ("sshd", "ssh", "ssh-keygen")
_SLURM = ("munged", "slurmctld", "slurmd", "srun", "sbatch")

# Of pdsh's options and words those that DeepSpeed uses: man pdsh, deepspeed/launcher.
_PDSH = """\
#!/usr/bin/env python3
import getopt, subprocess, sys
options, words = getopt.getopt(sys.argv[1:], "Sf:w:R:")
names = dict(options)["-w"].split(",")
command = " ".join(words)
ran = [
    subprocess.Popen(["ssh", n, command.replace("%n", str(i)).replace("%h", n)])
    for i, n in enumerate(names)
]
status = max(abs(one.wait()) for one in ran)
sys.exit(status if "-S" in dict(options) else 0)
"""


def ssh_missing() -> str:
    """Return why there can be no sshd, "" if there can be."""
    absent = [name for name in _SSH if hosts.program(name) is None]
    return f"no {', '.join(absent)} here (Debian: openssh-server)" if absent else ""


def slurm_missing() -> str:
    """Return why there can be no Slurm, "" if there can be."""
    absent = [name for name in _SLURM if hosts.program(name) is None]
    return f"no {', '.join(absent)} here (Debian: slurm-wlm and munge)" if absent else ""


def start_ssh(made: Hosts) -> None:
    """Start an sshd on each host: `ssh n2 COMMAND` works from all of them."""
    etc = made.root / "etc"
    for name in ("host_key", "user_key"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(etc / name)]
        subprocess.run(words, check=True)
    (etc / "authorized_keys").write_text((etc / "user_key.pub").read_text())
    (etc / "sshd_config").write_text(
        f"HostKey {etc}/host_key\nAuthorizedKeysFile {etc}/authorized_keys\nStrictModes no\n"
        "PermitRootLogin yes\nPasswordAuthentication no\nUsePAM no\nUseDNS no\nPidFile none\n"
        "MaxStartups 100\n"
    )
    for host in made:
        made.daemon(host, "sshd", "-D", "-e", "-f", etc / "sshd_config")
    for host in made:
        made.until(partial(_answers, made[0], host.name), f"no sshd on {host.name}")


def write_pdsh(made: Hosts) -> Path:
    """Write a small pdsh, which starts a command on hosts by ssh; return its folder."""
    folder = made.root / "etc" / "bin"
    folder.mkdir(exist_ok=True)
    (folder / "pdsh").write_text(_PDSH)
    (folder / "pdsh").chmod(0o755)
    return folder


def write_hostfile(made: Hosts, slots: int, path: Path) -> Path:
    """Write the hosts and how many ranks each takes, for mpirun and DeepSpeed."""
    path.write_text("".join(f"{host.name} slots={slots}\n" for host in made))
    return path


def start_slurm(made: Hosts, nodes: Sequence[Host] = ()) -> dict[str, str]:
    """Start a Slurm whose controller is on the first host; return what its clients need in their
    environment. `nodes`, all by default, run tasks: another host is one to log in to.
    """
    nodes = nodes or made.all
    etc = made.root / "etc"
    key = etc / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    conf = etc / "slurm.conf"
    conf.write_text(_slurm_conf(made[0], nodes))
    for host in made:
        (host.root / "run" / "munge").mkdir(mode=0o755)
        words = [f"--{name}=/run/munge/{name}" for name in ("pid-file", "seed-file", "log-file")]
        made.daemon(host, "munged", "--foreground", "--force", *words, f"--key-file={key}")
    for host in made:
        there = host.root / "run" / "munge" / "munge.socket.2"
        made.until(there.exists, f"no munged on {host.name}")
    environ = {"SLURM_CONF": str(conf)}
    made.daemon(made[0], "slurmctld", "-D", "-f", conf)
    for host in nodes:
        made.daemon(host, "slurmd", "-D", "-N", host.name, "-f", conf)
    asked = ["sinfo", "--noheader", "--format=%D %T"]
    wanted = f"{len(nodes)} idle"
    made.until(lambda: made[0].run(asked, environ).stdout.strip() == wanted, f"not {wanted}")
    return environ


def _answers(host: Host, name: str) -> bool:
    return host.run(["ssh", name, "true"]).returncode == 0


def _slurm_conf(controller: Host, nodes: Sequence[Host]) -> str:
    return f"""\
ClusterName=hosts
SlurmctldHost={controller.name}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=5
StateSaveLocation=/run/slurm-state
SlurmdSpoolDir=/run/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
""" + "".join(
        [
            *(
                f"NodeName={host.name} NodeAddr={host.address} CPUs={_CORES} RealMemory=500 "
                "State=UNKNOWN\n"
                for host in nodes
            ),
            f"PartitionName=all Nodes={','.join(host.name for host in nodes)} "
            "Default=YES MaxTime=INFINITE State=UP\n",
        ]
    )
