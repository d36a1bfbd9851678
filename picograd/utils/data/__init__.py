"""Batches for training, with PyTorch's classes by their names: data sets, the order of examples, the loader.

In:    anything with a length and items, or an iterable
Out:   `DataLoader`; data sets, samplers
"""

from picograd.utils.data.datasets import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)  # fmt: skip
from picograd.utils.data.fetch import default_collate, default_convert, get_worker_info
from picograd.utils.data.loader import DataLoader
from picograd.utils.data.samplers import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)  # fmt: skip

__all__ = [
    "BatchSampler", "ChainDataset", "ConcatDataset", "DataLoader", "Dataset", "IterableDataset", "RandomSampler", "Sampler",
    "SequentialSampler", "StackDataset", "Subset", "SubsetRandomSampler", "TensorDataset", "WeightedRandomSampler",
    "default_collate", "default_convert", "get_worker_info", "random_split",
]  # fmt: skip
