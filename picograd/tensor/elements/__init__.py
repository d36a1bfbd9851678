"""Functions of each element: the number that stands at a place becomes another number, whatever stands beside it.

Methods of Tensor take operands and dtypes as users give them: operators, casts, functions, parts, special_functions,
choices, pairs. Formulas on Ops say what they compute: pointwise, inverses, gamma, normal, bessel, arithmetic, widths.
"""
