"""Checks of labs/08_kv_precision.ipynb: the reader's own engines, counters and runs."""

from helpers import check, intervals, memory


def pool(answer, engine):
    """Tokens of an engine's cache, against its own log line, to the token."""
    if check.unanswered(answer):
        return
    told = engine.kv_cache_tokens
    check.choice(answer, told, why=f"the engine says {told:,} tokens as well",
                 hint="whole blocks: floor(pool / (block size * bytes a token)) * block size. "
                 "How many bytes has one number of this cache?")


def by_bytes(answer, config, *, batch, context):
    """Two engines with FP8 caches over one with 16 bits, in speed, if only bytes count."""
    one = memory.decode_bytes_per_token(config, batch=batch, context=context, include_lm_head=True)
    two = memory.decode_bytes_per_token(config, batch=batch // 2, context=context, kv_bytes=1,
                                        include_lm_head=True)
    check.number(answer, one / two, within=0.01, unit="times",
                 hint="bytes a token of the one over bytes a token of the two: each of the two has "
                 "half the batch for its weights, and half the bytes for a cached token")


def preempted(answer, points):
    """Arms that must preempt at the higher concurrency, against the reader's own counters."""
    if check.unanswered(answer):
        return
    crowd = points[points.concurrency == points.concurrency.max()]
    counted = set(crowd.arm[crowd.preemptions > 0])
    if set(answer) != counted:
        wrong = ", ".join(sorted(set(answer) ^ counted))
        raise check.WrongAnswer(
            f"the counters say otherwise of: {wrong}. An arm must preempt if its requests need "
            "more blocks at their end than its caches have")
    check.right(f"the counters agree, for {crowd.arm.nunique()} arms")


def gain(answer, points, *, over, under):
    """Output tokens a second of one arm over another's, at the lower concurrency, all repeats."""
    if check.unanswered(answer):
        return
    calm = points[points.concurrency == points.concurrency.min()]
    table = calm.pivot(index="repeat", columns="arm", values="output_tok_per_s")
    check.number(answer, intervals.ratio(table[over], table[under])[0], within=0.01, unit="times",
                 hint=f"output_tok_per_s of {over!r} over that of {under!r}, each summed over the "
                 "repeats, at the lower concurrency")


def traffic(answer, *, token_bytes, tok_per_s, bandwidth):
    """The share of the memory's bandwidth that decoding takes."""
    check.number(answer, token_bytes * tok_per_s / bandwidth, within=0.02,
                 hint="bytes a token times tokens a second are bytes a second; divide by those "
                 "that the memory can give")


def recording(answer, config):
    """Bytes of a Whisper's cache that one recording takes at 16 bits, before any text."""
    expected = memory.kv_bytes(config, tokens=0)
    check.number(answer, expected, within=0.001, unit="bytes",
                 hint="layers of the decoder, a key and a value, the width, the positions, and two "
                 "bytes for each number")
