"""How the page looks, against kept pictures; ``HEADWAY_RENEW_SCREENS=1`` keeps new ones.

Pictures are kept at a quarter of the size, so that a font's rendering or a pixel's shift is no difference, and a panel
that vanished is.
"""

import io
import os
from pathlib import Path

import numpy as np
import pytest

from tests.integration.page.test_page import READY

pytestmark = pytest.mark.browser
FOLDER = Path(__file__).parent / "screens"
SCALE = 4
BLOCK = 8
LEVELS, SHARE = 26, 0.025
"""At most so large a share of blocks may differ by more than so many of 255 levels."""

SHOTS = {
    "overview-light": ("", "light", 1280),
    "overview-dark": ("", "dark", 1280),
    "overview-narrow": ("", "light", 360),
    "group-light": ("#group=orders&hours=24&expected=1h", "light", 1280),
    "group-dark": ("#group=orders&hours=24&expected=1h", "dark", 1280),
    "group-narrow": ("#group=orders&hours=24", "light", 360),
}


def small(png):
    from PIL import Image

    image = Image.open(io.BytesIO(png)).convert("RGB")
    return image.resize((image.width // SCALE, image.height // SCALE), Image.Resampling.BOX)


def blocks(image):
    pixels = np.asarray(image, dtype=float)
    height, width = pixels.shape[0] // BLOCK * BLOCK, pixels.shape[1] // BLOCK * BLOCK
    return pixels[:height, :width].reshape(height // BLOCK, BLOCK, width // BLOCK, BLOCK, 3).mean(axis=(1, 3))


def painted(page):
    page.wait_for_selector("#link:has-text('live')")
    page.evaluate("document.fonts.ready")
    page.wait_for_timeout(400)  # charts are painted in the frames after they are made


def compare(png, name):
    from PIL import Image

    shot = small(png)
    kept = FOLDER / f"{name}.png"
    if os.environ.get("HEADWAY_RENEW_SCREENS"):
        FOLDER.mkdir(exist_ok=True)
        shot.save(kept, optimize=True)
    expected = Image.open(kept).convert("RGB")
    size = (min(shot.width, expected.width), min(shot.height, expected.height))
    assert max(shot.size[i] / expected.size[i] for i in (0, 1)) <= 1.06, f"{name} has grown"
    assert min(shot.size[i] / expected.size[i] for i in (0, 1)) >= 0.94, f"{name} has shrunk"
    shot, expected = (image.crop((0, 0, *size)) for image in (shot, expected))
    differs = np.abs(blocks(shot) - blocks(expected)).max(axis=2) > LEVELS
    assert differs.mean() <= SHARE, f"{differs.mean():.1%} of {name} looks different"


@pytest.mark.parametrize("name", SHOTS)
def test_it_looks_as_kept(shared_address, opened, name):
    where, theme, width = SHOTS[name]
    wait = READY if where else "#groups tr[data-group]"
    page = opened(f"{shared_address}/{where}", theme=theme, width=width, height=900, wait=wait)
    painted(page)
    compare(page.screenshot(full_page=True), name)
