"""A stand-in of vllm/model_executor/model_loader/weight_utils.py."""

import filelock


def get_lock(lock_file_name):
    return filelock.FileLock(lock_file_name, mode=0o666)


def download_weights_from_hf(lock_file_name):
    # Use file lock to prevent multiple processes from downloading the same weights.
    with get_lock(lock_file_name):
        pass
