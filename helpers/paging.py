"""The arithmetic of a paged KV cache, and a small one to try it on. Pure.

A block holds the keys and values of `block_size` tokens. A sequence's block table says which
physical block holds each of its logical ones (Kwon et al., arXiv:2309.06180, section 4).
"""

from collections import Counter
from itertools import takewhile

from helpers.errors import LabError


def blocks(tokens, block_size):
    """Blocks that hold so many tokens: tokens / block_size, rounded up."""
    if tokens < 0 or block_size < 1:
        raise LabError(f"{tokens} tokens in blocks of {block_size} is not possible.",
                       fix="Give 0 tokens or more, and blocks of at least 1.")
    return -(-tokens // block_size)


def common_prefix(a, b):
    """Tokens that two prompts, lists of token ids, share from the start."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))


def shared_tokens(a, b, *, block_size):
    """Tokens of prompt `b` that the cache supplies once prompt `a` has been worked out.

    block_size * floor(min(common prefix, len(b) - 1) / block_size): a block is found if all its
    tokens and all before them are equal, and the last token of `b` is always computed, since
    its scores choose the first token of the answer (get_computed_blocks in
    vllm/v1/core/kv_cache_manager.py).
    """
    blocks(0, block_size)  # raises for an impossible size
    return max(0, min(common_prefix(a, b), len(b) - 1)) // block_size * block_size


class Pool:
    """Physical blocks, handed out and found again as in vllm/v1/core/block_pool.py.

    A block that nobody uses keeps its tokens until it is handed out anew. Handed out first is what
    stands first in `free`: blocks with no whole content, then those left alone longest.
    """

    def __init__(self, physical, *, block_size):
        """physical: the blocks' numbers, in the order in which they are handed out at first."""
        self.block_size, self.free = block_size, list(physical)
        self.users = Counter()  # physical block -> sequences that hold it now
        self.found, self.content = {}, {}  # content -> physical block, and back

    def admit(self, ids, *, salt=""):
        """(block table, cached tokens) of a sequence with these token ids.

        salt: sequences with different salts never share a block. Raises LabError when too few
        blocks are free; then nothing has changed.
        """
        size = self.block_size
        whole = [(salt, tuple(ids[:end])) for end in range(size, len(ids) + 1, size)]
        usable = whole[:max(0, len(ids) - 1) // size]
        cached = [self.found[key] for key in takewhile(self.found.__contains__, usable)]
        needed = blocks(len(ids), size) - len(cached)
        left = [block for block in self.free if block not in cached]
        if needed > len(left):
            raise LabError(f"{needed} more blocks are needed and {len(left)} are free.",
                           fix="Release a sequence, or take a larger pool.")
        fresh, self.free = left[:needed], left[needed:]
        for block in fresh:
            self.found.pop(self.content.pop(block, None), None)
        for key, block in zip(whole[len(cached):], fresh, strict=False):
            if key not in self.found:
                self.found[key], self.content[block] = block, key
        self.users.update(cached + fresh)
        return cached + fresh, len(cached) * size

    def release(self, table):
        """Give the blocks of a finished sequence back; the tail's are handed out first."""
        self.users.subtract(table)
        idle = [block for block in reversed(table) if not self.users[block]]
        kept = [block for block in idle if block in self.content]
        self.free = [b for b in idle if b not in self.content] + self.free + kept
