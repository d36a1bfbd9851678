"""Chooses how a kernel is made: by the best guess, or when tuning by the candidate that timing finds fastest.

In:    Kernel, Device
Out:   `choose`: Opts for a generated kernel, a kernel written by hand (Hopper), an offered kernel, or a call of a library
       (cuBLASLt)
       `parts_of`: the generated part of a kernel, and the rest;  `merged`, `with_given`, `library_binary`: the code of both
       `fastest`: the winner of the candidates, timed or remembered on disk

Candidates are timed in turns, so that a machine that slows down slows all of them. A candidate that is not clearly faster
than the best guess does not replace it: the difference would not be there next time. The kernels written by hand are in
devices/cuda/hopper_product.h, hopper_attention.h and hopper_attention_grad.h.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256

import numpy as np

from picograd import dtype as dtypes
from picograd.codegen.emit import candidates, guess
from picograd.codegen.epilogue import Values, emit_epilogue, why_no_epilogue
from picograd.codegen.hopper import (
    AttentionSplit,
    attention_tiles,
    clocks_of,
    clocks_to_add,
    columns_of,
    gradient_tiles,
    in_parts,
    is_worth_it,
    product_tiles,
    split_attention,
    why_not,
)
from picograd.codegen.loops import over_registers
from picograd.codegen.unfuse import Cut, Split, unfuse, unfuse_given, unfuse_in_parts, unfuse_operands
from picograd.config import num_threads
from picograd.device import Target
from picograd.devices.cuda.render_hopper import WrittenEpilogue, functions_of, header_of
from picograd.engine.cache import entry_name, read_entry, write_entry
from picograd.errors import DeviceError, OutOfMemoryError
from picograd.ir.backend import Device, LibraryDevice, library_of
from picograd.ir.checks import OutOfRange
from picograd.ir.host import Offer, offers
from picograd.ir.op import Buffer, Op, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.opts import (
    ByHand,
    Choice,
    Epilogue,
    Generated,
    Library,
    LibraryCall,
    Offered,
    Opts,
    PlainAttention,
    PlainProduct,
    Written,
    WrittenAttention,
    WrittenGradients,
    write_library,
)
from picograd.ir.stages import (
    Binary,
    BufferUse,
    Executable,
    Kernel,
    Launch,
    Nest,
    NestKind,
    Param,
    Schedule,
    ScheduleItem,
    Source,
)
from picograd.ir.symbolic import dim_value
from picograd.ir.text import format_graph, format_kernel
from picograd.look import note, show
from picograd.record import Record, replace
from picograd.road import finish

# ---- timing ----
ROUNDS = 9
SAMPLE_SECONDS_MIN = 0.002
TIME_RATIO_MAX = 0.97  # a candidate wins only if it takes less than this part of the best guess's time

Make = Callable[[Kernel, Choice], Executable]
Writes = Mapping[str, Callable[[Kernel, Op], Source]]  # language -> the writer of a user's kernel, given its KERNEL Op


def fastest(kernel: Kernel, found: Sequence[Choice], device: Device, make: Make) -> Choice:
    """Returns the fastest candidate; the first one is the best guess.

    Cost: for each candidate its compilation and eleven runs or more, at least 20 ms; none if the winner is on disk.
    """
    name = tuning_name(kernel, found, device.target)
    known = {str(choice): choice for choice in found}
    remembered = (read_entry("tuning", name) or b"").decode()
    if remembered in known:
        return known[remembered]
    note("timed", len(found))
    winner = found[winner_of(time_candidates(kernel, found, device, make))]
    write_entry("tuning", name, str(winner).encode())
    return winner


def tuning_name(kernel: Kernel, found: Sequence[Choice], target: Target) -> str:
    """Returns the name under which the winning candidate is remembered, for this number of threads."""
    return entry_name("\n".join([format_kernel(kernel), *map(str, found), f"threads {num_threads()}"]), target)


def winner_of(samples: Sequence[Sequence[float]]) -> int:
    """Returns the number of the winning candidate, given the times of each in every round.

    The first one wins unless another takes clearly less in the median, and less in all rounds but one.

    >>> winner_of([[1.0, 1.0, 1.0], [0.9, 0.9, 0.9], [0.5, 1.1, 1.1]])
    1
    """
    best, best_ratio = 0, TIME_RATIO_MAX
    for place, sample in enumerate(samples[1:], 1):
        ratios = sorted(time / guess for time, guess in zip(sample, samples[0]))
        ratio = float(np.median(ratios))
        if ratio < best_ratio and ratios[-2] < 1:
            best, best_ratio = place, ratio
    return best


def time_candidates(kernel: Kernel, found: Sequence[Choice], device: Device, make: Make) -> list[list[float]]:
    """Returns the times of each candidate in seconds, round by round; infinity for a library that fails."""
    runs = [_started(kernel, choice, device, make) for choice in found]
    repeats = [0 if run is None else 1 + int(SAMPLE_SECONDS_MIN / max(_seconds(run, 1), 1e-7)) for run in runs]
    samples: list[list[float]] = [[] for _ in runs]
    for _ in range(ROUNDS):
        for sample, run, count in zip(samples, runs, repeats):
            sample.append(math.inf if run is None else _seconds(run, count) / count)
    return samples


def _started(kernel: Kernel, choice: Choice, device: Device, make: Make) -> Callable[[int], None] | None:
    """Runs a candidate once; returns a function that runs it again, or None if it is a library's and has failed."""
    try:
        run = _runner(kernel, make(kernel, choice), device)
        run(1)
    except (DeviceError, OutOfMemoryError) as error:
        if not isinstance(choice, Library):
            raise
        note_failure(kernel, choice.name, choice.product, error.fact)
        return None
    return run


