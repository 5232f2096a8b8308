"""The table of launchers: what each is called, what it sets in its ranks, and how it behaves.

Every Python below a watched command reads this before it knows whether it is a rank: imports are
few. What the variables of a process mean is in launcher_env.py, what the words of a command mean in
command_words.py.
"""

from __future__ import annotations

from typing import NamedTuple


class Variables(NamedTuple):
    """What a launcher sets in each rank: torchrun and DeepSpeed RANK (torch.distributed.run's
    documentation), Open MPI OMPI_COMM_WORLD_* (ompi_info), Slurm SLURM_PROCID in every task of a
    step (man srun), Flux FLUX_TASK_* (flux-environment(7)), MPICH and Intel MPI PMI_*. "" and ()
    stand for what it does not set.
    """

    rank: str
    local_rank: str
    world_size: str
    local_world_size: str
    node: str = ""
    nodes: tuple[str, ...] = ()  # how many there are; of several the first that is set
    job: tuple[str, ...] = ()  # what tells its job from others
    alone: tuple[str, ...] = ()  # nothing else sets these
    step_size: str = ""  # how many ranks it started itself, whatever WORLD_SIZE says
    prefixes: tuple[str, ...] = ()  # how the names of all its variables begin
    family: str = "launcher"  # where the environment block shows them
    shown: tuple[str, ...] = ()  # which it shows: a name, or the beginning of some (with *)
    varying: str = ""  # a pattern: those that differ between ranks, or between two starts


class Launcher(NamedTuple):
    """A launcher. What a person types is a program, or a module behind `python -m`."""

    name: str  # what a rank says that started it
    programs: tuple[str, ...]  # what a person types
    helpers: tuple[str, ...] = ()  # programs that start the ranks for it
    others: tuple[str, ...] = ()  # Python programs of it that are neither, and no ranks
    # Programs below which no rank runs: they ask others to start it, or wait in a queue.
    clients: tuple[str, ...] = ()
    queue: tuple[str, ...] = ()  # a command that prints a line for each job of this user that waits
    files: tuple[str, ...] = ()  # parts of the paths of its files, in stacks
    word: str = ""  # what sentences call it, where that is not its name
    variables: Variables | None = None  # None: those of the launcher in `speaks`
    speaks: str = ""
    # How it behaves.
    is_around: bool = False  # it starts other launchers' helpers too: they are the inner ones
    is_said_by: tuple[str, ...] = ()  # launchers that set its variables too
    is_on_each_node: bool = False  # it is started once a node, and starts that node's ranks
    ends_all: bool = False  # it lets the others go on only where a rank ended with status 0
    # What suspends its job stops the ranks, and not what started them.
    stops_ranks_alone: bool = False
    gives_terminals: bool = False  # to its ranks, whatever its own output is
    sets_threads: bool = False  # OMP_NUM_THREADS to 1, for several ranks
    # Flags.
    subcommands: tuple[str, ...] = ()  # the first word of its own, before the flags
    ranks: tuple[str, ...] = ()
    default_ranks: int | None = None  # where nothing says how many
    nodes: tuple[str, ...] = ()
    allocation: str = ""  # the variable that says how many nodes, where no flag does
    ports: tuple[str, ...] = ()  # where ranks meet, perhaps after the name of a host
    default_port: int | None = None  # None: a free one, or whatever a variable says
    hosts: tuple[str, ...] = ()  # other machines
    passing: str = ""  # passes a variable to these, where none is passed without it
    switches: tuple[str, ...] = ()  # without a value; they may stand right before a program

    @property
    def dialect(self) -> str:
        """The launcher whose variables it sets."""
        return self.speaks or self.name


