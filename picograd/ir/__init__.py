"""The intermediate representation: one node type, its opcodes, shapes, patterns and the records between stages."""
