"""The quick start of transformers' Trainer: tokenizer, mapped data set, steps, evaluation."""

from typing import Any

from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    DataCollatorWithPadding,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
)

TEXTS = ["a good film", "a bad film", "good acting and a good end", "bad from start to end"] * 16


def main() -> None:
    words = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    special = trainers.WordLevelTrainer(special_tokens=["[UNK]", "[PAD]"])
    words.train_from_iterator(TEXTS, special)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]")

    def tokenize(rows: dict[str, Any]) -> Any:
        return tokenizer(rows["text"])

    data = Dataset.from_dict({"text": TEXTS, "label": [1, 0, 1, 0] * 16})
    data = data.map(tokenize, batched=True)
    shape = BertConfig(
        vocab_size=64,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=16,
    )
    model = AutoModelForSequenceClassification.from_config(shape)
    arguments = TrainingArguments(
        "out", max_steps=4, report_to="none", use_cpu=True, seed=3, disable_tqdm=True
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=data,
        eval_dataset=data,
        processing_class=tokenizer,
        data_collator=DataCollatorWithPadding(tokenizer),
    )
    trainer.train()
    trainer.evaluate()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py"
# outcome = "ok"
# ///
