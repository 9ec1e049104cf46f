"""How many weights a model has, and how many bytes a checkpoint has in each number format. Pure."""

from helpers.architecture import count, layer_parameters, matrices, text_part, value
from helpers.errors import LabError

BITS = {"BF16": 16, "FP8": 8, "INT8": 8, "4-bit": 4}
SCALE_BYTES, SHAPE_BYTES = 2, 16  # a scale has 16 bits; a packed matrix notes its two sizes


def parameters(config):
    """Weights in the model: its layers, the embedding, the final norm, and the output projection
    where it is not the embedding itself (`tie_word_embeddings`; Gemma's configs leave it out, and
    it is). Families as `layer_parameters`; LabError for others, and for a model that has more than
    its text part.
    """
    layers = count(config, "num_hidden_layers") * layer_parameters(config)
    if text_part(config) is not config:
        raise LabError("This model has more than its text part.", cause="Its config has a "
                       "text_config; an encoder of images or sound has weights too.",
                       fix="Give the text_config alone, or use models.tensor_bytes.")
    hidden = count(config, "hidden_size")
    gemma = value(config, "model_type").startswith("gemma") or None
    copies = 1 if value(config, "tie_word_embeddings", default=gemma) else 2
    return layers + copies * count(config, "vocab_size") * hidden + hidden


def checkpoint_bytes(config, *, scheme, group=None):
    """Bytes of the tensors in a checkpoint compressed by `scheme`: BF16, FP8, INT8 or 4-bit.

    The sum of its `checkpoint_parts`, which see. Raises LabError.
    """
    return sum(checkpoint_parts(config, scheme=scheme, group=group).values())


def checkpoint_parts(config, *, scheme, group=None):
    """{part: bytes} of such a checkpoint: matrices of the layers, scales, kept at 16 bits.

    A matrix of r rows and c columns has r * c * bits / 8 bytes, and scales at 2 bytes: one a row
    for 8 bits; for 4 bits one for each `group` columns of a row, and 16 bytes that note its shape.
    Kept is what is not the matrix of a layer: embedding, output projection, norms, biases. Formats:
    compressed-tensors, float-quantized, int-quantized and pack-quantized.
    group: columns that share a scale; None takes `group_size`. Raises LabError.
    """
    if scheme not in BITS:
        raise LabError(f"There is no scheme {scheme!r}.", fix=f"Use one of {list(BITS)}.")
    shapes, layers = matrices(config), count(config, "num_hidden_layers")
    weights = layers * sum(rows * columns for rows, columns in shapes)
    scales = {"FP8": layers * sum(rows for rows, _ in shapes) * SCALE_BYTES}
    scales["INT8"] = scales["FP8"]
    if scheme == "4-bit":
        scales[scheme] = weights // (group or group_size(config)) * SCALE_BYTES
        scales[scheme] += layers * len(shapes) * SHAPE_BYTES
    return {"matrices of the layers": weights * BITS[scheme] // 8,
            "scales": scales.get(scheme, 0),
            "kept at 16 bits": 2 * (parameters(config) - weights)}


def group_size(config):
    """Columns that share a scale at 4 bits: 128, or 64 where 128 divides not every width.

    Raises LabError where 64 does not either.
    """
    widths = {columns for _, columns in matrices(config)}
    for group in (128, 64):
        if all(width % group == 0 for width in widths):
            return group
    raise LabError(f"No group of weights fits widths of {sorted(widths)}.",
                   cause="Neither 128 nor 64 divides each of them.", fix="Use 'INT8'.")

