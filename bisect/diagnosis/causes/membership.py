"""Who belongs to the job: ranks that are counted on and never come, or that left."""

from __future__ import annotations

from ...base.addresses import is_loopback
from ...base.launcher_env import INTERACTIVE
from ...base.launchers import ALONE_BUT_SRUNS
from ...base.words import format_ranks
from ..rendezvous_claims import claimed_world_size, number
from .known_cause import Found, KnownCause, Scene, also, need, unless
from .rendezvous import worlds_differ
from .signs import format_waiting_ranks, makes_a_group

_GUESSED = 0.8  # what a sign is worth where who waits for whom is a guess


def _counted_on(scene: Scene) -> int:
    """Return the largest world that a rank counts on."""
    sizes = [values.get("world_size", 0) for values in scene.group_values.values()]
    return max([claimed_world_size(scene.ranks), *sizes], default=0)


def _started(scene: Scene) -> int:
    """Return how many ranks the launcher started, as far as this node knows."""
    alone = any(r.environment.get("GROUP_WORLD_SIZE") == "1" for r in scene.ranks)
    return len(scene.job.local_ranks) if alone else scene.job.world_size


# ---- signs ---------------------------------------------------------------------------------------


def _more_counted_on_than_started(scene: Scene) -> Found | None:
    """WORLD_SIZE is larger than the number of ranks that were started."""
    counted, started = _counted_on(scene), _started(scene)
    if counted <= started:
        return None
    return Found(
        f"the group counts on {counted} ranks, the launcher on {started}",
        {"counted": counted, "started": started},
    )


def _not_started(scene: Scene) -> Found | None:
    """A rank of this node has no process, and who starts the ranks is done with it."""
    if scene.job.starting:
        return None
    missing = tuple(r.rank for r in scene.ranks if r.never_started and r.pid is None)
    if not missing:
        return None
    return Found(f"there is no process of {format_ranks(missing)}", {"missing": missing[0]})


def _find_lone_process(scene: Scene) -> Found | None:
    """There is one process of the job, and no other rank was ever seen."""
    others = [r for r in scene.ranks if not r.never_started]
    python = [c for c in scene.children if c.name.startswith(("python", "pt_main")) and c.threads]
    if len(others) != 1 or python:
        return None
    return Found(f"rank {others[0].rank} is the only process of the job")


