"""Arrow arrays from places in a segment's bytes, many at once. Pure.

Numbers of fixed width are gathered by numpy and handed over without a copy. Values with a length of their own (a key, a
content) are cut out by Arrow: one binary array over the segment's bytes has the wanted values and the bytes between
them as its elements, and taking every other element copies the wanted ones, one ``memcpy`` each.
"""

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from syncbrok.log.format.codec import Buffer
from syncbrok.log.format.layout import HEADER, ID_BYTES

Array = npt.NDArray[Any]

_HEX = np.frombuffer(b"".join(b"%02x%02x" % (number & 0xFF, number >> 8) for number in range(1 << 16)), dtype="<u4")
"""four hexadecimal digits for each two bytes as they stand"""
_UUID_CHARS = 36
_HEADER_FIELDS: dict[str, Any] = dict(HEADER.fields or {})
_PAIRS_AT = (0, 4, 9, 14, 19, 24, 28, 32)
"""where the digits of each two bytes stand in a UUID's text"""
_DASH = ord("-")
_SAME_BYTES_MAX = 64
_RUN_ROWS = 128
"""from so many neighbours of one name on, copying the name for all of them costs less than looking it up for each"""
_NUMBERS: dict[int, np.dtype[Any]] = {32: np.dtype("<i4"), 64: np.dtype("<i8")}


def gather_field(buffer: Buffer, offsets: Array, dtype: Any, at: int = 0) -> Array:
    """The values of ``dtype`` that stand ``at`` bytes after ``offsets``, anywhere in ``buffer``."""
    if not len(offsets):
        return np.empty(0, dtype)
    kind = np.dtype(dtype)
    raw = np.dtype(("V", kind.itemsize)) if kind.names else kind
    places = np.ndarray(len(buffer) - kind.itemsize - at + 1, raw, buffer, at, (1,))
    return places[offsets].view(kind)


def gather_header(buffer: Buffer, offsets: Array, name: str) -> Array:
    """One field of the headers of the records at ``offsets``."""
    dtype, at = _HEADER_FIELDS[name][:2]
    return gather_field(buffer, offsets, dtype, at)


def numbers(values: Array, kind: pa.DataType, valid: Array | None = None) -> pa.Array:
    """An Arrow array of a type of fixed width; null where not ``valid``."""
    dtype = _NUMBERS[kind.bit_width]
    if values.dtype.kind == "u" and values.dtype.itemsize == dtype.itemsize:
        values = values.view(dtype)
    plain = np.ascontiguousarray(values, dtype)
    mask = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind, len(plain), [mask, pa.py_buffer(plain)])


def flags(values: Array) -> pa.Array:
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(np.packbits(values, bitorder="little"))])


def cut(data: pa.Buffer, starts: Array, ends: Array, valid: Array | None = None) -> pa.Array:
    """The bytes from each start to its end, which go up and do not overlap, as a binary array; null where not
    ``valid``."""
    count = len(starts)
    if not count:
        return pa.array([], pa.binary())
    borders = np.empty(2 * count, dtype=np.int32)
    borders[0::2] = starts
    borders[1::2] = ends
    places = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(borders), data])
    return places.take(numbers(np.arange(0, 2 * count, 2, dtype=np.int32), pa.int32(), valid))


