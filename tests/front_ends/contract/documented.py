"""The tables in docs/frameworks.md, which are generated from the tests."""

from __future__ import annotations

from typing import ClassVar

from _support.cases import ALL_CASES
from _support.support_tables import Columns, made, written


class Documented:
    """The library's table agrees with its tests."""

    table: ClassVar[str]  # name of the table in the document
    files: ClassVar[str]  # prefix of the names of test files
    columns: ClassVar[Columns]

    def test_the_table_is_what_tests_show(self) -> None:
        table = written(self.table)
        assert table == made(self.files, self.columns, ALL_CASES)
        assert "untested" not in table
