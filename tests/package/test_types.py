"""Names that users' checkers see. `tests/front_ends` has the rest.

`tests/package/typed_user.py` is checked by the session `types` of noxfile.py.
"""

from __future__ import annotations

import re

from _support.sources import SOURCES

import roipool


def test_private_helpers_are_not_listed() -> None:
    loaded = {"dask", "jax", "testing", "torch"} & vars(roipool).keys()
    assert set(dir(roipool)) == {*roipool.__all__, *loaded}
    assert not {"annotations", "libraries", "load_front_ends"} & set(dir(roipool))


def test_the_table_of_what_is_tested_with_a_wheel() -> None:
    """Its functions and tests exist, and run where the table says."""
    text = (SOURCES / "docs" / "frameworks.md").read_text()
    table = text.partition("<!-- with an installed wheel, from here -->")[2].partition(
        "<!-- with an installed wheel, to here -->"
    )[0]
    _, _, *rows = table.strip().splitlines()
    user = (SOURCES / "tests" / "package" / "typed_user.py").read_text()
    steps = (SOURCES / "scripts" / "nightly.sh").read_text()
    for row in rows:
        _, types, wheel = (re.findall("`([^`]+)`", cell) for cell in row.strip("|").split("|"))
        assert all(f"def {name}(" in user for name in types)
        tests = [name for name in wheel if name.startswith("tests/")]
        assert tests
        for name in tests:
            assert list(SOURCES.glob(name)), name
            library = re.findall(r"test_([a-z]+)", name)
            assert all(each in steps for each in library), name