def text(values: pa.Array) -> pa.Array:
    """Bytes as text. Bytes that are not UTF-8 (a header may bring any) are replaced, as Spark would show them."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        parts = values.dictionary_encode()
        known = [None if one is None else one.decode("utf-8", "replace") for one in parts.dictionary.to_pylist()]
        return pa.array(known, pa.string()).take(parts.indices)


def uuid_text(ids: Array, valid: Array | None = None) -> pa.Array:
    """Ids (``V16``) as people and headers carry them; null where not ``valid``."""
    count = len(ids)
    pairs = np.ascontiguousarray(ids).view("<u2").reshape(count, ID_BYTES // 2).T.copy()
    out = np.full(count * _UUID_CHARS, _DASH, dtype=np.uint8)
    if count:
        for pair, at in zip(pairs, _PAIRS_AT, strict=True):
            np.ndarray(count, "<u4", out.data, at, (_UUID_CHARS,))[:] = _HEX.take(pair)
    ends = np.arange(0, (count + 1) * _UUID_CHARS, _UUID_CHARS, dtype=np.int32)
    mask = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(pa.string(), count, [mask, pa.py_buffer(ends), pa.py_buffer(out)])


def same_text(buffer: Buffer, starts: Array, ends: Array) -> bytes | None:
    """The bytes from each start to its end if they are the same everywhere and short; else None."""
    length = int(ends[0] - starts[0])
    if length > _SAME_BYTES_MAX or not (ends - starts == length).all():
        return None
    if not length:
        return b""
    # All of them as one string beside the first so many times: compared as fast as memory is read.
    found = gather_field(buffer, starts, np.dtype(("V", length))).tobytes()
    return found[:length] if found == found[:length] * len(starts) else None


def spread(items: Array) -> tuple[Array, Array]:
    """Two columns with a row for each item: the number of the thing that has it, and its position there. ``items``: how
    many each thing has."""
    if not items.any():
        return np.empty(0, np.int64), np.empty(0, np.int64)
    list_places = np.repeat(np.arange(len(items)), items)
    ends = np.cumsum(items, dtype=np.int64)
    return list_places, np.arange(len(list_places)) - (ends - items)[list_places]


@lru_cache(maxsize=64)
def repeated(value: str | None, count: int) -> pa.Array:
    """An array of ``count`` times the same text. Arrays never change and batches are of one size, so each is made
    once."""
    return pa.repeat(pa.scalar(value, pa.string()), count)


@lru_cache(maxsize=64)
def nothing(kind: pa.DataType, count: int) -> pa.Array:
    """An array of ``count`` nulls."""
    return pa.nulls(count, kind)


@lru_cache(maxsize=64)
def empties(kind: pa.DataType, count: int) -> pa.Array:
    """An array of ``count`` empty lists or maps."""
    return pa.array([[]], kind).take(pa.array(np.zeros(count, dtype=np.int32)))


def lists(items: Array, values: pa.Array) -> pa.Array:
    """An array of lists with so many ``items`` each, of ``values`` that stand one after the other."""
    if not len(values):
        return empties(pa.list_(values.type), len(items))
    borders = np.zeros(len(items) + 1, dtype=np.int32)
    np.cumsum(items, dtype=np.int32, out=borders[1:])
    return pa.ListArray.from_arrays(pa.array(borders), values)


class NameLookup:
    """Looks up names by their numbers: queues, subscribers, the values of an enum."""

    def __init__(self, names: dict[int, str]) -> None:
        self._by_code = names
        self._names = pa.array([*names.values(), None], pa.string())
        nameless = len(names)
        self._places = np.full(max(names, default=-1) + 2, nameless, dtype=np.int32)
        self._places[list(names)] = np.arange(nameless, dtype=np.int32)

    def has(self, codes: Array) -> bool:
        """True if each of ``codes`` has a name."""
        if _alike(codes):
            return int(codes[0]) in self._by_code
        return not len(codes) or int(self._at(codes).max()) < len(self._names) - 1

    def take(self, codes: Array) -> pa.Array:
        """The name of each; null where it has none."""
        borders = np.flatnonzero(codes[1:] != codes[:-1]) + 1
        if len(borders) * _RUN_ROWS > len(codes) or not len(codes):
            return self._names.take(numbers(self._at(codes), pa.int32()))
        # Messages published together stand in the log together: a few names, each many times.
        starts, ends = [0, *borders.tolist()], [*borders.tolist(), len(codes)]
        runs = [self._run(int(codes[start]), end - start) for start, end in zip(starts, ends, strict=True)]
        return runs[0] if len(runs) == 1 else pa.concat_arrays(runs)

    def _run(self, code: int, length: int) -> pa.Array:
        """An array of one name, ``length`` times."""
        return repeated(self._by_code.get(code), 1 << (length - 1).bit_length()).slice(0, length)

    def _at(self, codes: Array) -> Array:
        return self._places.take(codes, mode="clip")

    def among(self, codes: Array, wanted: frozenset[str]) -> Array:
        """For each of ``codes``: true if its name is one of those wanted."""
        good = np.array([name in wanted for name in self._names.to_pylist()], dtype=np.bool_)
        return good[self._at(codes)]


def _alike(codes: Array) -> bool:
    return bool(len(codes)) and bool((codes == codes[0]).all())
