"""A matrix that nobody ran."""

from __future__ import annotations

from dataclasses import replace

from hangbisect.report.matrix_text import MatrixResult
from hangbisect.search.cells import Cell, CellOutcome, CellRun

ONE = Cell(
    number=1,
    name="one",
    setting={"wandb": "off"},
    launcher="torchrun",
    nodes=1,
    ranks=2,
    words=("--fast-dev-run", "1"),
    pipeline="startup",
    environment={},
    limit=900.0,
)
CELLS = tuple(
    replace(ONE, number=number, name=name)
    for number, name in enumerate(("one", "two", "three", "four"), 1)
)


def ran(number: int, result: CellOutcome, where: str = "", cause: str | None = None) -> CellRun:
    cell = CELLS[number - 1]
    command = ("torchrun", "x.py", "--api-key", "abcdef123456")
    return CellRun(
        number=number,
        name=cell.name,
        setting=dict(cell.setting),
        result=result,
        where=where,
        seconds=12.5,
        command=command,
        environment={"WANDB_API_KEY": "abcdef123456"},
        run_dir=f"/runs/0{number}",
        mark=f"mark{number}",
        cause=cause,
    )


TOLD = MatrixResult(
    scenario="/home/me/mine.yaml",
    title="what it examines",
    started_in="/home/me",
    folder="runs/x",
    started="2026-11-21T22:00:00Z",
    seconds=40.0,
    jobs=1,
    cells=CELLS,
    ran=(
        ran(1, "ok"),
        ran(2, "hang", "at checkpoint 9 in wandb.init, rank 0", "service-silent"),
        ran(3, "not started", "there is no launcher 'x'\x1b[2J"),
    ),
)
