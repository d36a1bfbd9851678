"""From a Kernel to a Program: an emitter for each kind of nest, then one tail of passes."""
