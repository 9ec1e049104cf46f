"""The memory arithmetic of a model: what a step should need, before it is measured. Pure."""

from helpers.errors import LabError


def weight_bytes(parameters, *, bits):
    """Bytes of `parameters` weights stored at `bits` bits each: parameters * bits / 8.

    Raises LabError for a negative count or a width that is not positive. A real checkpoint has
    scales, and layers kept at 16 bits, on top.
    """
    if parameters < 0 or bits <= 0:
        raise LabError(
            f"{parameters} parameters at {bits} bits is not a model.",
            fix="Give a count that is not negative, and a positive number of bits.",
        )
    return parameters * bits / 8