_MPI_HOSTS = ("-H", "-host", "--host", "-hostfile", "--hostfile", "-machinefile", "--machinefile")
_TORCHRUN = Launcher(
    "torchrun",
    ("torchrun", "torch.distributed.run"),
    others=("torch.distributed.launcher",),
    files=("torch/distributed/run.py",),
    variables=Variables(
        *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK"),
        nodes=("GROUP_WORLD_SIZE",),
        job=("TORCHELASTIC_RUN_ID",),
        alone=("TORCHELASTIC_RUN_ID",),
        prefixes=("RANK", "LOCAL_", "WORLD_", "GROUP_", "NODE_", "MASTER_", "TORCH"),
        shown=(
            *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK"),
            *("MASTER_*", "OMP_NUM_THREADS"),
        ),
        varying=r"TORCHELASTIC_(?:RUN_ID|ERROR_FILE)|(?:LOCAL_|GROUP_|ROLE_|NODE_|CROSS_)?RANK"
        r"|(?:LOCAL_|ROLE_|GROUP_)?WORLD_SIZE",
    ),
    is_on_each_node=True,
    ends_all=True,
    sets_threads=True,
    ranks=("--nproc_per_node", "--nproc-per-node"),
    default_ranks=1,
    nodes=("--nnodes",),
    ports=("--master_port", "--master-port", "--rdzv_endpoint", "--rdzv-endpoint"),
    switches=("--standalone", "--no_python", "--no-python", "--use_env", "--use-env"),
)
LAUNCHERS = (
    _TORCHRUN,
    _TORCHRUN._replace(
        name="launch",
        programs=("torch.distributed.launch",),
        variables=None,
        speaks="torchrun",
        ends_all=False,
    ),
    Launcher(
        "deepspeed",
        ("deepspeed", "deepspeed.launcher.runner"),
        helpers=("deepspeed.launcher.launch",),
        others=("deepspeed.launcher.launcher_helper", "ds", "dsr"),
        files=("deepspeed/launcher/",),
        speaks="torchrun",
        is_on_each_node=True,
        ranks=("--num_gpus",),
        nodes=("--num_nodes",),
        ports=("--master_port",),
        default_port=29500,
    ),
    Launcher(
        "accelerate",
        (
            *("accelerate", "accelerate-launch"),
            *("accelerate.commands.launch", "accelerate.commands.accelerate_cli"),
        ),
        files=("accelerate/commands/",),
        speaks="torchrun",
        is_on_each_node=True,
        subcommands=("launch",),
        ranks=("--num_processes",),
        nodes=("--num_machines",),
        ports=("--main_process_port", "--main-process-port"),
        default_port=29500,
        switches=("--multi_gpu", "--cpu"),
    ),
    Launcher(
        "srun",
        ("srun",),
        helpers=("slurmstepd",),
        clients=("srun", "sbatch", "salloc"),
        queue=("squeue", "--me", "--noheader", "--states=PENDING", "--format=%i"),
        variables=Variables(
            *("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE"),
            node="SLURM_NODEID",
            nodes=("SLURM_STEP_NUM_NODES", "SLURM_NNODES"),
            job=("SLURM_JOB_ID", "SLURM_STEP_ID"),
            alone=("SLURM_STEP_ID",),
            step_size="SLURM_STEP_NUM_TASKS",
            prefixes=("SLURM_",),
            family="Slurm",
            shown=("SLURM_*",),
            varying=r"SLURM_(?:JOB_?ID|STEP_?ID|STEPID|PROCID|LOCALID|NODEID|TASK_PID|GTIDS|NTASKS"
            r"|NPROCS|STEP_NUM_TASKS|STEP_LAUNCHER_PORT|SRUN_COMM_PORT|SRUN_COMM_HOST"
            r"|LAUNCH_NODE_IPADDR|JOB_(?:START|END)_TIME)",
        ),
        is_around=True,
        stops_ranks_alone=True,  # slurmstepd goes on (scontrol(1), suspend)
        ranks=("-n", "--ntasks"),
        nodes=("-N", "--nodes"),
        allocation="SLURM_NNODES",
        switches=("--exclusive", "--overlap", "--pty", "--unbuffered", "--label", "--wait"),
    ),
    Launcher(
        "flux",
        ("flux",),
        helpers=("flux-shell", "flux-broker"),
        others=("py-runner.py",),  # modules of its broker, which may have variables of PMI
        clients=("flux", "flux-job"),
        queue=("flux", "jobs", "--no-header", "--filter=pending", "--format={id}"),
        variables=Variables(
            # FLUX_JOB_NNODES counts brokers; how many tasks this node has is in no variable.
            *("FLUX_TASK_RANK", "FLUX_TASK_LOCAL_ID", "FLUX_JOB_SIZE", ""),
            nodes=("FLUX_JOB_NNODES",),
            job=("FLUX_JOB_ID_PATH", "FLUX_JOB_ID"),
            alone=("FLUX_TASK_RANK",),
            step_size="FLUX_JOB_SIZE",
            prefixes=("FLUX_",),
            family="Flux",
            shown=("FLUX_JOB_*", "FLUX_TASK_*"),
            varying=r"FLUX_(?:JOB_ID(?:_PATH)?|JOB_TMPDIR|KVS_NAMESPACE|TASK_RANK|TASK_LOCAL_ID|URI"
            r"|START_URI)",
        ),
        is_around=True,
        subcommands=("run", "submit", "alloc", "batch"),
        ranks=("-n", "--ntasks"),
        nodes=("-N", "--nodes"),
        switches=("--exclusive", "--label-io"),
    ),
    Launcher(
        "mpirun",
        ("mpirun", "mpiexec", "orterun", "prterun"),
        helpers=("orted", "prted"),
        variables=Variables(
            *("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
            "OMPI_COMM_WORLD_LOCAL_SIZE",  # OMPI_COMM_WORLD_NODE_RANK is no number of a node
            alone=("OMPI_COMM_WORLD_RANK",),
            step_size="OMPI_COMM_WORLD_SIZE",
            prefixes=("OMPI_", "PMIX_"),
            family="MPI",
            shown=("OMPI_COMM_WORLD_*",),
            varying=r"OMPI_COMM_WORLD_.*|PMIX_.*",
        ),
        stops_ranks_alone=True,  # it hands the order on (mpirun(1), signal propagation)
        gives_terminals=True,
        ranks=("-n", "-np", "--np", "--n"),
        hosts=_MPI_HOSTS,
        passing="-x",
        switches=("--oversubscribe", "--allow-run-as-root"),
    ),
    Launcher(
        "pmi",  # MPICH and Intel MPI
        ("mpiexec.hydra",),
        word="mpiexec",
        variables=Variables(
            *("PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE", "MPI_LOCALNRANKS", "PMI_NODE"),
            alone=("PMI_RANK",),
            prefixes=("PMI_", "MPI_LOCAL", "HYDRA_"),
            family="MPI",
            shown=("PMI_*",),
            varying=r"PMI_(?:RANK|SIZE|FD)",
        ),
        is_said_by=("srun", "flux"),
        ranks=("-n", "-np"),
        hosts=_MPI_HOSTS,
    ),
)

BY_NAME = {one.name: one for one in LAUNCHERS}
TORCHRUN, SRUN = BY_NAME["torchrun"], BY_NAME["srun"]
DIALECTS = {one.name: one.variables for one in LAUNCHERS if one.variables is not None}
RANK_VARIABLES = tuple(words.rank for words in DIALECTS.values())
# By what a person types, and by what the process is called that started the ranks.
BY_PROGRAM = {program: one for one in LAUNCHERS for program in one.programs}
BY_STARTER = {
    program: one
    for one in LAUNCHERS
    for program in (*one.programs, *one.helpers)
    if program not in one.clients
}
CLIENTS = frozenset(program for one in LAUNCHERS for program in one.clients)
# What no process has that a launcher did not start; a shell may be a task of srun's.
ALONE = tuple(name for words in DIALECTS.values() for name in words.alone)
ALONE_BUT_SRUNS = tuple(name for name in ALONE if name not in DIALECTS["srun"].alone)
# Python programs that start ranks, and are none: those of the table, and some that set nothing.
NO_RANKS = frozenset(
    [
        *(*BY_PROGRAM, *BY_STARTER),
        *(program for one in LAUNCHERS for program in one.others),
        *("torchx", "torchx.apps", "fabric", "lightning_fabric.cli", "ray", "horovodrun"),
    ]
)
_UNKNOWN = Launcher("", ())


def find_launcher(name: str | None) -> Launcher:
    """Return the launcher of a name; for any other one of which nothing is known."""
    return BY_NAME.get(name or "", _UNKNOWN)


def find_typed_launcher(program: str) -> Launcher:
    """Return the launcher that a program or module is, by which a person starts it; for any other
    one of which nothing is known.
    """
    return BY_PROGRAM.get(program, _UNKNOWN)
