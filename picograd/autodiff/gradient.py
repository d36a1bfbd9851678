"""Gradients and tangents by the table of chain rules, at once or when the plan of a training step is made.

An eager training step whose plan is known needs no graph of its gradients, so it makes none. `gradients_later` puts one Op
in the place of a whole backward pass, until `written_out` replaces that Op, and every FORMULA, by graphs:

    loss.backward()      # GRADIENT (loss, 1, w, b), and OUTPUTs 0 and 1 of it
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from picograd.autodiff.chain_rules import chain_rules
from picograd.autodiff.host import has_gradients
from picograd.autodiff.modes import SeveralResults, arriving, forward, reverse
from picograd.errors import GradientError
from picograd.ir.bodies import WITH_BODY, Formula, bodies_in, by_formula, custom_gradient, formula_results
from picograd.ir.build import permute, reshape
from picograd.ir.op import Op, toposort, unshared
from picograd.ir.opcode import IDENTITY, MOVEMENT, SOURCES, OpCode
from picograd.ir.origin import copy_lines
from picograd.ir.pattern import Pattern, PatternMatcher, Rule


# ---- reverse mode ----
def gradient(
    root: Op,
    seed: Op,
    leaves: Iterable[Op],
    rules: PatternMatcher = chain_rules,
    constant: Collection[Op] = frozenset(),
) -> dict[Op, Op]:
    """Returns d<root, seed> / d leaf for each leaf.

    Args:
      root:      any shape, float
      seed:      shape of root: the gradient that arrives there (ones for a scalar)
      leaves:    LEAF Ops; one in the middle of the graph collects its gradient and passes it on
      rules:     the derivative table
      constant:  Ops known not to depend on the leaves; the walk ends at them

    Returns:   leaf -> gradient, of its shape and dtype; a leaf that root does not depend on is missing

    Raises:
      GradientError: an Op between root and a leaf has no row in `rules`.

    >>> x = Op(OpCode.LEAF, dtypes.float32, (const(3.0, dtypes.float32),), "x")
    >>> gradient(x + x, const(1.0, dtypes.float32), [x])[x]
    <ADD float32 ()>
    """
    if seed.shape != root.shape:
        raise GradientError(f"backward: a gradient of shape {seed.shape} was given for a result of shape {root.shape}.")
    return reverse({root: seed}, set(leaves), rules, constant)


# ---- forward mode ----
def jvp(roots: Iterable[Op], tangents: Mapping[Op, Op], rules: PatternMatcher = chain_rules) -> list[Op | None]:
    """Returns d root / d x * tangent of x, summed over the Ops x in `tangents`.

    Args:
      roots:     any shapes
      tangents:  Op -> its tangent, of its shape and dtype; the walk ends at these Ops
      rules:     the derivative table

    Raises:
      GradientError: an Op that changes has no row in `rules`.

    >>> x = Op(OpCode.BUFFER, dtypes.float32, (), ("x", ()))
    >>> jvp([x * x], {x: const(1.0, dtypes.float32)})
    [<ADD float32 ()>]
    """
    for op, tangent in tangents.items():
        if tangent.shape != op.shape or tangent.dtype is not op.dtype:
            raise GradientError(f"jvp: a tangent is {tangent.dtype} {tangent.shape}, its Op {op.dtype} {op.shape}.")
    return forward(list(roots), tangents, rules)


# ---- Ops that gradients reach ----
def reached(roots: Sequence[Op]) -> list[Op]:
    """Returns the Ops that gradients reach from roots, each once."""
    found: list[Op] = []
    seen = set(roots)
    stack = list(dict.fromkeys(roots))
    while stack:
        op = stack.pop()
        found.append(op)
        for source in op.src if op.code is not OpCode.CALL else _arguments_with_gradients(op):
            if source.needs_grad and source not in seen:
                seen.add(source)
                stack.append(source)
    return found


def _arguments_with_gradients(call: Op) -> list[Op]:
    """Returns the arguments of a CALL, without those to which a user's own gradient gives None."""
    made = custom_gradient(call.arg)
    places = [0] * len(call.src) if made is None else made.places
    return [source for source, place in zip(call.src, places) if place is not None]


# ---- gradients that wait for their plan ----
AT_ONCE = WITH_BODY | {OpCode.COPY}  # a user's function may make their gradients, or they are on another device
SURE = chain_rules.sure - AT_ONCE - {OpCode.CUSTOM} | {OpCode.FORMULA, OpCode.OUTPUT}  # each of which has a row
DEPTH_RATIO = 3  # depth of the graph of gradients, in depths of the graph itself


