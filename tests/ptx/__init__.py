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
    fragments.py   matrices in the registers of a warp; matrix_rows.py has the instructions
    descriptors.py matrices in shared memory, as a warpgroup reads them
    tensor_maps.py boxes of arrays, from what the driver is asked to encode
    mbarriers.py   the 64 bits of one
    copies.py      copies in the background, and when they land; async_rows.py has the instructions
    warpgroups.py  products of a warpgroup, and who may touch its registers; wgmma_rows.py has the instructions
    background.py  what all of these keep of a launch, and the shared memory that they see
    device.py      whole graphs on it, by NVRTC's PTX and by LLVM's
"""
