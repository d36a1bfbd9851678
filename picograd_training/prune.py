"""torch.nn.utils.prune by its name: weights multiplied by masks of zeros and ones.

NAME_orig is trained and NAME_mask is a buffer; each access to the weight computes their product.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from picograd.annotations import fits
from picograd.errors import ArgumentError, ShapeError
from picograd.nn.module import Module
from picograd.tensor.tensor import Tensor

__all__ = [
    "BasePruningMethod", "CustomFromMask", "Identity", "L1Unstructured", "LnStructured", "RandomStructured",
    "RandomUnstructured", "custom_from_mask", "global_unstructured", "identity", "is_pruned", "l1_unstructured",
    "ln_structured", "random_structured", "random_unstructured", "remove",
]  # fmt: skip

Array = np.ndarray[Any, Any]


class Masked:
    """Computes a weight from NAME_orig and NAME_mask."""

    def __init__(self, name: str):
        self.name = name

    def __call__(self, module: Module) -> Tensor:
        """Returns the product."""
        return getattr(module, f"{self.name}_orig") * getattr(module, f"{self.name}_mask")


# ---- methods ----
class BasePruningMethod:
    """A method of pruning: compute_mask chooses elements by scores and the present mask; users may write others.

    PRUNING_TYPE:  "global" and "unstructured": compute_mask gets the remaining elements as a vector, if some are pruned
                   already; "structured": it gets the whole tensor
    """

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Returns the mask of t, of its shape: 0 for pruned elements."""
        raise NotImplementedError

    def masked(self, scores: Tensor, mask: Tensor) -> Tensor:
        """Returns the mask after this method has pruned some of the remaining elements."""
        if self.PRUNING_TYPE == "structured" or bool((mask == 1).all()):
            return self.compute_mask(scores, mask)
        left = np.flatnonzero(mask.numpy())
        chosen = self.compute_mask(Tensor(scores.detach().numpy().ravel()[left]), Tensor(np.ones(len(left), np.float32)))
        array = mask.numpy().ravel()
        array[left] = chosen.numpy()
        return Tensor(array.reshape(mask.shape), mask.dtype, mask.device)

    @classmethod
    def apply(cls, module: Module, name: str, *args: Any, importance_scores: Tensor | None = None, **kwargs: Any) -> Any:
        """Prunes the weight `name` of a module by cls(*args, **kwargs); returns the method."""
        method = cls(*args, **kwargs)
        _prune(module, name, method, importance_scores)
        return method