def _seconds(run: Callable[[int], None], count: int) -> float:
    start = time.perf_counter()
    run(count)
    return time.perf_counter() - start


def _runner(kernel: Kernel, executable: Executable, device: Device) -> Callable[[int], None]:
    """Returns a function that runs a kernel a number of times on its own memory, and waits for it."""
    groups: dict[str, list[Buffer]] = {"in": [], "out": []}
    uses = []
    for param in kernel.params:
        group = groups[param.role]
        uses.append(BufferUse(param.dtype, param.numel, {"in": "input", "out": "output"}[param.role], len(group)))
        group.append(_filled(param, device))
    item = ScheduleItem(kernel, tuple(range(len(uses))), tuple(range(_num_checks(kernel))))
    schedule = Schedule((item,), tuple(uses), (), (), 0)
    submit = device.make_runner(schedule, (executable,))
    last = np.empty(1, np.uint8)

    def run(count: int) -> None:
        for _ in range(count):
            with suppress(OutOfRange):  # made-up indices may be wrong; the kernel runs to its end all the same
                submit(groups["in"], groups["out"], {})
        device.copy_out(groups["out"][0].memory, last)

    return run


def _filled(param: Param, device: Device) -> Buffer:
    """Returns memory for a parameter: random numbers for floats, zeros for integers, which may be indices."""
    numel = dim_value(param.numel, {})
    memory = device.allocate(max(1, numel * param.dtype.itemsize))
    if param.role == "in":
        normal = np.random.default_rng(0).standard_normal(numel, np.float32)
        data = normal if param.dtype.is_float else np.zeros(numel)
        device.copy_in(memory, data.astype(param.dtype.numpy))
    return Buffer(device.target.device, param.dtype, numel, memory)


def _num_checks(kernel: Kernel) -> int:
    """Returns the number of a kernel's CHECKs."""
    values = kernel.values()
    return sum(op.code is OpCode.CHECK for op in toposort(values))


# ---- a vendor's library ----
def library_candidates(kernel: Kernel, device: Device) -> list[Library]:
    """Returns the library's way to compute a kernel, or []; PICOGRAD_SHOW=choice prints the reason why it has none.

    The first of several splits is taken for whose product the library has an algorithm: an old library, for example, may
    have none with an epilogue.
    """
    name = library_of(device)
    if not name or not isinstance(device, LibraryDevice):
        return []
    splits = unfuse(kernel)
    if isinstance(splits, str):
        show_refusal(kernel, name, f"{splits}.")
        return []
    for split in splits:
        try:
            return [device.way_of(split.product)]
        except DeviceError as error:
            note_failure(kernel, name, split.product, error.fact)
    return []


def note_failure(kernel: Kernel, name: str, product: PlainProduct, reason: str) -> None:
    """Counts a failure of a library, which is then no candidate for the kernel, and shows the reason."""
    note("library_failures")
    own = f" ({product.epilogue})" if product.epilogue != Epilogue() else ""
    show_refusal(kernel, f"{name}{own}", reason)


