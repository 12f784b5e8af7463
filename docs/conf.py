"""Sphinx: the pages of this folder as a site, with the reference made from the code (``make docs``)."""

import sys
from pathlib import Path
from typing import Any

from headway import __version__

HERE = Path(__file__).resolve().parent

project = "Headway"
author = "the Headway authors"
release = version = __version__
extensions = ["myst_parser"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"Headway {release}"
html_show_sphinx = html_show_copyright = False
html_copy_source = False


def setup(app: Any) -> None:
    """Write the reference before anything is read."""
    sys.path.insert(0, str(HERE))
    from reference import write

    app.connect("builder-inited", lambda _: write(HERE / "reference"))
