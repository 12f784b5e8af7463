"""Finds the function that a user names on the command line."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headway.errors import HeadwayError


def load_handler(name: str) -> Callable[[Any], Any]:
    """Return the function that ``module:function`` names; the working folder is searched as well.

    Raises
    ------
    HeadwayError
        If there is no such module or function.

    Examples
    --------
    >>> load_handler("json:loads").__name__
    'loads'
    >>> load_handler("json:nothing")
    Traceback (most recent call last):
    headway.errors.HeadwayError: --handler json:nothing: module json has no function nothing
    """
    module_name, colon, function_name = name.partition(":")
    if not colon or not module_name or not function_name:
        raise HeadwayError(f"--handler {name}: write module:function, such as app:handle")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name.partition(".")[0] and error.name != module_name:
            raise
        raise HeadwayError(f"--handler {name}: no module {module_name} here or on the Python path") from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise HeadwayError(f"--handler {name}: module {module_name} has no function {function_name}")
    return function  # type: ignore[no-any-return]
