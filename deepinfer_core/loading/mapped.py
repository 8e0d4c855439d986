"""Tables too large for memory: mapped from their file, so that only the pages looked at are ever read."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from torch import Tensor

from deepinfer_core.loading.headers import TensorEntry
from deepinfer_core.loading.tensors import TORCH_DTYPES


def map_tensor(entry: TensorEntry) -> Tensor:
    """The stored tensor on the host, read-only: writing to it ends the process. The file must outlive it unchanged.

    Values are not checked: that would read the whole table.
    """
    dtype = TORCH_DTYPES[entry.dtype]
    if entry.nbytes == 0:
        return torch.empty(entry.shape, dtype=dtype)
    data = np.memmap(entry.shard, dtype=np.uint8, mode="r", offset=entry.start, shape=(entry.nbytes,))
    with warnings.catch_warnings():
        # torch has no read-only tensors; a writable private mapping would count as memory in use.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(data).view(dtype).view(entry.shape)
