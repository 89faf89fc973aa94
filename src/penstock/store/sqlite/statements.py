"""The SQL of the store: one statement per file in `sql/`, read once; and statements over many rows."""

import re
from collections.abc import Iterator, Mapping, Sequence

import apsw

from penstock.store.rows import Row
from penstock.store.statements import load_statement

ROWS_MAX = 256
_VALUES = re.compile(r"VALUES (\([?,]+\))")


def load(name: str) -> str:
    """The text of one statement, without its comments."""
    return load_statement("penstock.store.sqlite", name)


def query(connection: apsw.Connection, text: str, scope: Mapping[str, "apsw.Binding"] | None = None) -> list[Row]:
    """All rows that a statement returns; their types are those of its columns."""
    return connection.execute(text, scope).fetchall()


class Bulk:
    """A statement over many rows of values, run as one step instead of one for each row.

    apsw releases the GIL around every step, and beside a busy event loop each return to Python may wait for a whole
    switch interval: at 100 rows, one statement per row gave 1.4 k settles/s there, one statement for all 12 k (and
    175 k against 96 k beside an idle loop). Rows as bound VALUES beat rows as JSON by 1.4 ×, as nothing is parsed.

    The row counts are powers of two, so that few texts are ever compiled; a row of NULLs fills up and matches nothing.
    """

    def __init__(self, name: str) -> None:
        self.text = load(name)
        found = _VALUES.search(self.text)
        assert found is not None, f"{name}.sql has no VALUES row to repeat"  # noqa: S101
        self._row = found[1]
        self._filler: Row = (None,) * self._row.count("?")
        self._texts: dict[int, str] = {}

    def run(self, connection: apsw.Connection, rows: Sequence[Row]) -> Iterator[Row]:
        """What the statement returns for all rows, in no particular order."""
        for start in range(0, len(rows), ROWS_MAX):
            yield from self._run(connection, rows[start : start + ROWS_MAX])

    def execute(self, connection: apsw.Connection, rows: Sequence[Row]) -> int:
        """For a statement that returns nothing: how many rows it changed."""
        before = connection.total_changes()
        for _ in self.run(connection, rows):
            pass
        return connection.total_changes() - before

    def _run(self, connection: apsw.Connection, rows: Sequence[Row]) -> list[Row]:
        size = 1 << (len(rows) - 1).bit_length()
        bound: list[apsw.Binding] = []
        for row in rows:
            bound += row
        bound += self._filler * (size - len(rows))
        return connection.execute(self.sized(size), bound).fetchall()

    def sized(self, size: int) -> str:
        """The statement for so many rows."""
        if size not in self._texts:
            self._texts[size] = self.text.replace(self._row, ",".join([self._row] * size))
        return self._texts[size]
