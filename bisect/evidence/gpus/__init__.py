"""What GPUs, their driver, NCCL and torch's recorder of collectives say."""
