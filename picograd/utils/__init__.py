"""Tools of training programs: batches of data, memory for time."""

from typing import TYPE_CHECKING, Any

from picograd.errors import missing
from picograd.loading import load_late
from picograd.utils import checkpoint, dlpack

if TYPE_CHECKING:
    from picograd.utils import data as data

__all__ = ["checkpoint", "data", "dlpack"]

if not TYPE_CHECKING:  # else every name would be one of Any

    def __getattr__(name: str) -> Any:
        """Loads the page of loaders when it is first asked for."""
        if name == "data":
            return load_late("picograd.utils.data")
        raise missing(name, __name__)
