"""The main pictures, without their texts, as small images: what is drawn stays as it is.

``pytest tests/plots/test_images.py --renew-pictures`` stores what is drawn now. Look at it first:
``tools/make_gallery.py`` draws the same pictures in full.
"""

from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.text import Text

from bsdr_models import plots

# Other versions smooth edges and lay out symbols in their own ways.
DRAWN_BY = "3.11."
pytestmark = pytest.mark.skipif(
    not matplotlib.__version__.startswith(DRAWN_BY), reason=f"drawn by Matplotlib {DRAWN_BY}"
)

STORED = Path(__file__).with_name("pictures.npz")
WIDTH = 240  # pixels
# A pixel differs if a channel differs by more than the first, an image if more than the second
# share of its pixels differ.
CHANNEL, SHARE = 12, 0.0004


@pytest.fixture(scope="module")
def trees(wine, wine_predictions, make_fit, make_predictions, with_plane):
    two = make_fit(n_components=1, labels=["no", "yes"], n_obs=90)
    return {
        "fit": wine,
        "new": with_plane(wine_predictions, sharpness=0.4, n_wrong=9),
        "two": with_plane(make_predictions(two), sharpness=0.3, n_wrong=3),
    }


PICTURES = {
    "map of new samples": ("new", plots.plot_map, {}),
    "map of training samples": ("fit", plots.plot_map, {}),
    "map of two classes": ("two", plots.plot_map, {}),
    "features": ("fit", plots.plot_features, {}),
    "biplot": ("fit", plots.plot_biplot, {}),
}


def draw(name, trees):
    tree, plot, options = PICTURES[name]
    return plot(trees[tree], **options)


def image_of(ax):
    """RGB of the figure, (height, `WIDTH`, 3): axes at a fixed place, and no texts."""
    figure = ax.get_figure(root=True)
    figure.set_layout_engine("none")
    ax.set_position((0.05, 0.05, 0.72, 0.9))
    for names in list(ax.artists):
        names.remove()
    for text in figure.findobj(Text):  # but for arrows without one
        text.set_visible(getattr(text, "arrow_patch", None) is not None and not text.get_text())
    if ax.get_legend() is not None:
        ax.get_legend().remove()
    figure.set_dpi(WIDTH / figure.get_figwidth())
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())[..., :3]


def differs(image, name):
    with np.load(STORED) as stored:
        before = stored[name].astype(int)
    if image.shape != before.shape:
        return True
    return np.mean(np.abs(image - before).max(axis=2) > CHANNEL) > SHARE


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_as_it_was(name, trees, request):
    image = image_of(draw(name, trees))
    if request.config.getoption("--renew-pictures"):
        stored = dict(np.load(STORED)) if STORED.exists() else {}
        np.savez_compressed(STORED, **(stored | {name: image}))
    assert not differs(image, name)
