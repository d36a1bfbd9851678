"""torch.utils._pytree, for libraries: nested tuples, lists and dicts as a list of leaves and a structure."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Sequence
from types import UnionType
from typing import Any

from picograd import Size
from picograd.errors import ArgumentError
from picograd.record import Record

__all__ = [
    "TreeSpec", "register_pytree_node", "tree_any", "tree_flatten", "tree_leaves", "tree_map", "tree_map_only",
    "tree_unflatten",
]  # fmt: skip

Flatten = Callable[[Any], tuple[Sequence[Any], Any]]
Unflatten = Callable[[Any, Any], Any]
PyTree, Context = Any, Any  # annotations
_nodes: dict[type, tuple[Flatten, Unflatten]] = {
    tuple: (lambda node: (node, None), lambda children, _: tuple(children)),
    list: (lambda node: (node, None), lambda children, _: list(children)),
    Size: (lambda node: (node, None), lambda children, _: Size(children)),
    deque: (lambda node: (node, node.maxlen), lambda children, maxlen: deque(children, maxlen)),
    dict: (lambda node: ([*node.values()], [*node]), lambda children, keys: dict(zip(keys, children))),
    OrderedDict: (lambda node: ([*node.values()], [*node]), lambda children, keys: OrderedDict(zip(keys, children))),
    defaultdict: (
        lambda node: ([*node.values()], (node.default_factory, [*node])),
        lambda children, context: defaultdict(context[0], zip(context[1], children)),
    ),
}


KEYED = {dict, OrderedDict, defaultdict}  # nodes whose children are identified by keys


class TreeSpec(Record):
    """The structure of a tree.

    kind:      type of the node, None for a leaf
    context:   everything else about the node, such as the keys of a dict
    children:  structures of the children
    """

    kind: type | None
    context: Any
    children: tuple[TreeSpec, ...]

    @property
    def num_leaves(self) -> int:
        """Number of leaves."""
        return 1 if self.kind is None else sum(child.num_leaves for child in self.children)


def register_pytree_node(cls: type, flatten_fn: Flatten, unflatten_fn: Unflatten, **kwargs: Any) -> None:
    """Registers `cls` as a node: flatten_fn(node) returns children and a context, unflatten_fn makes a node of them."""
    _nodes[cls] = flatten_fn, unflatten_fn


def _dict_flatten(node: dict[Any, Any]) -> tuple[list[Any], list[Any]]:
    """Returns the values of a dict, and its keys: libraries use it for their own subclasses of dict."""
    return [*node.values()], [*node]


def _dict_unflatten(values: Sequence[Any], keys: Sequence[Any]) -> dict[Any, Any]:
    """Returns a dict of these keys and values."""
    return dict(zip(keys, values))


def _dict_flatten_with_keys(node: dict[Any, Any]) -> tuple[list[tuple[Any, Any]], list[Any]]:
    """Returns the pairs of keys and values of a dict, and its keys."""
    return [*node.items()], [*node]


def _namedtuple_flatten(node: Any) -> tuple[list[Any], type]:
    """Returns the fields of a named tuple, and its type: libraries register their own named tuples so."""
    return [*node], type(node)


def _namedtuple_unflatten(values: Sequence[Any], kind: type) -> Any:
    """Returns a named tuple of this type."""
    return kind(*values)


def tree_flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], TreeSpec]:
    """Returns the leaves of a tree, and its structure.

    >>> tree_flatten([1, {"a": (2, None)}])[0]
    [1, 2, None]
    """
    kind = _kind(tree)
    if kind is None or (is_leaf is not None and is_leaf(tree)):
        return [tree], TreeSpec(None, None, ())
    children, context = _children(kind, tree)
    parts = [tree_flatten(child, is_leaf) for child in children]
    return [leaf for leaves, _ in parts for leaf in leaves], TreeSpec(kind, context, tuple(spec for _, spec in parts))


def _kind(tree: Any) -> type | None:
    """Returns the registered type of a node: its own, or that of named tuples."""
    return type(tree) if type(tree) in _nodes else tuple if isinstance(tree, tuple) and hasattr(tree, "_fields") else None


def _children(kind: type, node: Any) -> tuple[Sequence[Any], Any]:
    """Returns the children of a node, and its context."""
    return (node, type(node)) if kind is tuple and hasattr(node, "_fields") else _nodes[kind][0](node)


def tree_unflatten(leaves: Sequence[Any], treespec: TreeSpec) -> Any:
    """Returns a tree with this structure.

    >>> tree_unflatten([1, 2], tree_flatten({"a": 0, "b": [0]})[1])
    {'a': 1, 'b': [2]}

    Raises:
      ArgumentError: the number of leaves is not the structure's.
    """
    leaves = list(leaves)
    if len(leaves) != treespec.num_leaves:
        raise ArgumentError(f"tree_unflatten: a tree of {treespec.num_leaves} leaves was given {len(leaves)}.")
    if treespec.kind is None:
        return leaves[0]
    children: list[Any] = []
    for child in treespec.children:
        children.append(tree_unflatten(leaves[: child.num_leaves], child))
        del leaves[: child.num_leaves]
    if treespec.kind is tuple and isinstance(treespec.context, type):
        return treespec.context(*children)
    return _nodes[treespec.kind][1](children, treespec.context)


def tree_leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """Returns the leaves of a tree."""
    return tree_flatten(tree, is_leaf)[0]


def tree_map(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """Returns the tree of function(leaf, parts of other trees at the leaf's position).

    >>> tree_map(lambda a, b: a + b, [1, (2,)], [10, (20,)])
    [11, (22,)]

    Raises:
      ArgumentError: another tree has a different structure.
    """
    leaves, spec = tree_flatten(tree, is_leaf)
    return tree_unflatten([*map(func, leaves, *(_in_places_of(spec, rest) for rest in rests))], spec)


def _in_places_of(spec: TreeSpec, tree: Any) -> list[Any]:
    """Returns the parts of a tree at the positions of a structure's leaves; dicts may have their keys in another order."""
    if spec.kind is None:
        return [tree]
    kind = _kind(tree)
    if kind is not spec.kind and not {kind, spec.kind} <= KEYED:
        raise ArgumentError(f"tree_map: the first tree has a {spec.kind.__name__} where another has {type(tree).__name__}.")
    children: Sequence[Any]
    if spec.kind in KEYED:
        keys = spec.context[1] if spec.kind is defaultdict else spec.context
        if {*keys} != {*tree}:
            raise ArgumentError(f"tree_map: the first tree has a dict of keys {keys} where another has {[*tree]}.")
        children = [tree[key] for key in keys]
    else:
        children, context = _children(spec.kind, tree)
        if context != spec.context and kind is not deque:
            raise ArgumentError(f"tree_map: the first tree has a node of {spec.context} where another has {context}.")
    if len(children) != len(spec.children):
        raise ArgumentError(f"tree_map: the first tree has {len(spec.children)} parts where another has {len(children)}.")
    return [found for child, own in zip(spec.children, children) for found in _in_places_of(child, own)]


def tree_map_only(kind: Any, func: Callable[[Any], Any], tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """Applies a function to the leaves of a type, or with a true condition; keeps the others."""
    is_meant = (lambda leaf: isinstance(leaf, kind)) if isinstance(kind, type | tuple | UnionType) else kind
    return tree_map(lambda leaf: func(leaf) if is_meant(leaf) else leaf, tree, is_leaf=is_leaf)


def tree_any(pred: Callable[[Any], bool], tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Returns whether a condition is true for at least one leaf."""
    return any(map(pred, tree_leaves(tree, is_leaf)))
