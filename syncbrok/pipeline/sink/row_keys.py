"""The idempotency keys of rows: what makes the same row the same message, whoever publishes it again. Pure.

A key comes from the columns that say where a row is from: the one that the option keyColumn names, idempotency_key, or
those of a source whose rows have a known place, which ``PLACES`` lists. Then it is the same on any number of cores.
Only where the option ``keys`` says ``position`` is it made of a row's position in its partition.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from syncbrok.model.errors import BadSetting
from syncbrok.pipeline.sink.publisher import BadRow

KEY: Final = "idempotency_key"
PLACES: Final = (("log", "sequence", "position"), ("log", "sequence"), ("topic", "partition", "offset"))
"""columns that together name a row for ever: of this format, and of Kafka's"""


class KeyRule(NamedTuple):
    """The columns whose values are a row's key, behind ``prefix``. ``by_position``: a row without values has a key
    made of its position."""

    columns: tuple[str, ...]
    by_position: bool = False
    prefix: str = ""

    def key(self, row: Mapping[str, Any], position: str) -> str:
        """The key of a row, by the names of its columns; ``position`` names its place. Raises ``BadRow``."""
        values = [row.get(name) for name in self.columns]
        empty = next((name for name, value in zip(self.columns, values, strict=True) if value in (None, "")), None)
        if self.columns and empty is None:
            return self.prefix + "/".join(map(str, values))
        if self.by_position:
            return position
        raise BadRow(f"its key column {empty!r} is empty")


def choose_keys(names: Sequence[str], key_column: str | None, run: str | None, *, by_position: bool) -> KeyRule:
    """The rule for rows with columns of these ``names``. Raises ``BadSetting`` where nothing says which row is which:
    keys that another number of cores, or a shuffle, changes would let a repetition publish rows twice."""
    if key_column is not None:
        if by_position:
            raise BadSetting("keyColumn and keys=position are two ways to make keys: give one")
        if key_column not in names:
            raise BadSetting(f"the option keyColumn names {key_column!r}, which is no column")
        return KeyRule((key_column,))
    if KEY in names:
        return KeyRule((KEY,), by_position)
    if by_position:
        return KeyRule((), by_position=True)
    for place in PLACES:
        if set(place) <= set(names):
            return KeyRule(place, prefix=f"{run}/" if run else "")
    raise BadSetting(
        "nothing says which row is which, so a repeated task would publish rows twice: name a column whose values are "
        f"unique with the option keyColumn, or keep the columns that say where rows are from ({_places()}), or take "
        "their positions, which another number of cores or a shuffle changes: keys=position"
    )


def _places() -> str:
    return "; ".join(" and ".join((", ".join(place[:-1]), place[-1])) for place in PLACES[1:])