class Identity(BasePruningMethod):
    """The method that prunes nothing."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask


class _Amount(BasePruningMethod):
    """Base of methods that prune a fraction or a number of elements.

    Raises:
      ArgumentError: amount is neither a fraction in [0, 1] nor a nonnegative integer.
    """

    def __init__(self, amount: float):
        whole = isinstance(amount, int) and not isinstance(amount, bool)
        if not (whole and amount >= 0) and not (isinstance(amount, float) and 0.0 <= amount <= 1.0):
            raise ArgumentError(f"prune: amount must be a share in [0, 1] or a number of elements, got {amount!r}.")
        self.amount = amount

    def count_of(self, number: int) -> int:
        """Returns how many of `number` elements to prune."""
        count = self.amount if isinstance(self.amount, int) else round(self.amount * number)
        if count > number:
            raise ArgumentError(f"prune: amount {count} is more than the {number} elements left.")
        return count


class RandomUnstructured(_Amount):
    """Prunes random elements.

    Args:
      amount:  a fraction, or a number of elements
    """

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return _without_least(default_mask, Tensor.rand(*t.shape).numpy(), self.count_of(t.numel()))


class L1Unstructured(_Amount):
    """Prunes the elements nearest to 0.

    Args:
      amount:  a fraction, or a number of elements
    """

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return _without_least(default_mask, np.abs(t.detach().numpy()), self.count_of(t.numel()))


class RandomStructured(_Amount):
    """Prunes random channels along an axis.

    Args:
      amount:  a fraction, or a number of channels
      dim:     the axis
    """

    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, dim: int = -1):
        super().__init__(amount)
        self.dim = dim

    def scores(self, t: Tensor) -> Array:
        """Returns a score per channel; the channels with the lowest scores are pruned."""
        return Tensor.rand(t.shape[self.dim]).numpy()

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        axis = self.dim + t.ndim if self.dim < 0 else self.dim
        if t.ndim < 2 or not 0 <= axis < t.ndim:
            raise ShapeError(f"prune: channels need two axes and dim {self.dim} to be one, got shape {t.shape}.")
        mask = default_mask.numpy()
        others = tuple(i for i in range(t.ndim) if i != axis)
        left = np.flatnonzero((mask != 0).any(others))
        scores = self.scores(t)[left]
        kept = np.zeros(t.shape[axis], mask.dtype)
        kept[left[np.argsort(scores, kind="stable")[self.count_of(len(left)) :]]] = 1
        shape = [-1 if i == axis else 1 for i in range(t.ndim)]
        return Tensor(mask * kept.reshape(shape), default_mask.dtype, default_mask.device)


class LnStructured(RandomStructured):
    """Prunes the channels with the smallest norms along an axis.

    Args:
      amount:  a fraction, or a number of channels
      n:       order of the norm: a number, or inf
      dim:     the axis
    """

    def __init__(self, amount: float, n: Any, dim: int = -1):
        super().__init__(amount, dim)
        self.n = n

    def scores(self, t: Tensor) -> Array:
        axis = self.dim % t.ndim
        return t.detach().movedim(axis, 0).flatten(1).norm(self.n, 1).numpy()


class CustomFromMask(BasePruningMethod):
    """Prunes by a given mask.

    Args:
      mask:  0 for pruned elements, of the shape of the weight
    """

    PRUNING_TYPE = "structured"  # it gets the whole

    def __init__(self, mask: Tensor):
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if self.mask.shape != t.shape:
            raise ShapeError(f"prune: mask {self.mask.shape} must have the shape of the weight, {t.shape}.")
        return default_mask * self.mask.to(default_mask.dtype, default_mask.device)


def _without_least(mask: Tensor, scores: Array, count: int) -> Tensor:
    """Returns the mask with 0 at the `count` lowest scores; among equal ones at the first."""
    array = mask.numpy()
    array.ravel()[np.argsort(scores, axis=None, kind="stable")[:count]] = 0
    return Tensor(array, mask.dtype, mask.device)


# ---- one weight ----
def _prune(module: Module, name: str, method: BasePruningMethod, scores: Tensor | None = None) -> Module:
    """Multiplies a weight by the mask of a method; if it is pruned already, the masks are combined."""
    rule = module.computed(name)
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor) or (rule is not None and not isinstance(rule, Masked)):
        raise ArgumentError(f"prune: {type(module).__name__} has no parameter {name!r}.")
    original = weight if rule is None else getattr(module, f"{name}_orig")
    mask = original.detach().new_ones(original.shape) if rule is None else getattr(module, f"{name}_mask")
    if scores is not None and scores.shape != weight.shape:
        raise ShapeError(f"prune: importance_scores {scores.shape} must have the shape of the weight, {weight.shape}.")
    mask = method.masked(weight if scores is None else scores, mask)
    if rule is None:
        delattr(module, name)
        module.register_parameter(f"{name}_orig", original)  # the same Parameter: optimizers that hold it continue
        module.register_buffer(f"{name}_mask", mask)
        module.compute_attribute(name, Masked(name))
    else:
        setattr(module, f"{name}_mask", mask)
    return module


def identity(module: Module, name: str) -> Module:
    """Masks a weight with ones; returns the module.

    Args:
      module:  the owner of the weight
      name:    name of the weight

    Raises:
      ArgumentError: the module has no such parameter.

    >>> sorted(identity(nn.Linear(2, 1), "weight").state_dict())
    ['bias', 'weight_mask', 'weight_orig']
    """
    return _prune(module, name, Identity())


def random_unstructured(module: Module, name: str, amount: float) -> Module:
    """Prunes random elements of a weight; returns the module.

    Args:
      module:  the owner of the weight
      name:    name of the weight
      amount:  a fraction, or a number, of the remaining elements

    Raises:
      ArgumentError: the module has no such parameter, or amount is neither.

    >>> int((random_unstructured(nn.Linear(4, 2), "weight", 0.5).weight == 0).sum())
    4
    """
    return _prune(module, name, RandomUnstructured(amount))


def l1_unstructured(module: Module, name: str, amount: float, importance_scores: Tensor | None = None) -> Module:
    """Prunes the elements of a weight that are nearest to 0; returns the module.

    Args:
      module:             the owner of the weight
      name:               name of the weight
      amount:             a fraction, or a number, of the remaining elements
      importance_scores:  used instead of the weight, of its shape

    Raises:
      ArgumentError: the module has no such parameter, or amount is neither.
      ShapeError:    the shape of importance_scores differs.

    >>> net = nn.Linear(3, 1, bias=False)
    >>> net.weight.data = Tensor([[1.0, -3.0, 2.0]])
    >>> l1_unstructured(net, "weight", 1).weight.tolist()
    [[0.0, -3.0, 2.0]]
    """
    return _prune(module, name, L1Unstructured(amount), importance_scores)


def random_structured(module: Module, name: str, amount: float, dim: int) -> Module:
    """Prunes random channels of a weight along an axis; returns the module.

    Args:
      module:  the owner of the weight
      name:    name of the weight
      amount:  a fraction, or a number, of the remaining channels
      dim:     the axis

    Raises:
      ArgumentError: the module has no such parameter, or amount is neither.
      ShapeError:    the weight does not have the axis.

    >>> int((random_structured(nn.Linear(4, 2), "weight", 1, dim=1).weight == 0).sum())
    2
    """
    return _prune(module, name, RandomStructured(amount, dim))


def ln_structured(
    module: Module, name: str, amount: float, n: Any, dim: int, importance_scores: Tensor | None = None
) -> Module:
    """Prunes the channels of a weight with the smallest norms along an axis; returns the module.

    Args:
      module:             the owner of the weight
      name:               name of the weight
      amount:             a fraction, or a number, of the remaining channels
      n:                  order of the norm: a number, or inf
      dim:                the axis
      importance_scores:  used instead of the weight, of its shape

    Raises:
      ArgumentError: the module has no such parameter, or amount is neither.
      ShapeError:    the weight does not have the axis, or the shape of importance_scores differs.

    >>> net = nn.Linear(1, 2, bias=False)
    >>> net.weight.data = Tensor([[1.0], [-3.0]])
    >>> ln_structured(net, "weight", 0.5, n=2, dim=0).weight.tolist()
    [[0.0], [-3.0]]
    """
    return _prune(module, name, LnStructured(amount, n, dim), importance_scores)


def custom_from_mask(module: Module, name: str, mask: Tensor) -> Module:
    """Multiplies a weight by a mask; returns the module.

    Args:
      module:  the owner of the weight
      name:    name of the weight
      mask:    0 for pruned elements, of the shape of the weight

    Raises:
      ArgumentError: the module has no such parameter.
      ShapeError:    the shapes of mask and weight differ.

    >>> net = custom_from_mask(nn.Linear(2, 1, bias=False), "weight", Tensor([[0, 1]]))
    >>> net.weight[0, 0].item()
    0.0
    """
    return _prune(module, name, CustomFromMask(mask))


def remove(module: Module, name: str) -> Module:
    """Makes a pruned weight a parameter again, in which pruned elements are 0; returns the module.

    Args:
      module:  the owner of the weight
      name:    name of the weight

    Raises:
      ArgumentError: the weight is not pruned.

    >>> sorted(remove(identity(nn.Linear(2, 1), "weight"), "weight").state_dict())
    ['bias', 'weight']
    """
    if not isinstance(module.computed(name), Masked):
        raise ArgumentError(f"remove: {name!r} of {type(module).__name__} is not pruned.")
    original, weight = getattr(module, f"{name}_orig"), getattr(module, name).detach()
    module.stop_computing(name)
    for part in ("orig", "mask"):
        delattr(module, f"{name}_{part}")
    original.data = weight
    setattr(module, name, original)
    return module


# ---- several ----
def is_pruned(module: Module) -> bool:
    """Returns whether a weight of a module, or of a child module, is pruned.

    >>> is_pruned(nn.Linear(2, 1)), is_pruned(nn.Sequential(identity(nn.Linear(2, 1), "weight")))
    (False, True)
    """
    rules = [rule for part in module.modules() for rule in vars(part).get("_attribute_rules", {}).values()]
    return any(isinstance(rule, Masked) for rule in rules)


def global_unstructured(
    parameters: Iterable[tuple[Module, str]], pruning_method: type[BasePruningMethod],
    importance_scores: dict[tuple[Module, str], Tensor] | None = None, **kwargs: Any,
) -> None:  # fmt: skip
    """Prunes several weights together, as if they were one vector.

    Args:
      parameters:         (module, name of a weight) pairs
      pruning_method:     L1Unstructured or RandomUnstructured
      importance_scores:  used instead of weights, by the same pairs
      kwargs:             arguments of the method: amount

    Raises:
      ArgumentError: the method chooses channels, or a module has no such parameter.

    >>> a, b = (nn.Linear(2, 1, bias=False) for _ in range(2))
    >>> a.weight.data, b.weight.data = Tensor([[1.0, 4.0]]), Tensor([[2.0, 3.0]])
    >>> global_unstructured([(a, "weight"), (b, "weight")], L1Unstructured, amount=2)
    >>> a.weight.tolist(), b.weight.tolist()
    ([[0.0, 4.0]], [[0.0, 3.0]])
    """
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE == "structured":
        raise ArgumentError(f"global_unstructured: {pruning_method.__name__} does not choose single elements.")
    pairs, scores = list(parameters), importance_scores or {}
    for pair in pairs:
        if not fits(pair, tuple[Module, str]):
            raise ArgumentError(f"global_unstructured: parameters must be pairs of a module and a name, got {pair!r}.")
    weights = [getattr(module, name) for module, name in pairs]
    masks = [getattr(module, f"{name}_mask", weight.detach().new_ones(weight.shape)) for (module, name), weight in
             zip(pairs, weights)]  # fmt: skip
    chosen = [scores.get(pair, weight) for pair, weight in zip(pairs, weights)]
    line, mask = (Tensor(np.concatenate([one.detach().numpy().ravel() for one in each])) for each in (chosen, masks))
    found, begun = method.masked(line, mask), 0
    for (module, name), weight in zip(pairs, weights):
        custom_from_mask(module, name, found[begun : begun + weight.numel()].reshape(weight.shape))
        begun += weight.numel()
