"""Patterns of a start-up: what all ranks do at the same moment, or one of them alone."""

from __future__ import annotations

from ...base.identity import RankId
from ...base.words import format_ranks
from ..process.frames import format_frame
from .known_cause import Found, KnownCause, Scene, also, need, unless
from .signs import ended_with, makes_a_group

_LIGHTNING = r"(?:pytorch_lightning|lightning/pytorch)"
_WANDB_STARTS = r"wandb/sdk/wandb_(?:init|login|setup)\.py"
_HUB = r"(?:huggingface_hub|transformers/utils)/\S*(?:file_download|_http|hf_api|hub|_download)\.py"
_TELLING = ("lock", "socket", "process", "pipe", "input", "file", "store", "stopped")
_MAKES = frozenset(["mkdir", "mkdirat"])


# ---- signs ---------------------------------------------------------------------------------------


def _several_in_wandb(scene: Scene) -> Found | None:
    """Several ranks are in wandb.init, wandb.login or wandb.setup at the same time."""
    ranks = scene.ranks_in(_WANDB_STARTS)
    if len(ranks) < 2:
        return None
    return Found(f"{format_ranks(ranks)} start W&B at once", {"count": len(ranks)})


def _every_rank_in_wandb(scene: Scene) -> Found | None:
    """All ranks are."""
    ranks = scene.ranks_in(_WANDB_STARTS)
    return Found("all ranks do") if 1 < len(ranks) == len(scene.living) else None


def _chooses_a_strategy(scene: Scene) -> Found | None:
    """A rank is where Lightning chooses its strategy, in Trainer(...), or forks for it."""
    frame = scene.frame(
        rf"{_LIGHTNING}/trainer/connectors/accelerator_connector\.py"
        rf"|{_LIGHTNING}/strategies/launchers/multiprocessing\.py"
    ) or scene.frame(rf"{_LIGHTNING}/trainer/trainer\.py", "__init__")
    return None if frame is None else Found(f"frame {format_frame(frame)}")


def _no_strategy_named(scene: Scene) -> Found | None:
    """The command leaves the strategy to Lightning ("auto")."""
    words = scene.job.command
    for word, following in zip(words, [*words[1:], ""], strict=True):
        flag, equals, value = word.partition("=")
        if flag == "--strategy" and (value if equals else following) != "auto":
            return None
    return Found("the command names no strategy but auto")


def _worlds_differ(scene: Scene) -> Found | None:
    """Ranks make groups of different sizes, or some train alone."""
    groups = scene.group_values
    sizes = {r.rank: groups.get(r.rank, {}).get("world_size") for r in scene.living}
    alone = scene.ranks_in(rf"{_LIGHTNING}/strategies/single_\w+\.py")
    known_sizes = {size for size in sizes.values() if size is not None}
    if len(known_sizes) > 1:
        return Found(f"worlds of {' and '.join(str(size) for size in sorted(known_sizes))}")
    grouped = [rank for rank in sizes if rank not in alone]
    if alone and grouped:
        return Found(f"{format_ranks(alone)} trains on one device, without a group")
    return None


def _several_make_a_directory(scene: Scene) -> Found | None:
    """Several ranks make the same directory at the same time."""
    paths: dict[str, list[RankId]] = {}
    for number, view in scene.views.items():
        if view.call_name in _MAKES and view.call is not None and view.call.path:
            paths.setdefault(view.call.path, []).append(number)
    for path, ranks in paths.items():
        if len(ranks) > 1:
            return Found(f"{format_ranks(tuple(ranks))} make {path}", {"path": path})
    return None


_in_makedirs = ended_with(
    r"\bin (?:makedirs|mkdir)\b|\b(?:os\.(?:makedirs|mkdir)|\.mkdir)\(",
    "Its traceback ends in makedirs or mkdir",
)


def _directory_exists(scene: Scene) -> Found | None:
    """A rank of several ended with FileExistsError."""
    found = scene.wrote(r"\bFileExistsError\b(?::[^\n]*?'(?P<path>[^'\n]+)')?")
    if found is None or scene.job.world_size < 2:
        return None
    facts, match = found
    path = match["path"] or "the directory"
    return Found(f"rank {facts.rank} ended with FileExistsError: {path}", {"path": path})