def _variables_of_a_launcher(scene: Scene) -> Found | None:
    """LOCAL_RANK or NODE_RANK is set, and no launcher set it."""
    environment = scene.environment
    if any(name in environment for name in ALONE_BUT_SRUNS):
        return None
    address = environment.get("MASTER_ADDR", "")
    if "RANK" in environment and address and not is_loopback(address):
        return None  # started by hand on several nodes
    names = [name for name in ("NODE_RANK", "LOCAL_RANK") if environment.get(name)]
    if not names:
        return None
    words = ", ".join(f"{name}={environment[name]}" for name in names)
    values = {"names": " and ".join(names)}
    # All of them together may well be those of a launcher that is not known here (DeepSpeed's).
    whole = all(environment.get(name) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
    return Found(f"{words} without torchrun, srun or mpirun", values, 0.6 if whole else 1.0)


def _its_starter_hears(scene: Scene) -> Found | None:
    """Who starts the ranks waits for what one of them is to tell it."""
    words = scene.job.starter_hears
    return Found(words, {"who": words.partition(",")[0]}) if words else None


def _task_of_slurm(scene: Scene) -> Found | None:
    """SLURM_NTASKS is above 1 in a step that srun did not start, and that is not interactive; or
    Lightning says so, of variables that a program has set in itself.
    """
    environment = scene.environment
    if "SLURM_NTASKS" not in environment and (tasks := _read_slurm_tasks(scene)):
        words = f"Lightning believes that it is one of {tasks} tasks of Slurm (SLURMEnvironment)"
        return Found(words, {"tasks": tasks})
    tasks = number(environment.get("SLURM_NTASKS", "")) or 0
    name = environment.get("SLURM_JOB_NAME", "")
    if tasks < 2 or name in INTERACTIVE or any(v in environment for v in ALONE_BUT_SRUNS):
        return None
    if number(environment.get("SLURM_STEP_NUM_TASKS", "")) == tasks:
        return None  # srun did start them
    return Found(f"SLURM_NTASKS={tasks}, SLURM_JOB_NAME={name or '(not set)'}", {"tasks": tasks})


def _read_slurm_tasks(scene: Scene) -> int:
    """Return for how many tasks of Slurm's Lightning makes the group, 0 where it does not, or where
    Slurm has started the process.
    """
    frame = scene.frame(r"lightning[_/]fabric/utilities/distributed\.py", "_init_dist_connection")
    told = dict(frame.locals) if frame is not None else {}
    started = any(name.startswith("SLURM_STEP") for name in scene.environment)
    if started or "SLURMEnvironment" not in told.get("cluster_environment", ""):
        return 0
    return number(told.get("world_size", "")) or 0


def _fewer_than_slurm_tasks(scene: Scene) -> Found | None:
    """Fewer processes run than Slurm has tasks."""
    tasks = number(scene.environment.get("SLURM_NTASKS", "")) or _read_slurm_tasks(scene)
    running = len([r for r in scene.ranks if not r.never_started])
    nodes = number(scene.environment.get("SLURM_NNODES", "")) or 1
    if nodes > 1 or running >= tasks:
        return None
    return Found(f"{running} of {tasks} tasks run", {"running": running})


def somebody_is_missing(scene: Scene) -> Found | None:
    """A rank never came, or another one waits where the process group is made."""
    missing = scene.verdict.ranks.never_started
    if missing:
        return Found(f"{format_ranks(missing)} never came")
    return makes_a_group(scene)


def _nobody_to_start_them(scene: Scene) -> Found | None:
    """It is the only process, and variables make it believe that others start the rest."""
    if _find_lone_process(scene) is None:
        return None
    return _variables_of_a_launcher(scene) or _task_of_slurm(scene)


def _left_with_success(scene: Scene) -> Found | None:
    """A rank ended early with status 0."""
    early = tuple(r.rank for r in scene.ranks if r.left and not r.finished and r.status == 0)
    blamed = set(scene.verdict.ranks.culprit)
    # Where it is not to blame no rank is known to wait for it: another one waits for something of
    # its own, or nothing says who waits for whom.
    if not blamed & {*early}:
        return None
    words = f"{format_ranks(early)} ended with status 0 before the end"
    # It may be no more than a guess that the others wait for it.
    guessed = scene.verdict.guessed
    return Found(words, {"rank": early[0]}, trust=_GUESSED if guessed else 1.0, doubtful=guessed)


def _others_go_on(scene: Scene) -> Found | None:
    """Others wait for it, or go on without it."""
    waiting = scene.verdict.ranks.waiting
    return Found(f"{format_waiting_ranks(waiting)} for it") if waiting else None


def _left_with_failure(scene: Scene) -> Found | None:
    """A rank failed or was killed, and the others were not ended."""
    everybody = all(facts.left for facts in scene.ranks)
    if scene.job.ended == "interrupted" and everybody:  # all were told to go
        return None
    for facts in scene.ranks:
        if facts.left and not facts.finished and facts.status not in (None, 0):
            how = f"with status {facts.status}"
            if facts.status is not None and facts.status < 0:
                how = f"by signal {-facts.status}"
            why = f": {facts.error}" if facts.error else ""
            return Found(f"rank {facts.rank} ended {how}{why}", {"rank": facts.rank, "how": how})
    for facts in scene.culprits:
        if facts.left and not facts.alive and not facts.finished and facts.status is None:
            values = {"rank": facts.rank, "how": "while nobody saw how"}
            words = f"rank {facts.rank} is gone, and how it ended was told to its parent alone"
            return Found(words, values, _GUESSED, doubtful=True)
    return None


# ---- causes --------------------------------------------------------------------------------------

_PL = "Lightning-AI/pytorch-lightning"

CAUSES = (
    KnownCause(
        id="world-size-too-large",
        title="the process group is made for more ranks than were started",
        signs=(
            need(_more_counted_on_than_started, 0.75),
            need(somebody_is_missing, 0.5),
            unless(_nobody_to_start_them),
            unless(_left_with_failure),
            unless(_its_starter_hears),
            unless(worlds_differ),
        ),
        why="Making a process group waits until all {counted} ranks have come; {started} is all "
        "that was started.",
        avoid=(
            "set WORLD_SIZE to the number of processes that are started, or leave it to the "
            "launcher: torchrun sets it",
            "pass world_size from the environment, not from the number of GPUs",
        ),
        references=("pytorch/pytorch#52848", f"{_PL}#13374", "NVIDIA/Megatron-LM#2571"),
    ),
    KnownCause(
        id="started-one-by-one",
        title="who starts the ranks waits for one of them before it has started all",
        signs=(
            need(_its_starter_hears, 0.6),
            need(somebody_is_missing, 0.5),
            need(_more_counted_on_than_started, 0.3),
            unless(_left_with_failure),
        ),
        why="The {counted} ranks of the group wait for one another, and {who}, which starts them, "
        "waits for the first before it starts the next: neither ever comes.",
        avoid=(
            "start all of them first, and wait for what they say after that",
            "let each say that it is ready before it joins the group",
        ),
        references=(),
    ),
    KnownCause(
        id="slurm-environment",
        title="Lightning takes an interactive or plain start for a Slurm task and waits for srun",
        signs=(
            need(_task_of_slurm, 0.6),
            need(_fewer_than_slurm_tasks, 0.5),
            need(somebody_is_missing, 0.4),
        ),
        why="SLURM_NTASKS={tasks} is in the environment, so Lightning believes that srun started "
        "{tasks} processes, starts none itself, and waits for those that nobody started.",
        avoid=(
            "start by srun, with --ntasks-per-node equal to the number of devices",
            "SLURM_JOB_NAME=interactive: Lightning then ignores Slurm and starts the ranks itself",
        ),
        references=(f"{_PL}#10098", f"{_PL}#6206", f"{_PL}#16730", f"{_PL}#18618"),
    ),
    KnownCause(
        id="exported-rank-variables",
        title="variables of a launcher are set, so nobody starts the other ranks",
        signs=(
            need(_variables_of_a_launcher, 0.6),
            need(_find_lone_process, 0.45),
            need(somebody_is_missing, 0.4),
            unless(_task_of_slurm),
        ),
        why="{names} is set in the environment. Lightning then believes that a launcher starts all "
        "ranks, starts none itself, and waits for them.",
        avoid=(
            "unset {names}",
            "start by torchrun",
            "Trainer(plugins=[LightningEnvironment()]) where a platform sets them (Kubeflow)",
        ),
        references=(f"{_PL}#5651", "CompVis/taming-transformers#12", f"{_PL}#13374"),
    ),
    KnownCause(
        id="rank-left",
        title="a rank ended early with status 0, and the others wait for it",
        signs=(need(_left_with_success, 0.75, proves=True), also(_others_go_on, 0.5)),
        why="Rank {rank} ended before the others were done. Its status 0 means success to every "
        "launcher, so nothing stops the others, who wait for it.",
        avoid=(
            "let no rank return or sys.exit(0) early; a handler of SIGTERM must exit with another "
            "status than 0",
            "let it end by an exception: torchrun then ends the others",
        ),
        references=("ai2cm/ace#1068", f"{_PL}#8130"),
    ),
    KnownCause(
        id="rank-died",
        title="a rank died, and nothing ended the others",
        signs=(need(_left_with_failure, 0.7, proves=True), also(_others_go_on, 0.4)),
        why="Rank {rank} ended {how}. Whoever started the ranks did not end the others, who wait "
        "for it.",
        avoid=("start by torchrun: it ends all ranks when one fails",),
        references=(f"{_PL}#8130", f"{_PL}#9303", "PrimeIntellect-ai/prime-rl#2305"),
    ),
    KnownCause(
        id="rank-never-started",
        title="a rank that the others wait for was never started",
        signs=(
            need(_not_started, 0.5),
            also(makes_a_group, 0.3),
            unless(_task_of_slurm),
            unless(_variables_of_a_launcher),
        ),
        why="There is no process of rank {missing}: the launcher has not started it, or it is gone "
        "without a trace.",
        avoid=(
            "look at the launcher's own output, and how many processes it was asked for",
            "start all ranks by one torchrun",
        ),
        references=("pytorch/pytorch#49846", "facebookresearch/fairseq#4082"),
    ),
)