def gradients_later(seeds: Mapping[Op, Op], leaves: Sequence[Op], reached: Sequence[Op]) -> dict[Op, Op] | None:
    """Returns the gradients of leaves, all of which are reached; None if they must be written out at once.

    Args:
      seeds:    root -> the gradient that arrives there
      reached:  all Ops that gradients reach
    """
    unsure = [op for op in reached if op.code not in SURE]
    if not leaves or not all(map(_has_row, unsure)):
        return None
    src = (*seeds, *seeds.values(), *leaves)
    gradient = unshared(OpCode.GRADIENT, leaves[0].dtype, src, len(seeds), (), False)
    gradient.depth = 1 + DEPTH_RATIO * max([op.depth for op in src])
    made = (gradient,)
    return {leaf: unshared(OpCode.OUTPUT, leaf.dtype, made, i, leaf.shape, False) for i, leaf in enumerate(leaves)}


def _has_row(op: Op) -> bool:
    if op.code is OpCode.CUSTOM:
        return has_gradients(op)
    if op.code in AT_ONCE:
        return op.code is not OpCode.COPY and not _asks_user(op)
    return chain_rules.find(op) is not None


def gradients_expected(root: Op) -> dict[Op, Op]:
    """Returns the gradients of a scalar at the leaves it depends on; {} if a function of the user's makes some."""
    on_the_way = reached([root])
    if any(op.code in AT_ONCE and (op.code is OpCode.COPY or _asks_user(op)) for op in on_the_way):
        return {}
    leaves, seed = [op for op in on_the_way if op.code is OpCode.LEAF], root.filled(1)
    leaves = [op for op in leaves if not op.src[0].needs_grad or is_wanted(op)]
    found = gradients_later({root: seed}, leaves, on_the_way)
    if found is None:
        root, seed, *written = written_out([root, seed, *leaves])
        made = reverse({root: seed}, set(written), chain_rules)
        found = {leaf: made[op] for leaf, op in zip(leaves, written) if op in made}
    return found


def is_wanted(leaf: Op) -> bool:
    """True for a LEAF at which backward() may want the gradient: not for a result that is only a place of its own."""
    return not leaf.src[0].needs_grad or getattr(leaf.arg, "collects", True) or bool(leaf.arg.hooks)


def _asks_user(op: Op) -> bool:
    """True for an Op with a body whose gradient a function of the user's makes when it is called."""
    made = [custom_gradient(body) for body in bodies_in([op])]
    return any(one is not None and one.backward is None for one in made)


WRITTEN_LATER = frozenset({OpCode.GRADIENT, OpCode.FORMULA})  # replaced by `written_out`


def graph_sources(op: Op) -> tuple[Op, ...]:
    """Returns the sources of an Op through which gradients flow; none for a computed value that needs no gradient."""
    return op.src if op.realized is None or op.needs_grad else ()


def written_out(
    roots: Sequence[Op], others: Mapping[Op, Op] | None = None, most_operands: int | None = None,
    constants_stay: bool = False, formulas_stay: bool = False,
) -> list[Op]:  # fmt: skip
    """Returns graphs in which gradients and results of formulas are written out.

    An Op that replaces a computed one has its value. If no gradient flowed through an Op, none flows through the graph that
    replaces it: a gradient that is a factor of another loss is a constant there.

    Args:
      others:          replacements of Ops, such as constants by others; Ops that read these have no value any longer
      most_operands:   formulas of more operands stay, and so do gradients; LEAFs of results whose gradients nobody asks for
                       are left out then; None: all are written out
      constants_stay:  graphs that no gradient flows through stay as they are
      formulas_stay:   only gradients are written out, that of a formula as another formula
    """
    became: dict[Op, Op] = dict(others or {})
    found: dict[Op, list[Op]] = {}
    order = _differentiable(roots) if constants_stay else toposort(roots, sources=graph_sources)
    asked = {s for op in order if op.code is OpCode.GRADIENT for s in op.src} if most_operands is not None else ()
    for op in order:
        src, new = tuple([_as_constant(s, became[s], op) if s in became else s for s in op.src]), op
        stays = most_operands is not None and (op.code is OpCode.GRADIENT or len(src) > most_operands)
        if op.code is OpCode.GRADIENT and not stays:
            found[op] = _gradients(src, op.arg, rules_by_formula if formulas_stay else chain_rules)
        elif op.code is OpCode.FORMULA and not formulas_stay and (op.realized is None or op.needs_grad) and not stays:
            found[op] = formula_results(op.arg, src, op.lines)
            new = found[op][0] if len(found[op]) == 1 else op
        elif op.code is OpCode.OUTPUT and op.src[0] in found:
            new = found[op.src[0]][op.arg]
        elif most_operands is not None and op.code is OpCode.LEAF and src[0].needs_grad and op not in asked:
            new = src[0]
        elif src != op.src:
            new = built(op, src)
        if new is not op:
            became[op] = new
            copy_lines(op if op.lines or op.code is not OpCode.OUTPUT else op.src[0], new)
            if others is None:
                new.realized = op.realized or new.realized
    return [became.get(root, root) for root in roots]