def show_refusal(kernel: Kernel, name: str, reason: str) -> None:
    """Prints, with PICOGRAD_SHOW=choice, the reason why a library or an offered kernel is not a candidate."""
    show("choice", lambda: f"{kernel.name}: {name} is not a candidate: {reason}")


# ---- kernels written by hand ----
CANDIDATES_MAX = 6


def written_candidates(kernel: Kernel, target: Target) -> Sequence[ByHand]:
    """Returns the ways to compute a kernel by warpgroups, the probably fastest first; often there are none.

    If several blocks share K, their parts are added up in order, so a kernel gives the same bits in every run.
    """
    if not target.has_warpgroups or target.plain_sums:
        return []
    if kernel.phases[0][0].kind is NestKind.ATTENTION:
        return _of_attention(kernel, target)
    whole = _whole(kernel)
    if whole is None:
        return []
    product, nest = whole
    found = []
    for each in in_parts(product, target):
        values = Values(nest) if nest is not None and each.parts == 1 else None
        for tile in product_tiles(each, target, values):
            found.append((clocks_of(each, tile, values) + clocks_to_add(each, target), each.parts, tile))
    products = {1: Written(product, found[0][2], nest is not None)}
    for parts in {parts for _, parts, _ in sorted(found, key=lambda each: each[0])[:CANDIDATES_MAX]} - {1}:
        split = unfuse_in_parts(kernel, parts)
        if split is not None and why_not(split.product, split.kernel.params) is None:
            products[parts] = Written(split.product, found[0][2], False)
    possible = [(clocks, replace(products[parts], tile=tile)) for clocks, parts, tile in found if parts in products]
    return [choice for _, choice in sorted(possible, key=lambda each: each[0])][:CANDIDATES_MAX]


def _of_attention(kernel: Kernel, target: Target) -> Sequence[ByHand]:
    """Returns the ways to compute a kernel's attention by warpgroups, or its gradients."""
    split = split_attention(kernel, target)
    if isinstance(split, str):
        show("choice", lambda: f"{kernel.name}: not by warpgroups: {split}.")
        return []
    plain = split.plain
    if isinstance(plain, PlainAttention):
        return [WrittenAttention(plain, tile) for tile in attention_tiles(plain.shape, target)]
    by_keys, by_queries = (gradient_tiles(plain.shape, each, target) for each in (True, False))
    others = [(by_keys[0], each) for each in by_queries] + [(each, by_queries[0]) for each in by_keys[1:]]
    return [WrittenGradients(plain, *tiles) for tiles in others]


def _whole(kernel: Kernel) -> tuple[PlainProduct, Nest | None] | None:
    """Returns the product of a kernel, over all of K, if warpgroups can compute it and it is large enough.

    With it comes its nest if the epilogue can be computed by warpgroups, too, else None.
    """
    splits, whole = unfuse(kernel), unfuse_operands(kernel)
    if isinstance(splits, str):
        return None
    reasons = []
    if not isinstance(whole, str):
        nest = whole.nest
        reasons.append(why_no_epilogue(nest) or why_not(whole.product, whole.kernel.params))
        if reasons[0] is None:
            return (whole.product, nest) if is_worth_it(whole.product) else None
    reasons += [why_not(split.product, split.kernel.params) for split in splits]
    show("choice", lambda: f"{kernel.name}: not, or not wholly, by warpgroups: {reasons[0]}.")
    product = next((split.product for split in splits if why_not(split.product, split.kernel.params) is None), None)
    return (product, None) if product is not None and is_worth_it(product) else None


# ---- kernels that are offered ----
DIGEST_LETTERS = 16


def offered_candidates(kernel: Kernel, target: Target, writes: Writes) -> list[Offered]:
    """Returns the offered kernels that can compute a kernel; PICOGRAD_SHOW=choice says why others cannot."""
    found: list[Offered] = []
    for offer in () if target.plain_sums else offers.by_name.values():
        cut = cut_of(kernel, offer, target)
        reason = cut if isinstance(cut, str) else _why_not_joined(cut, target, writes)
        if not isinstance(cut, str) and not reason:
            found.append(Offered(offer.name, _digest_of(cut)))
        else:
            show_refusal(kernel, offer.name, f"{reason}.")
    return found


