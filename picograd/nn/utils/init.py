"""Modules whose parameters nobody has drawn.

In:    a class of modules
Out:   `skip_init`
Next:  picograd/nn/state.py
"""

from __future__ import annotations

from typing import Any

from picograd.nn.module import Module


def skip_init(module_cls: type[Module], *args: Any, **kwargs: Any) -> Module:
    """Returns module_cls(*args, **kwargs) for whoever loads or draws the parameters anyway.

    Drawing is lazy: what is overwritten before it is read was never drawn. So nothing has to be skipped, and what is read
    is no memory from before.

    Args:
      module_cls:    a class of modules
      args, kwargs:  for it

    >>> nn.utils.skip_init(nn.Linear, 2, 3).weight.shape
    (3, 2)
    """
    return module_cls(*args, **kwargs)
