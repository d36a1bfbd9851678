"""What training programs need beside tensors and layers: batches of data, memory for time.

In:    data sets, functions
Out:   `data`, `checkpoint`, under the names that PyTorch gives them
"""

from picograd.utils import checkpoint, data, dlpack

__all__ = ["checkpoint", "data", "dlpack"]