def cut_of(kernel: Kernel, offer: Offer, target: Target) -> Cut | str:
    """Returns the cut of a kernel into an offered one and generated parts, or the reason why the offer does not fit."""
    computed = offer.accepts(kernel, target)
    return computed if isinstance(computed, str) else unfuse_given(kernel, computed)


def _digest_of(cut: Cut) -> str:
    """Returns a digest of all that the code of a cut depends on; the function that says what a kernel means is left out."""
    call = call_of(cut)
    bare = call.replace(arg=(replace(call.arg[0], meaning=None), *call.arg[1:]))
    slots = [slot for slot, _ in cut.nest.outputs]
    text = f"{cut.place} {slots}\n{format_graph([bare])}\n{format_kernel(cut.generated)}"
    return sha256(text.encode()).hexdigest()[:DIGEST_LETTERS]


def call_of(cut: Cut) -> Op:
    """Returns the KERNEL of a cut."""
    return cut.nest.outputs[0][1].src[0]


def _why_not_joined(cut: Cut, target: Target, writes: Writes) -> str:
    """Returns the reason why generated code cannot surround an offered kernel; "" if it can."""
    given = call_of(cut).arg[0]
    language = given.language
    if language not in writes:
        return f"{target.device} takes no kernel in {language}"
    if target.arch != "sim" and not target.has_warpgroups and any(launch.tile_maps for launch in given.launches):
        return f"{target.arch} cannot copy tiles by maps"
    is_joined = not cut.generated.phases or with_given(cut, None, writes).language == target.language
    return "" if is_joined else f"it has a prologue or epilogue, and {target.device} generates no {language}"


def with_given(cut: Cut, generated: Source | None, writes: Writes) -> Source:
    """Returns a kernel's source: the generated code of the rest, then the offered kernel's, which is part of its name."""
    call, params = call_of(cut), cut.kernel.params if generated is None else generated.params
    own = writes[call.arg[0].language](Kernel(f"{cut.kernel.name}_given", params, (), ((cut.nest,),)), call)
    own = replace(own, name=f"{cut.kernel.name.removesuffix('_split')}_by_{call.arg[0].name}")
    if generated is None:
        return own
    launches = (*generated.launches[: cut.place], *own.launches, *generated.launches[cut.place :])
    return replace(own, text=f"{generated.text}\n{own.text}", launches=launches)


# ---- parts of a kernel ----
class Parts(Record):
    """A kernel as a choice makes it.

    generated:  the kernel that is lowered: all of it, or the rest of a split; None if nothing is left
    opts:       options of the lowered kernel
    split:      the cut between the rest and the part of a library or of a kernel written by hand; None if all is generated
    """

    generated: Kernel | None
    opts: Opts = Opts()  # elementwise nests have no options
    split: Cut | AttentionSplit | None = None


def parts_of(kernel: Kernel, choice: Choice, target: Target) -> Parts:
    """Returns the parts in which a kernel is made by a choice."""
    if isinstance(choice, Generated):
        return Parts(kernel, choice.opts)
    if isinstance(choice, Library):
        cut = split_of(kernel, choice.product)
        return Parts(with_workspace(cut, choice) if cut.generated.phases else None, split=cut)
    split: Cut | AttentionSplit | str
    if isinstance(choice, Offered):
        split = cut_of(kernel, offers.by_name[choice.name], target)
    elif not isinstance(choice, Written):
        split = split_attention(kernel, target)
    else:
        split = unfuse_operands(kernel) if choice.is_whole else split_of(kernel, choice.product)
    assert not isinstance(split, str), f"{kernel.name} has no split, but a kernel was chosen for it"
    return Parts(split.generated if split.generated.phases else None, split=split)


def split_of(kernel: Kernel, product: PlainProduct) -> Split:
    """Returns the split of a kernel around a product that a library, or a kernel written by hand, is to compute."""
    splits = unfuse(kernel)
    assert not isinstance(splits, str), f"{kernel.name} has no split, but one was chosen for it"
    of_parts = unfuse_in_parts(kernel, product.parts) if product.parts > 1 else None
    return next(split for split in (*splits, of_parts) if split is not None and split.product == product)


def with_workspace(split: Split, choice: Library) -> Kernel:
    """Returns the generated kernel of the rest; its last parameter is the library's workspace."""
    workspace = (Param(dtypes.uint8, choice.workspace_nbytes, "scratch"),) if choice.workspace_nbytes else ()
    return replace(split.generated, params=(*split.kernel.params, *workspace))


