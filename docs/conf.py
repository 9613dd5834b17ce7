"""Sphinx's configuration; docs/internals/documentation.md says how to build the site."""

from __future__ import annotations

import functools
import inspect
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # for `_extension`

from _extension.sources import ALIASES

import roipool
from roipool import _addresses

project = "roipool"
author = copyright = "The roipool developers"
version = release = roipool.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.intersphinx",
    "sphinx_copybutton",
    "_extension",
]
exclude_patterns = ["_build", "_extension", "_inventories"]
nitpicky = True  # a reference that leads nowhere is a warning, and warnings are errors
default_role = "literal"

html_theme = "furo"
if _addresses.REPOSITORY:
    html_theme_options = {
        "source_repository": _addresses.REPOSITORY,
        "source_branch": "main",
        "source_directory": "docs/",
    }
html_title = f"roipool {release}"
html_copy_source = False
html_show_sphinx = False
html_static_path = ["_static"]
html_favicon = "_static/favicon.svg"
html_css_files = ["site.css"]
html_js_files = ["tables.js"]

myst_heading_anchors = 3
DESCRIPTION = "Region-of-interest pooling as every framework defines it, exact and fast"
myst_html_meta = {
    "description": DESCRIPTION,
    "property=og:title": "roipool",
    "property=og:description": DESCRIPTION,
}
myst_enable_extensions = ["attrs_inline", "colon_fence"]

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings have shapes and dtypes, which annotations lack
numpydoc_show_class_members = False
numpydoc_xref_param_type = True  # the types of arrays are links
numpydoc_xref_ignore = "all"  # other words of the docstrings are none
numpydoc_xref_aliases = ALIASES
python_maximum_signature_line_length = 88

# The few names that are linked are in files here, so that the site is built without a network.
intersphinx_mapping = {
    name: (address, f"_inventories/{name}.txt")
    for name, address in {
        "dask": "https://docs.dask.org/en/stable/",
        "jax": "https://docs.jax.dev/en/latest/",
        "numpy": "https://numpy.org/doc/stable/",
        "torch": "https://docs.pytorch.org/docs/stable/",
    }.items()
}

if _addresses.REPOSITORY:
    extensions.append("sphinx.ext.linkcode")


def linkcode_resolve(domain: str, info: dict[str, str]) -> str | None:
    """Return the address of a function's source."""
    function = functools.reduce(
        lambda value, name: getattr(value, name, None),
        info["fullname"].split("."),
        sys.modules.get(info["module"]),
    )
    if domain != "py" or not inspect.isroutine(inspect.unwrap(function or print)):
        return None
    own = inspect.unwrap(function)
    path = (getattr(own, "__module__", None) or "").replace(".", "/")
    _, line = inspect.getsourcelines(own) if inspect.isfunction(own) else ([], 1)
    return f"{_addresses.REPOSITORY}/blob/main/{path}.py#L{line}" if path else None


copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

linkcheck_anchors = False  # pages that are made by scripts have none for a checker
linkcheck_timeout = 20
