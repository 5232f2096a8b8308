"""Dumps of others' making (.pt, .pkl), read without executing what they name."""

from __future__ import annotations

import io
import os
import pickle
import re
import stat
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from .reading import Unreadable

LARGEST = 8 << 30  # bytes
_GLOBAL = re.compile(r"(?:Unsupported (?:global: GLOBAL|class|operand)|GLOBAL) ([\w.]+)")


def read(path: str) -> Any:
    """Return what a file holds, tensors on the CPU. Imports torch. Raises Unreadable, which names
    what was refused.
    """
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            raise Unreadable(path, "it is no file")
        if found.st_size > LARGEST:
            raise Unreadable(path, f"it has more than {LARGEST >> 30} GiB")
        with open(path, "rb") as file:
            return _saved_by_torch(path) if _is_torchs(file) else _Tensors(file).load()
    except OSError as error:
        raise Unreadable(path, error.strerror or str(error)) from None
    except Unreadable:
        raise
    except Exception as error:  # a file may break a reader in any way
        raise Unreadable(path, _why(error)) from None


def _is_torchs(file: Any) -> bool:
    """Return whether torch.save has written it: a zip since torch 1.6, with a mark before that."""
    found = zipfile.is_zipfile(file)
    file.seek(0)
    found = found or file.read(32).find(_MARK) != -1
    file.seek(0)
    return found


def _saved_by_torch(file: Any) -> Any:
    import torch

    return torch.load(file, map_location="cpu", weights_only=True)


# serialization.MAGIC_NUMBER as pickle writes it.
_MARK = b"\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."


class _Refused(pickle.UnpicklingError):
    pass


class _Tensors(pickle.Unpickler):
    """Reads plain pickles of containers and tensors. Whatever else a pickle names is refused."""

    def find_class(self, module: str, name: str) -> Any:
        import torch

        made: dict[str, Callable[..., Any]] = {
            "collections.OrderedDict": OrderedDict,
            "torch._utils._rebuild_tensor_v2": torch._utils._rebuild_tensor_v2,
            "torch._utils._rebuild_parameter": torch._utils._rebuild_parameter,
            # Its bytes are a pickle again.
            "torch.storage._load_from_bytes": lambda data: _saved_by_torch(io.BytesIO(data)),
            "torch.device": torch.device,
            "torch.Size": torch.Size,
        }
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        if f"{module}.{name}" not in made:
            raise _Refused(f"refused: it names {module}.{name}")
        return made[f"{module}.{name}"]


def _why(error: Exception) -> str:
    if isinstance(error, _Refused):
        return str(error)
    named = _GLOBAL.search(str(error))
    if named is not None:
        return f"refused: it names {named[1]}"
    first = str(error).strip().partition("\n")[0]
    return f"truncated, or no dump of pickle's or torch's ({type(error).__name__}: {first[:160]})"