def library_binary(kernel: Kernel, parts: Parts, choice: Library, generated: Binary | None) -> Binary:
    """Returns a kernel's code: a call of the library among the launches of the generated code."""
    split, product = parts.split, choice.product
    assert isinstance(split, Split), f"{kernel.name} has no split, but a library was chosen for it"
    params = with_workspace(split, choice).params
    work = 2 * product.batch * product.m * product.n * product.k
    launches = [] if generated is None else [*generated.launches]
    assert len(launches) == len(split.kernel.phases) - 1, "each phase that stores elements is one launch"
    launches.insert(split.place, Launch(f"{kernel.name}_library", 1, 1, work))
    call = LibraryCall(choice, split.place, len(params) - 1 if choice.workspace_nbytes else None)
    if generated is None:
        return Binary(kernel.name, write_library(call), params, (), tuple(launches))
    return Binary(kernel.name, write_library(call, generated.data), generated.params, (), tuple(launches))


def epilogue_of(choice: Written, nest: Nest, params: Sequence[Param], target: Target) -> WrittenEpilogue:
    """Returns the statements of a thread's epilogue, over its columns of a product."""
    columns = columns_of(choice.product, choice.tile, nest)
    program = emit_epilogue(nest, params, columns, over_registers(target))
    return WrittenEpilogue(columns, finish(program, target), target)


def merged(kernel: Kernel, parts: Parts, choice: ByHand, generated: Source | None, target: Target) -> Source:
    """Returns a kernel's source: the generated functions of the rest, then the functions written by hand."""
    split = parts.split
    assert split is not None, f"{kernel.name} has no split, but a kernel was chosen for it"
    params = split.kernel.params if generated is None else generated.params
    header, symbol = header_of(choice), f"{kernel.name}_{'product' if isinstance(choice, Written) else 'heads'}"
    epilogue = None
    if isinstance(choice, Written):
        assert isinstance(split, Split)
        epilogue = epilogue_of(choice, split.nest, split.kernel.params, target)
    text, *own = functions_of(choice, params, symbol, epilogue)
    if generated is None:
        return Source(kernel.name, "cuda", f"{header}\n{text}", params, (), tuple(own))
    assert len(generated.launches) == len(split.generated.phases), "each phase that stores elements is one launch"
    launches = (*generated.launches[: split.place], *own, *generated.launches[split.place :])
    return replace(generated, text=f"{generated.text}\n{header}\n{text}", launches=launches)


# ---- the choice ----
def choose(kernel: Kernel, device: Device, make: Make, tune: bool, writes: Writes) -> Choice:
    """Returns the choice for a kernel.

    The guess is an offered kernel that wins by counts, else the hand-written one that the clock model (codegen/hopper.py)
    prefers, else the first generated one. All generated kernels give the same bits; hand-written ones and a vendor's
    library add up in orders of their own. Another candidate replaces the guess only if it was timed and won, also in other
    processes that find the winner on disk.

    Args:
      make:    returns callable code for a kernel by a candidate
      tune:    whether candidates are timed
      writes:  writers of a user's kernel, by language
    """
    target = device.target
    offered = offered_candidates(kernel, target, writes)
    first = [each for each in offered if _wins(kernel, each, target)]
    written = written_candidates(kernel, target)
    if not tune or not may_be_tuned(kernel, target, writes):
        return next(iter((*first, *written)), None) or Generated(guess(kernel, target))
    generated = [Generated(opts) for opts in candidates(kernel, target)]
    others = [each for each in offered if each not in first]
    return fastest(kernel, [*first, *written, *generated, *others, *library_candidates(kernel, device)], device, make)


def _wins(kernel: Kernel, choice: Offered, target: Target) -> bool:
    """True for an offered kernel that computes a whole kernel and wins by counts."""
    offer = offers.by_name[choice.name]
    cut = cut_of(kernel, offer, target)
    return isinstance(cut, Cut) and len(cut.kernel.phases) == 1 and offer.wins(call_of(cut))


def may_be_tuned(kernel: Kernel, target: Target, writes: Writes) -> bool:
    """True for a kernel with several candidates and no symbolic extent: there would be no size to time."""
    is_alone = len(candidates(kernel, target)) < 2 and not (offers.key and offered_candidates(kernel, target, writes))
    return not kernel.variables and not is_alone