def _directory_race(scene: Scene) -> Found | None:
    """Several ranks make the same directory, or one ended because it was there already."""
    return _several_make_a_directory(scene) or _directory_exists(scene)


def _several_ask_the_hub(scene: Scene) -> Found | None:
    """Several ranks ask the hub at the same time."""
    ranks = scene.ranks_in(_HUB)
    if len(ranks) < 2:
        return None
    return Found(f"{format_ranks(ranks)} ask the hub at once", {"count": len(ranks)})


def _too_many_requests(scene: Scene) -> Found | None:
    """The hub said "too many requests" (429)."""
    pattern = r"(?:HTTP Error|Error code:?|status)\s?429\b|Too Many Requests|Rate limited\. Wait"
    found = scene.wrote(pattern, scene.ranks)
    if found is None:
        return None
    facts, match = found
    return Found(f'rank {facts.rank} was told "{" ".join(match[0].split())}"')


def _only_one_rank_writes_429(scene: Scene) -> Found | None:
    """The job has one rank."""
    return Found("one rank") if scene.job.world_size < 2 else None


# ---- causes --------------------------------------------------------------------------------------

_RANK_0_ONLY = "start W&B on rank 0 only: `if rank == 0: wandb.init(...)`"

CAUSES = (
    KnownCause(
        id="wandb-on-every-rank",
        title="all ranks start W&B at the same time",
        signs=(need(_several_in_wandb, 0.55), also(_every_rank_in_wandb, 0.35)),
        why="{count} ranks start W&B at once. Each starts a process and asks the server for a run "
        "of its own; they get in one another's way, and the server gets a run a rank.",
        avoid=(
            _RANK_0_ONLY,
            "WANDB_MODE=disabled for the ranks above 0",
        ),
        toggles=(("wandb", "rank0"), ("wandb", "offline"), ("wandb", "off")),
        references=("wandb/wandb#5214", "wandb/wandb#4224", "EleutherAI/bergson#249"),
    ),
    KnownCause(
        id="strategy-auto",
        title='Lightning chooses the strategy ("auto"), and ranks end up in different worlds',
        signs=(
            need(_chooses_a_strategy, 0.4),
            need(_no_strategy_named, 0.25),
            also(_worlds_differ, 0.5),
            unless(makes_a_group),
        ),
        why="With strategy=auto Lightning decides from what it finds: one visible device means "
        "training alone, a notebook means forking. A rank that decides differently is not there "
        "when the others meet.",
        avoid=(
            "Trainer(strategy='ddp', devices=<ranks a node>, num_nodes=<nodes>): a larger model "
            "may need another strategy",
            "the same NCCL_* variables, and the same visible devices, on all ranks",
        ),
        toggles=(("strategy", "ddp"),),
        references=("roboflow/rf-detr#803", "Lightning-AI/pytorch-lightning#16916"),
    ),
    KnownCause(
        id="logs-directory-race",
        title="several ranks make the same directory at the same moment",
        signs=(
            need(_directory_race, 0.6),
            also(_directory_exists, 0.15),
            also(_in_makedirs, 0.35),
        ),
        why="Several ranks find that {path} is missing and make it. One succeeds; the others fail, "
        "or wait for the disk.",
        avoid=(
            "os.makedirs(path, exist_ok=True): on some network file systems even that can fail",
            "let rank 0 make it, and the others wait at a barrier: costs that wait",
        ),
        toggles=(("make_logs_dir", "rank0"),),
        references=("pytorch/pytorch#126496", "allenai/allennlp#3841", "mlcommons/storage#699"),
        outcomes=("hang", "interrupted", "crash"),
    ),
    KnownCause(
        id="hub-stampede",
        title="all ranks ask the Hugging Face hub at the same time",
        signs=(
            need(_several_ask_the_hub, 0.55),
            also(_too_many_requests, 0.6),
            unless(_only_one_rank_writes_429),
        ),
        why="{count} ranks ask the hub for the same files at once: they wait for one another's "
        "locks, and a hub that gets too many requests makes them wait (429).",
        avoid=(
            "let rank 0 load first, then the others from its cache (a barrier in between)",
            "HF_HUB_OFFLINE=1, with everything in the cache before the job starts",
        ),
        toggles=(("hub", "rank0-first"), ("hub", "offline")),
        references=("huggingface/kernels#640", "huggingface/datasets#7506"),
    ),
)
