"""Whole blocks, shared prefixes, and a pool that forgets what was left alone longest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.errors import LabError
from helpers.paging import Pool, blocks, common_prefix, shared_tokens

PROMPTS = st.lists(st.integers(0, 1), max_size=20)
SIZES = st.integers(1, 5)


@pytest.mark.parametrize(("tokens", "block_size", "expected"), [
    (0, 32, 0), (1, 32, 1), (32, 32, 1), (33, 32, 2), (123, 16, 8), (123, 128, 1),
])
def test_blocks(tokens, block_size, expected):
    assert blocks(tokens, block_size) == expected


@pytest.mark.parametrize(("tokens", "block_size"), [(-1, 32), (5, 0)])
def test_impossible_blocks(tokens, block_size):
    with pytest.raises(LabError, match="not possible"):
        blocks(tokens, block_size)


@given(tokens=st.integers(0, 10_000), block_size=st.integers(1, 256))
def test_less_than_one_block_is_wasted(tokens, block_size):
    assert 0 <= blocks(tokens, block_size) * block_size - tokens < block_size


@pytest.mark.parametrize(("a", "b", "expected"), [
    ([], [], 0), ([1, 2], [], 0), ([1, 2, 3], [1, 2, 4], 2), ([1, 2], [1, 2, 3], 2),
    ([9, 2, 3], [1, 2, 3], 0),
])
def test_common_prefix(a, b, expected):
    assert common_prefix(a, b) == expected


def test_only_whole_blocks_are_shared():
    first = list(range(100))
    assert shared_tokens(first, first[:70] + [0] * 30, block_size=32) == 64
    assert shared_tokens(first, [-1] + first, block_size=32) == 0
    assert shared_tokens(first, first[:31] + [0] * 30, block_size=32) == 0


def test_the_last_token_is_always_computed():
    """The passage of 123 tokens: nothing at 128, 96 at 32; and a prompt of just 4 blocks."""
    prompt = list(range(128))
    assert shared_tokens(prompt, prompt, block_size=32) == 96
    assert shared_tokens(prompt, prompt, block_size=128) == 0
    assert shared_tokens(prompt, prompt + [1], block_size=32) == 128
    assert shared_tokens(prompt[:123], prompt[:123], block_size=128) == 0


@given(a=PROMPTS, b=PROMPTS, block_size=SIZES)
def test_a_pool_with_room_finds_what_the_formula_says(a, b, block_size):
    pool = Pool(range(60), block_size=block_size)
    table, cached = pool.admit(a)
    assert cached == 0 and len(table) == blocks(len(a), block_size)
    assert pool.admit(b)[1] == shared_tokens(a, b, block_size=block_size)


@given(prompts=st.lists(PROMPTS, max_size=8), block_size=SIZES)
def test_no_block_is_lost_or_held_twice(prompts, block_size):
    pool = Pool(range(20), block_size=block_size)
    for prompt in prompts:
        table, cached = pool.admit(prompt)
        assert cached <= max(0, len(prompt) - 1)
        assert not set(table) & set(pool.free) and len(set(table)) == len(table)
        pool.release(table)
        assert sorted(pool.free) == list(range(20))
        assert pool.found == {key: block for block, key in pool.content.items()}


def test_blocks_are_taken_in_the_order_given():
    assert Pool([7, 21, 4, 9], block_size=4).admit(list(range(10))) == ([7, 21, 4], 0)


def test_two_at_once_share_the_same_blocks():
    pool = Pool(range(9), block_size=4)
    passage = list(range(8))
    one, _ = pool.admit(passage + [50])
    two, cached = pool.admit(passage + [60])
    assert cached == 8 and one[:2] == two[:2] and one[2] != two[2]
    pool.release(one)
    assert not set(two) & set(pool.free)


def test_salts_share_nothing():
    pool = Pool(range(9), block_size=4)
    prompt = list(range(9))
    assert pool.admit(prompt, salt="a")[1] == 0
    assert pool.admit(prompt, salt="b")[1] == 0
    assert pool.admit(prompt, salt="a")[1] == 8


def test_too_few_blocks_change_nothing():
    pool = Pool(range(3), block_size=4)
    table, _ = pool.admit(list(range(8)))
    with pytest.raises(LabError, match="2 more blocks are needed and 1 are free"):
        pool.admit(list(range(100, 108)))
    assert pool.admit(list(range(9)))[1] == 8 and len(table) == 2


@pytest.mark.parametrize(("others", "expected"), [(0, 12), (1, 12), (2, 8), (3, 0)])
def test_the_tail_of_what_was_left_alone_goes_first(others, expected):
    """A pool of 9 blocks: 3 of the first passage, then 3 for each other one."""
    pool = Pool(range(8), block_size=4)
    first = list(range(12))
    pool.release(pool.admit(first)[0])
    for k in range(others):
        pool.release(pool.admit([1000 * (k + 1) + i for i in range(12)])[0])
    assert pool.admit(first + [0])[1] == expected == 4 * max(0, min(3, 8 - 3 * others))


def test_a_partly_filled_block_is_handed_out_first():
    pool = Pool(range(4), block_size=4)
    table, _ = pool.admit(list(range(6)))
    pool.release(table)
    assert pool.free[0] == table[1] and pool.free[-1] == table[0]
