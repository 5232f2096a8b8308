"""How far a rank came, as far as its stack tells. Pure.

Of ranks that wait for one another in different calls the one that came least far is to blame. In a
script that nobody watched only what comes after all preparation can be told: training, and the end.
"""

from __future__ import annotations

from ..diagnosis.causes.scene import find_frame
from ..diagnosis.view import seen
from ..facts import RankFacts

UNKNOWN, TRAINS, ENDED = 0, 1, 2
_TRAINING = (
    (r"torch/(?:autograd/graph|_tensor)\.py", r"_engine_run_backward|backward"),
    (r"torch/optim/optimizer\.py", r"wrapper|step"),
    (r"torch/nn/parallel/distributed\.py", r"forward|_run_ddp_forward"),
    (r"pytorch/loops/(?:training_epoch_loop|fit_loop)\.py", r"advance"),
    (r"transformers/trainer\.py", r"_inner_training_loop|training_step"),
)


def progress(facts: RankFacts) -> int:
    """Return TRAINS for a rank whose stack shows training, else UNKNOWN."""
    view = seen(facts.looks)
    frames = view.frames if view is not None else ()
    trains = any(find_frame(frames, file, function) for file, function in _TRAINING)
    return TRAINS if trains else UNKNOWN
