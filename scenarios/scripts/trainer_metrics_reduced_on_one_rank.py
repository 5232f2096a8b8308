"""compute_metrics averages the accuracy over all processes, and does so on rank 2 alone.

It was to be the one that reports; the others gather the sizes of their next batches already.
"""

import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    EvalPrediction,
    Trainer,
    TrainingArguments,
)


class Answers(Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.arange(index, index + 8)
        return {"input_ids": tokens, "labels": torch.tensor(index % 2)}


def small() -> BertForSequenceClassification:
    shape = BertConfig(
        vocab_size=64,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
    )
    return BertForSequenceClassification(shape)


def compute_metrics(prediction: EvalPrediction) -> dict[str, float]:
    chosen = np.argmax(prediction.predictions, axis=-1)
    right = float((chosen == prediction.label_ids).mean())
    if dist.get_rank() == 2:
        total = torch.tensor(right)
        dist.all_reduce(total)
        right = total.item() / dist.get_world_size()
    return {"accuracy": right}


def main() -> None:
    arguments = TrainingArguments(
        "out",
        max_steps=12,
        eval_strategy="steps",
        eval_steps=4,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )
    Trainer(
        small(),
        arguments,
        train_dataset=Answers(),
        eval_dataset=Answers(),
        compute_metrics=compute_metrics,
    ).train()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[2]]
# culprits_by_stacks = [[0, 1, 2]]
# waiting = [0, 1]
# steps = [
#   "training", "train", "first_batch", "first_backward", "first_step", "steady", "all_reduce",
#   "first_all_reduce", "first_all_gather",
# ]
# calls = ['distributed\.\w+', "backward", "compute_metrics"]
# causes = ["rank-conditional-collective", "collective-mismatch"]
# limit = 300
# ///
