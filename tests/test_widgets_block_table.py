"""The block table's widget: what it draws for given lengths, and what it says of waste."""

import matplotlib

matplotlib.use("agg")

import pytest

from helpers import widgets
from helpers.paging import blocks
from helpers.widgets import paging


@pytest.mark.parametrize("block_size", [16, 32, 64, 128])
@pytest.mark.parametrize(("prompt", "answer", "prefix"), [(16, 0, 0), (123, 40, 100), (64, 9, 320)])
def test_shared_blocks_are_the_whole_ones_of_the_prefix(block_size, prompt, answer, prefix):
    held, size = paging.sequences_with(block_size, prompt, answer, 3, prefix)
    tables = [table for _, table in held.values()]
    assert [len(table) for table in tables] == [blocks(prompt + answer, block_size)] * 3
    alike = min(prefix, prompt, prompt + answer - 1) // block_size
    for one in tables[1:]:
        assert one[:alike] == tables[0][:alike]
        assert not set(one[alike:]) & set(tables[0])
    assert size % 24 == 0 and all(0 <= block < size for table in tables for block in table)


def test_blocks_are_not_neighbours():
    held, _ = paging.sequences_with(32, 320, 0, 1, 0)
    table = held["pupil 1"][1]
    assert table != sorted(table)


def test_waste_with_one_sequence():
    held, _ = paging.sequences_with(32, 100, 20, 1, 0)
    assert paging.waste(held, 32, 2048) == (
        "128 slots in blocks: 8 empty (6.2%), 0 saved by sharing\n"
        "one reservation of 2048 for each: 2048 slots, 94.1% empty")


def test_waste_with_a_shared_prefix():
    held, _ = paging.sequences_with(32, 100, 20, 3, 64)
    assert paging.waste(held, 32, 2048).startswith(
        "256 slots in blocks: 24 empty (9.4%), 128 saved by sharing")


def test_the_widget_draws_again_when_a_slider_moves(capsys):
    row, note, image = widgets.block_table().children
    first = image.value
    assert bytes(first).startswith(b"\x89PNG") and note.value == ""
    controls = {control.description: control for control in row.children}
    assert set(controls) == {"block size", "prompt tokens", "answer tokens", "sequences",
                             "shared prefix"}
    controls["sequences"].value = 5
    assert image.value != first and note.value == ""
    for name, low in (("prompt tokens", 16), ("answer tokens", 0), ("sequences", 1)):
        controls[name].value = low
    controls["block size"].value = 128
    assert note.value == ""
    for name in ("prompt tokens", "answer tokens", "sequences", "shared prefix"):
        controls[name].value = controls[name].max
    controls["block size"].value = 16
    assert note.value == ""


def test_the_picture_for_pages_without_widgets_is_bytes(monkeypatch):
    """A kernel can send bytes; what an Image widget keeps is a memoryview, which it cannot."""
    shown = []
    monkeypatch.setattr("helpers.widgets.base.display", lambda data, raw: shown.append(data))
    widgets.block_table()
    assert isinstance(shown[0]["image/png"], bytes)
