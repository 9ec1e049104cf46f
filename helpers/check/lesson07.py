"""Checks of notebooks/07_compression.ipynb: the reader's own checkpoints, engines and runs."""

from helpers import check, intervals, memory, models


def on_disk(predicted, folder):
    """Bytes of a checkpoint, against its tensors: within 0.05 percent, so that scales count."""
    if check.unanswered(predicted):
        return
    size = sum(models.tensor_bytes(folder).values())
    check.number(predicted, size, within=0.0005, unit=f"bytes; in the files {size:,}",
                 hint="2 bytes for each weight that stays; for each that is compressed 1 byte; "
                 "and 2 bytes for the scale of each row")


def pool_tokens(predicted, engine):
    """Tokens of a cache, against the engine's own count, to the token."""
    if check.unanswered(predicted):
        return
    told = engine.kv_cache_tokens
    check.choice(predicted, told, why=f"the engine says {told:,} tokens as well",
                 hint="whole blocks: floor(cache bytes / (block size * bytes a token)) * block "
                 "size. How many bytes has an element of this cache?")


def bound(answer, config):
    """How many times as fast a decode step of one sequence is at most, by its bytes alone."""
    full, half = (memory.decode_bytes_per_token(config, batch=1, context=0, weight_bits=bits,
                                                include_lm_head=True) for bits in (16, 8))
    check.number(answer, full / half, within=0.02, unit="times",
                 hint="bytes read at 16 bits over bytes read at 8: the output projection is read "
                 "too, and stays at 16 bits")


def ratio(answer, points):
    """INT8 over BF16 in output tokens a second, from the reader's own repeats."""
    if check.unanswered(answer):
        return
    table = points.pivot(index="repeat", columns="arm", values="output_tok_per_s")
    check.number(answer, intervals.ratio(table.INT8, table.BF16)[0], within=0.02,
                 hint="output_tok_per_s of INT8 over that of BF16: sum each over the repeats")
