"""An interpreter of PTX: the text that NVRTC and LLVM make of kernels runs here, with no GPU.

It is a second reading of the PTX ISA (version 9.0), written from its text alone and not from the C++ bodies of the
primitives: where both agree with the evaluator, the PTX that a GPU is given means what it should. Read in this order:

    module.py      what a module is: functions, variables, instructions, operands
    tokens.py      text -> words
    parse.py       words -> module
    inline.py      calls of functions -> their bodies
    memory.py      state spaces, each access checked
    lanes.py       which threads an instruction is for
    registers.py   what they hold
    machine.py     one grid: who runs next, who waits, what an instruction is given
    table.py       opcode -> what it does; the files that it names hold the instructions by kind
    device.py      whole graphs on it, by NVRTC's PTX and by LLVM's
"""
