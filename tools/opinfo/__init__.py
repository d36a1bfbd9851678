"""Runs PyTorch's own table of operators against picograd: samples, gradients, and calls that must raise.

    python -m tools.opinfo --kind samples --dtype float32 --dtype int64
    python -m tools.opinfo --kind gradients --dtype float64 --op linalg.svd --json found.json

A row of `torch.testing._internal.common_methods_invocations.op_db` names a function and makes calls of it. The call is made
in both libraries: picograd's function has the same dotted name, and the method and the in-place method are called, too.
Values, dtypes, shapes and the names of results must agree, within PyTorch's tolerances; gradients, for one fixed cotangent.

    right           every call agrees
    wrong           a call does not, or fails with an error that is not picograd's, or does not fail where PyTorch's must
    refused         the calls that disagree end in an error of picograd that says why
    missing         picograd has no function of this name
    not applicable  left out on purpose: reasons.py tells why
"""

