"""Does it fit? A model, its bits and its users on a card, with handles."""

from ipywidgets import BoundedFloatText, Dropdown, IntSlider, SelectionSlider

from helpers import machine, models, plots
from helpers import sizing as arithmetic
from helpers.sizing import GIB
from helpers.widgets.base import show

TOKENS = [512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072]


def sizing(*, model="Llama-3.1-8B", card="RTX 3000 Ada Laptop", weight_bits=4, cache_bits=16,
           tokens=4096, users=30, rest_gib=1.5):
    """Show the bars of `plots.sizing` for values that the reader changes; these are the first.

    model: a shape of the course whose weights can be counted. card: a row of
    `machine.hardware()`, its memory read as GiB. tokens: of each user; users share nothing.
    """
    cards = machine.hardware().memory_gb
    names = arithmetic.countable({name: models.config(f"shape:{name}") for name in models.shapes()})

    def draw(model, card, weight_bits, cache_bits, tokens, users, rest_gib):
        return plots.sizing(arithmetic.need(
            models.config(f"shape:{model}"), card_bytes=cards[card] * GIB, users=users,
            weight_bits=weight_bits, cache_bits=cache_bits, tokens=tokens,
            rest_bytes=rest_gib * GIB))

    return show(
        draw, model=Dropdown(options=names, value=model, description="model"),
        card=Dropdown(options=list(cards.index), value=card, description="card"),
        weight_bits=Dropdown(options=[16, 8, 4], value=weight_bits, description="weight bits"),
        cache_bits=Dropdown(options=[16, 8], value=cache_bits, description="cache bits"),
        tokens=SelectionSlider(options=TOKENS, value=tokens, description="tokens"),
        users=IntSlider(value=users, min=1, max=200, description="users"),
        rest_gib=BoundedFloatText(value=rest_gib, min=0, max=32, step=0.5,
                                  description="rest (GiB)"))
