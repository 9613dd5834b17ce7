"""Where the project is: the one place for addresses of its own, empty until there are any.

The metadata's links, README on a package index, the site, and errors that say how to install
something follow. `tests/package/test_addresses.py` refuses such an address anywhere else.
"""

from __future__ import annotations

REPOSITORY = ""  # of the sources, as https://HOST/OWNER/roipool
INDEX = ""  # the project's page at the package index that pip asks, once there is a release


def links(repository: str = REPOSITORY, index: str = INDEX) -> dict[str, str]:
    """Return addresses by the names that package indexes know."""
    found = {"Package index": index} if index else {}
    if repository:
        found["Source"] = repository
        found["Issues"] = f"{repository}/issues"
        found["Changelog"] = f"{repository}/blob/main/CHANGELOG.md"
    return found


def requirement(extra: str, index: str = INDEX) -> str:
    """Return the argument of `pip install` with an extra: a release's name, or a checkout's."""
    return f'"{"roipool" if index else "."}[{extra}]"'


def install(*extras: str, index: str = INDEX) -> str:
    """Return how one of some extras is installed."""
    wanted = " or ".join(requirement(extra, index) for extra in extras)
    return f"pip install {wanted}" + ("" if index else " in a checkout of roipool")


CUPY_EXTRAS = f"{install('cuda12', 'cuda13')}, to match the CUDA driver"
