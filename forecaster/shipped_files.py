"""Where the files that ship with the package are: in a checkout, or beside an installed one."""

from __future__ import annotations

import sysconfig
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent


def shipped_folder(name: str) -> Path | None:
    """Return ``share/headway/NAME`` of the installation, or None.

    Examples
    --------
    >>> shipped_folder("no such folder") is None
    True
    """
    for scheme in (sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user")):
        folder = Path(sysconfig.get_path("data", scheme)) / "share" / "headway" / name
        if folder.is_dir():
            return folder
    return None
