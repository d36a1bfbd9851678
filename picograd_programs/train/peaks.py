"""Peaks of devices, the reference of MFU.

Dense products with float32 sums, in FLOP/s, from the vendors' data sheets (NVIDIA H100, H200, A100, L4, L40S, B200 and
RTX 4090; figures for SXM modules, without sparsity). A processor's peak depends on its clock, which its name does not
tell, so there are none here.
"""

from __future__ import annotations

from picograd.cuda import get_device_name
from picograd.dtype import DType, bfloat16, float16

HALF: dict[str, float] = {  # 16-bit floats
    "B200": 2250e12, "H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "L4": 121e12, "4090": 165e12,
}  # fmt: skip
TF32: dict[str, float] = {
    "B200": 1100e12, "H200": 494e12, "H100": 494e12, "A100": 156e12, "L40S": 183e12, "L4": 60e12, "4090": 82e12,
}  # fmt: skip


def peak_flops(device: str | None, precision: DType | None) -> float | None:
    """Returns the peak of a device in FLOP/s; None if it is unknown.

    Args:
      device:     name of the device, such as "cuda:0"
      precision:  dtype of products; None: that of float32 operands, which tensor cores read as TF32

    >>> peak_flops("cpu", None) is None
    True
    """
    if device is None or not device.lower().startswith("cuda"):
        return None
    table = HALF if precision in (bfloat16, float16) else TF32
    name = get_device_name(device)
    return next((peak for part, peak in table.items() if part in name), None)
