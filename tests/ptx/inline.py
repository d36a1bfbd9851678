"""Puts the bodies of functions in the places where they are called, so that a machine runs one function.

In:    Module
Out:   Module, whose functions call nobody

Parameters of a call, in their caller and in the function, become local memory: st.param and ld.param of them become
st.local and ld.local, and between a call and its body words are copied. PTX ISA 9.0, 7 (the ABI); no recursion.
"""

from __future__ import annotations

from dataclasses import replace

from tests.ptx.module import (
    Address,
    Function,
    Instruction,
    Label,
    Module,
    Operand,
    Pair,
    PtxError,
    Register,
    Symbol,
    Variable,
    Vector,
)


def inline(module: Module) -> Module:
    """Returns a module whose kernels hold what they call."""
    kernels = {name: flat(function, module, ()) for name, function in module.functions.items() if function.is_entry}
    return replace(module, functions=kernels)


def flat(function: Function, module: Module, callers: tuple[str, ...]) -> Function:
    """Returns a function with the bodies of those that it calls."""
    if function.name in callers:
        raise PtxError(f"{function.name} calls itself.")
    held = {one.name for one in function.variables if one.space == "param"}
    if not function.is_entry:
        held |= {one.name for one in (*function.params, *function.results)}
    own = [as_local(one) for one in function.variables]
    made = replace(function, registers=dict(function.registers), variables=own, instructions=[], labels={}, targets={})
    starts = {}
    for number, instruction in enumerate(function.instructions):
        starts[number] = len(made.instructions)
        if instruction.opcode.startswith("call"):
            add_call(made, instruction, module, (*callers, function.name), number)
        else:
            made.instructions.append(of_local(instruction, held))
    starts[len(function.instructions)] = len(made.instructions)
    made.labels |= {name: starts[number] for name, number in function.labels.items()}
    made.targets |= function.targets
    return made


def as_local(variable: Variable) -> Variable:
    return replace(variable, space="local") if variable.space == "param" else variable


def of_local(instruction: Instruction, held: set[str]) -> Instruction:
    """Returns an instruction whose access to a parameter that lies in local memory says so."""
    for operand in instruction.operands:
        if isinstance(operand, Address) and isinstance(operand.base, Symbol) and operand.base.name in held:
            return replace(instruction, opcode=instruction.opcode.replace(".param", ".local"))
    return instruction


def add_call(made: Function, call: Instruction, module: Module, callers: tuple[str, ...], number: int) -> None:
    """Adds the body of what an instruction calls: `call (results), name, (params)`."""
    if call.guard is not None:
        raise PtxError(f"{call}: a call for some threads only.")
    results, called, given = shape_of(call)
    if called not in module.functions:
        raise PtxError(f"{call}: {called!r} is declared, and is not there.")
    body = flat(module.functions[called], module, callers)
    if len(given) != len(body.params) or len(results) != len(body.results):
        raise PtxError(f"{call}: {called} takes {len(body.params)} and gives {len(body.results)}.")
    suffix = f"@call{len(callers)}.{number}"
    made.registers |= {name + suffix: kind for name, kind in body.registers.items()}
    locals_ = {one.name for one in (*body.params, *body.results, *body.variables)}
    made.variables += [replace(one, name=one.name + suffix) for one in map(as_local, body.variables)]
    made.variables += [replace(as_local(one), name=one.name + suffix) for one in (*body.params, *body.results)]
    for variable, operand in zip(body.params, given):
        copy(made, call, Symbol(variable.name + suffix), operand, variable)
    start = len(made.instructions)
    last = f"end{suffix}"
    for one in body.instructions:
        operands = tuple(renamed(operand, suffix, locals_) for operand in one.operands)
        guard = None if one.guard is None else replace(one.guard, name=one.guard.name + suffix)
        if one.opcode in ("ret", "ret.uni"):
            one, operands = replace(one, opcode="bra"), (Label(last),)
        made.instructions.append(replace(one, guard=guard, operands=operands))
    made.labels |= {name + suffix: start + place for name, place in body.labels.items()}
    made.labels[last] = len(made.instructions)
    made.targets |= {name + suffix: tuple(to + suffix for to in labels) for name, labels in body.targets.items()}
    for variable, operand in zip(body.results, results):
        copy(made, call, operand, Symbol(variable.name + suffix), variable)


def shape_of(call: Instruction) -> tuple[tuple[Operand, ...], str, tuple[Operand, ...]]:
    """Returns what takes the results, the name that is called, and what is given."""
    vectors = [operand.parts for operand in call.operands if isinstance(operand, Vector)]
    position = 1 if isinstance(call.operands[0], Vector) else 0
    name = call.operands[position]
    if not isinstance(name, Symbol):
        raise PtxError(f"{call}: what is called is no name.")
    return (vectors[0] if position else ()), name.name, (vectors[position] if len(vectors) > position else ())


def copy(made: Function, call: Instruction, target: Operand, source: Operand, variable: Variable) -> None:
    """Adds the copy of a parameter between local variables, word by word."""
    assert isinstance(target, Symbol) and isinstance(source, Symbol), "parameters of calls are variables"
    width = min(variable.align, 8)
    register = f"copy@{width}"
    made.registers[register] = f"b{8 * width}"
    for at in range(0, variable.nbytes, width):
        for opcode, operands in (
            ("ld", (Register(register), Address(source, at))),
            ("st", (Address(target, at), Register(register))),
        ):
            moved = tuple(Address(Symbol(o.base.name), o.offset) if isinstance(o, Address) else o for o in operands)  # type: ignore[union-attr]
            made.instructions.append(replace(call, opcode=f"{opcode}.local.b{8 * width}", operands=moved))


def renamed(operand: Operand, suffix: str, local: set[str]) -> Operand:
    """Returns an operand with the registers, labels and variables of a body of its own."""
    if isinstance(operand, Register):
        return replace(operand, name=operand.name + suffix)
    if isinstance(operand, Label):
        return Label(operand.name + suffix)
    if isinstance(operand, Symbol):
        return replace(operand, name=operand.name + suffix) if operand.name in local else operand
    if isinstance(operand, Vector):
        return Vector(tuple(renamed(part, suffix, local) for part in operand.parts))
    if isinstance(operand, Pair):
        return Pair(renamed(operand.first, suffix, local), renamed(operand.second, suffix, local))
    if isinstance(operand, Address) and operand.base is not None:
        base = renamed(operand.base, suffix, local)
        assert isinstance(base, Symbol | Register)
        return Address(base, operand.offset, tuple(renamed(part, suffix, local) for part in operand.index))
    return operand