def _differentiable(roots: Sequence[Op]) -> list[Op]:
    """Returns the Ops that gradients flow through, sources first."""
    return [op for op in toposort(roots, sources=lambda op: op.src if op.needs_grad else ()) if op.needs_grad]


def _as_constant(source: Op, new: Op, reader: Op) -> Op:
    """Returns the new form of a source, without the gradients that flow through it alone."""
    lets_more_through = reader.needs_grad and new.needs_grad and not source.needs_grad
    return Op(OpCode.DETACH, new.dtype, (new,)) if lets_more_through and source.dtype.kind == "f" else new


def built(op: Op, src: tuple[Op, ...]) -> Op:
    """Returns an Op with other sources, as if it had been built with them: two reshapes become one."""
    if op.code in WRITTEN_LATER or (op.code is OpCode.OUTPUT and src[0].code in WRITTEN_LATER):
        return unshared(op.code, op.dtype, src, op.arg, op.shape, op.needs_grad)
    if op.code is OpCode.RESHAPE:
        return reshape(src[0], op.arg)
    return permute(src[0], op.arg) if op.code is OpCode.PERMUTE else op.replace(src=src)


def _gradients(src: Sequence[Op], num_roots: int, rules: PatternMatcher) -> list[Op]:
    roots, seeds, leaves = src[:num_roots], src[num_roots : 2 * num_roots], src[2 * num_roots :]
    grads = reverse(dict(zip(roots, seeds)), set(leaves), rules)
    return [grads.get(leaf) or leaf.filled(0) for leaf in leaves]


# ---- gradients of formulas ----
def _of_formula(op: Op, grads: Mapping[int, Op], needed: Sequence[int], rules: PatternMatcher) -> list[Op | None]:
    """Returns the gradients of the operands of a FORMULA, the results of another one."""
    places, kinds = tuple(grads), tuple([(op.src[i].dtype, op.src[i].shape) for i in needed])
    return [*by_formula(pulled_back, (op.arg, places, tuple(needed)), [*op.src, *grads.values()], kinds)]


def pulled_back(options: tuple[Formula, tuple[int, ...], tuple[int, ...]], *operands: Op) -> list[Op]:
    """Returns gradients of the operands of a formula, which is computed again for them.

    Args:
      options:   the formula, the numbers of results whose gradients are given, and those of operands whose are wanted
      operands:  the formula's operands, then the gradients of its results
    """
    formula, places, needed = options
    src, seeds = operands[: -len(places)], operands[-len(places) :]
    leaves = {i: Op(OpCode.LEAF, src[i].dtype, (src[i],), f"operand {i}") for i in needed}
    results = formula_results(formula, [leaves.get(i, operand) for i, operand in enumerate(src)], ())
    pairs = zip([results[place] for place in places], seeds)
    grads = reverse(arriving(pairs), set(leaves.values()), chain_rules)
    return [grads.get(leaf) or leaf.filled(0) for leaf in leaves.values()]


def _no_tangents(op: Op, parts: Sequence[Op | None], rules: PatternMatcher) -> list[Op | None]:
    raise AssertionError(f"{op}: formulas are written out before forward mode")


rules_by_formula = chain_rules + PatternMatcher(
    [Rule("formula", Pattern(OpCode.FORMULA, name="out"), SeveralResults(_of_formula, _no_tangents))]
)


# ---- cost ----
FREE = SOURCES | MOVEMENT | IDENTITY | {OpCode.OUTPUT, OpCode.SINK}


def ops_by_code(roots: Iterable[Op], known: Iterable[Op] = ()) -> dict[OpCode, int]:
    """Returns the number of Ops of each code that compute `roots`, without those that compute `known`.

    Sources, movement and identities compute nothing and are not counted.

    >>> x = Op(OpCode.BUFFER, dtypes.float32, (), ("x", ()))
    >>> ops_by_code([x * x + x])
    {OpCode.MUL: 1, OpCode.ADD: 1}
    """
    before = set(toposort(known))
    counts: dict[OpCode, int] = {}
    for op in toposort(roots):
        if op.code not in FREE and op not in before:
            counts[op.code] = counts.get(op.code, 0) + 1
    return counts
