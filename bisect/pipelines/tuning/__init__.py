"""The steps of the pipeline `finetuning`."""
