"""Checks of notebooks/00_start_here.ipynb."""

from helpers import check, memory, study

TABLE = 152_000 * 5_120  # parameters of an embedding, as the exercise states


def warm_up(bits_in_a_byte):
    check.choice(bits_in_a_byte, 8, hint="a byte counts from 0 to 255: which power of two?")


def real_weights_answer():
    """Bytes: two tables at 16 bits, all other weights at 4 bits and a 16-bit scale for 128."""
    others = study.value("study_14b_parameters") * 1e9 - 2 * TABLE
    return memory.weight_bytes(2 * TABLE, bits=16) + memory.weight_bytes(others, bits=4 + 16 / 128)


def real_weights(real):
    check.number(
        real, real_weights_answer(), within=0.005, unit="bytes",
        hint="take both tables out of the 14 billion first, then add each part's bytes",
    )
