"""A figure under its controls, drawn again when one of them changes."""

import io

import matplotlib.pyplot as plt
from IPython.display import display
from ipywidgets import HTML, HBox, Image, Layout, VBox

from helpers.errors import LabError


def show(draw, **controls):
    """Display the controls above the figure that `draw(**values)` returns as Axes.

    controls: ipywidgets, by the name of the argument that takes their value. The output holds the
    first figure as a picture too, for pages that cannot run a widget. A LabError of `draw` is
    shown under the controls, and the figure stays as it was. Returns the box, for tests.
    """
    image, note = Image(format="png", layout=Layout(max_width="100%")), HTML()

    def redraw(_=None):
        try:
            image.value = png(draw(**{name: control.value for name, control in controls.items()}))
            note.value = ""
        except LabError as error:
            note.value = f"<pre>{error}</pre>"

    for control in controls.values():
        control.observe(redraw, names="value")
    redraw()
    row = HBox(list(controls.values()), layout=Layout(flex_flow="row wrap"))
    box = VBox([row, note, image])
    display(box._repr_mimebundle_() | {"image/png": bytes(image.value)}, raw=True)
    return box


def png(axes):
    """The figure of these Axes as PNG bytes; the figure is closed."""
    file = io.BytesIO()
    axes.figure.savefig(file, format="png", dpi=110)
    plt.close(axes.figure)
    return file.getvalue()
