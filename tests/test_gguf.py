"""What the packaged 4-bit file holds, by type of number."""

from helpers import gguf, memory, models


def test_four_bits_are_five_with_their_scales_and_not_everything_is_stored_so():
    table = gguf.number_types()
    assert table.bits.round(2).to_dict() == {"F32": 32, "Q4_1": 5, "Q8_0": 8.5}
    config = models.config("smollm2-135m")
    assert table.weights.sum() == memory.parameters(config)
    assert table.bytes.sum() > 1.4 * memory.weight_bytes(memory.parameters(config), bits=4)
