"""Functions of each element: the number that stands at a place becomes another number, whatever stands beside it.

Methods of Tensor (operators, functions, choices, mathematics, pairs, casts) take operands and dtypes as users give them;
formulas on Ops (pointwise, inverses, gamma, normal, bessel, arithmetic, widths) say what is computed.
"""
