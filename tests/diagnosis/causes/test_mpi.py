"""MPI that is asked for although nobody started the ranks with it."""

from __future__ import annotations

from dataclasses import replace

from hangbisect.diagnosis.verdict import judge_job

from ..made_up import held, job, look, rank
from .scenes import TORCHRUN, Facts, Shows, causes_of, on, tcp
from .seen import native

MPI = "/usr/lib/x86_64-linux-gnu/libmpi.so.40"
PROBE = (
    "<module> SP/mpi4py/__init__.py:1",
    "MPIEnvironment.detect SP/lightning_fabric/plugins/environments/mpi.py:86",
    "_choose_and_init_cluster_environment "
    "SP/pytorch_lightning/trainer/connectors/accelerator_connector.py:396",
    "Trainer.__init__ SP/pytorch_lightning/trainer/trainer.py:400",
    "trainer OURS/pipelines/training_setup.py:30",
)


def mpi_probe() -> Facts:
    probes = native(look(*PROBE, call="poll"), ("poll", ""), ("ompi_mpi_init", MPI))
    return job(), [rank(0, probes, reached=10), held(1, reached=10)]


def mpi_init() -> Facts:
    starts = native(
        look("<module> SP/spinup/utils/mpi_tools.py:1", "<module> train.py:2", call="poll"),
        ("poll", ""),
        ("PMIx_Init", "/usr/lib/libpmix.so.2"),
        ("MPI_Init_thread", MPI),
    )
    return job(), [rank(0, starts), held(1)]


SHOWS: Shows = {"mpi-probe": mpi_probe, "mpi-init": mpi_init}


def test_lightning_that_chooses_another_environment_does_not_probe_for_mpi() -> None:
    one = look(
        "SLURMEnvironment.detect SP/lightning_fabric/plugins/environments/slurm.py:90",
        *PROBE[2:],
        call="read",
    )
    assert "mpi-probe" not in causes_of((job(), [rank(0, one), held(1)]))


def test_ranks_that_mpirun_started_are_right_to_start_mpi() -> None:
    _, ranks = mpi_init()
    started = rank(0, *ranks[0].looks, environment={"OMPI_COMM_WORLD_RANK": "0"})
    assert causes_of((job(), [started, held(1)]))["mpi-init"].agreement <= 0.8


def test_a_rank_without_mpi_on_its_stack_starts_none() -> None:
    one = look("recv train.py:3", call="poll")
    assert not set(SHOWS) & set(causes_of((job(), [rank(0, one), held(1)])))


def called_from(library: str) -> Facts:
    """Rank 0 in recv(), where a pause is forbidden and nothing of C is on the stack that is seen:
    by whose code the call is made the return address on the stack tells.
    """
    manager = tcp("127.0.0.1:40001", received=0)
    one = look(
        "start train.py:7",
        "<module> train.py:30",
        call="recvfrom",
        descriptors=on(manager),
        sockets=(manager,),
    )
    call = one.kernel[0].syscall
    assert call is not None
    kernel = (replace(one.kernel[0], syscall=replace(call, caller=library)),)
    return job(), [rank(0, replace(one, kernel=kernel), environment=TORCHRUN), held(1)]


def test_a_process_manager_that_does_not_answer_mpi_is_no_silent_server() -> None:
    verdict = judge_job(*called_from(MPI))
    assert verdict.cause is not None
    assert (verdict.cause.id, verdict.cause.level) == ("mpi-init", "fits")
    assert "libmpi.so.40" in verdict.cause.why
    assert "mpi-init" not in causes_of(called_from("/opt/vendor/lib/libplace.so"))
