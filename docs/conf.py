"""Sphinx: the pages of this folder as a site, with the reference made from the code (``make docs``)."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from reference import write  # noqa: E402  # its folder is on the path only now

from headway import __version__  # noqa: E402

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
html_static_path = ["pictures"]

write(HERE / "reference")
