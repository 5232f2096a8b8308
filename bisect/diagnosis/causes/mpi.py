"""MPI that is asked for although nobody started the ranks with it."""

from __future__ import annotations

from ..frames import worded
from .known import Found, KnownCause, also, need, unless
from .processes_seen import native_frame
from .scene import Scene, find_frame
from .signs import native_name

_PROBES = r"(?:pytorch_lightning|lightning_fabric|lightning/\w+)/\S*environments/mpi\.py"
_MPI4PY = r"mpi4py/\S*\.(?:py|pyx|so)|/mpi4py/\S+"
_MPI = r"^(?:P?MPI_(?:Init\w*|Finalize)|(?:ompi|orte|opal|pmix|prte)_\w+|PMIx?_\w+|MPI[DR]\w*_\w+)"
_MPI_LIBRARY = r"/lib(?:mpi|mpich|open-rte|open-pal|pmix|prrte)[^/]*\.so|/mpi4py/MPI[^/]*\.so"
_STARTED_BY_MPI = ("OMPI_COMM_WORLD_", "PMI_", "PMIX_", "MPI_LOCALRANKID", "HYDRA_")


def _probes_for_mpi(scene: Scene) -> Found | None:
    """Lightning asks whether it runs under MPI (MPIEnvironment.detect imports mpi4py)."""
    frame = scene.frame(_PROBES, "detect|__init__")
    if frame is None:
        return None
    return Found(f"Lightning probes for MPI: frame {worded(frame)}", {"place": worded(frame)})


def _starts_mpi(scene: Scene) -> Found | None:
    """A rank is in MPI_Init, or imports mpi4py.MPI, which calls it."""
    native = native_frame(scene.frames, _MPI, _MPI_LIBRARY)
    if native is not None:
        return Found(f"native frame {native_name(native)}", {"call": native_name(native)})
    python = find_frame(tuple(f for f in scene.frames if not f.native), _MPI4PY)
    if python is not None:
        return Found(f"frame {worded(python)}", {"call": worded(python)})
    return None


def _not_started_by_mpi(scene: Scene) -> Found | None:
    """No variable of mpirun or of Slurm's PMI is set."""
    names = [n for n in scene.environment if n.startswith(_STARTED_BY_MPI)]
    return None if names else Found("no variable of mpirun or srun's PMI is set")


CAUSES = (
    KnownCause(
        id="mpi-probe",
        title="mpi4py is installed, and Lightning's question for MPI does not come back",
        signs=(
            need(_probes_for_mpi, 0.75),
            also(_starts_mpi, 0.4),
            also(_not_started_by_mpi, 0.3),
        ),
        why="To choose its environment Lightning imports mpi4py.MPI, which starts MPI at once. "
        "Without mpirun that waits for a daemon, a network or a licence that is not there.",
        avoid=(
            "pip uninstall mpi4py, if nothing else needs it",
            "Trainer(plugins=[LightningEnvironment()]): nothing is probed then",
            "MPI4PY_RC_INITIALIZE=0: mpi4py then starts MPI only when told",
        ),
        references=(
            "Lightning-AI/pytorch-lightning#20049",
            "Lightning-AI/pytorch-lightning#19768",
            "https://mpi4py.readthedocs.io/en/stable/mpi4py.html",
        ),
    ),
    KnownCause(
        id="mpi-init",
        title="MPI does not come up",
        signs=(need(_starts_mpi, 0.6), also(_not_started_by_mpi, 0.45), unless(_probes_for_mpi)),
        why="A rank starts MPI ({call}), which waits for its daemons or for the other ranks.",
        avoid=(
            "start the ranks by mpirun or `srun --mpi=pmix`, or start no MPI under torchrun",
            "MPI4PY_RC_INITIALIZE=0 where mpi4py is only imported by the way",
        ),
        references=("KimMeen/Time-LLM#196", "openai/spinningup#358"),
    ),
)
