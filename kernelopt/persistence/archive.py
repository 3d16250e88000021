"""The container: a zip of one JSON document and numbered members, `0.npy` an array and `1.json` a list of strings.

Members are stored without compression, so that arrays take no more memory than the file is long. Memory is allocated
only after the sizes that the file claims were checked against each other and against a limit.
"""

from __future__ import annotations

import glob
import hashlib
import io
import json
import os
import re
import secrets
import stat
import struct
import time
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from kernelopt.errors import FormatError
from kernelopt.support.types import Array

try:
    import fcntl
except ImportError:  # on Windows, where files in use can't be deleted
    fcntl = None  # type: ignore[assignment]

DOCUMENT = "kernelopt.json"
CHUNK = 2**20  # bytes per read: larger reads make larger copies, smaller ones more calls
LONGEST_READ = 2**22  # bytes: the zip's directory is one read, and this is room for tens of thousands of members
# Bytes of Python objects per byte of JSON: lists and objects of few entries take about 20 to 40, numbers and strings
# much less.
JSON_WEIGHT = 40
EPOCH = (1980, 1, 1, 0, 0, 0)  # the date of all members, so that the same contents give the same bytes
KINDS = "biufcU"  # numpy's kinds of dtypes that a file may hold: numbers and strings; objects would need pickle
LARGEST_ITEM = {"f": 8, "c": 16}  # bytes per number; longer floating-point types differ between platforms
# Columns that an array without rows may have: their number costs a file nothing, but whoever makes an array for each of
# them, as kernels on columns do. Larger values are a way to exhaust memory, smaller ones may refuse θ = 0 on wide data.
MOST_OF_NOTHING = 2**20
STALE = 60.0  # seconds after which an incomplete file that nobody has open is deleted
MESSAGE = 300  # characters of a wrong value that an error repeats, since a file may hold values of any length
# The header of numpy's format 1.0 exactly as numpy writes it: numpy's own reader would parse any Python literal.
HEADER = re.compile(
    rb"\{'descr': '([<>|])([biufcU])([1-9]\d{0,8})', 'fortran_order': (True|False), 'shape': \(([\d, ]*)\), \} *\n"
)
NAME = re.compile(r"(0|[1-9]\d{0,8})\.(npy|json)")
# What zipfile, json and numpy raise for broken contents.
_BROKEN = (zipfile.BadZipFile, NotImplementedError, RuntimeError, TypeError, ValueError, EOFError, LookupError, OSError,
           OverflowError, struct.error)  # fmt: skip


def shortened(text: object) -> str:
    """A value as text, short enough for a message."""
    found = str(text)
    return found if len(found) <= MESSAGE else found[: MESSAGE - 1] + "…"


# ---------------------------------------------------------------- writing


def write(path: Any, document: Any, members: Sequence[Array | list[str]]) -> None:
    """Write an archive completely or not at all."""
    with replaced(path) as file, zipfile.ZipFile(file, "w") as archive:
        _write_text(archive, DOCUMENT, document)
        for number, member in enumerate(members):
            if isinstance(member, list):
                _write_text(archive, f"{number}.json", member)
                continue
            with archive.open(zipfile.ZipInfo(f"{number}.npy", EPOCH), "w", force_zip64=True) as out:
                np.lib.format.write_array(out, member, version=(1, 0), allow_pickle=False)


@contextmanager
def replaced(path: Any) -> Iterator[Any]:
    """A new file beside the one of that name, which it replaces once it is complete.

    Raises OSError where something other than a file has that name.
    """
    target = Path(os.path.realpath(path))
    old = _of_old_file(target)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"Expected a file in a folder that exists; got {target}.")
    mark = f".ko-{hashlib.sha256(os.fsencode(target.name)).hexdigest()[:16]}-"  # short, whatever the target's name
    _sweep(target.parent, mark)
    beside = target.with_name(mark + secrets.token_hex(8))
    try:
        with open(beside, "xb") as file:
            _lock(file.fileno())
            yield file
            if old is not None:
                os.chmod(beside, stat.S_IMODE(old.st_mode))
            # Contents reach the disk before the name does: a crash leaves the old file or the new one, no part of it.
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, target)
    finally:
        beside.unlink(missing_ok=True)


def _of_old_file(target: Path) -> os.stat_result | None:
    """The status of the file that is to be replaced; None where there is none."""
    try:
        found = os.stat(target)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(f"Expected the name of a file; {target} is a directory.")
    if not stat.S_ISREG(found.st_mode):
        raise OSError(f"Expected the name of a file; {target} is a device, a pipe or a socket, which is not replaced.")
    return found


def _sweep(folder: Path, mark: str) -> None:
    """Delete files that earlier calls for the same target left when they were killed."""
    for left in folder.glob(glob.escape(mark) + "*"):
        with suppress(OSError):  # in use, as Windows tells, or gone
            if time.time() - left.stat().st_mtime > STALE:
                with open(left, "rb") as file:
                    free = _lock(file.fileno())
                if free:
                    left.unlink()


def _lock(descriptor: int) -> bool:
    """Mark an open file as in use until it is closed; return whether nobody else has."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _write_text(archive: zipfile.ZipFile, name: str, content: Any) -> None:
    archive.writestr(zipfile.ZipInfo(name, EPOCH), json.dumps(content, allow_nan=False, separators=(",", ":")))


# ---------------------------------------------------------------- reading


class _ShortReads(io.BufferedReader):
    """A file that refuses long reads: `zipfile` asks for one only where the file claims a wrong size."""

    def read(self, size: int | None = -1, /) -> bytes:
        wanted = LONGEST_READ + 1 if size is None or size < 0 else size
        content = super().read(min(wanted, LONGEST_READ + 1))
        if len(content) > LONGEST_READ:
            raise FormatError(f"Expected a directory of at most {LONGEST_READ} bytes; the file claims more.")
        return content


@contextmanager
def _as_format_errors(what: str) -> Iterator[None]:
    try:
        yield
    except FormatError:
        raise
    except _BROKEN as error:
        raise FormatError(f"Expected {what}; got one that can't be read: {shortened(error)}.") from error


class Archive:
    """A file that was opened, with names and sizes of its members checked; each member is read once.

    Raises FormatError wherever the file is not as expected, and OSError where there is no such file.
    """

    def __init__(self, path: Any, max_bytes: int) -> None:
        self._limit = max_bytes
        # Without O_NONBLOCK, opening a pipe would wait for somebody who writes to it.
        self._file = _ShortReads(
            io.FileIO(os.fspath(path), opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0)))
        )
        try:
            if not stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
                raise FormatError("Expected a file; got a device, a pipe or a socket.")
            with _as_format_errors("a file of kernelopt, a zip"):
                self._zip = zipfile.ZipFile(self._file)
            self._sizes = self._checked(self._zip.infolist(), os.fstat(self._file.fileno()).st_size)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _checked(self, infos: list[zipfile.ZipInfo], length: int) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for info in infos:
            name = info.filename
            if name in sizes:
                raise FormatError(f"Expected each member once; got {shortened(name)!r} twice.")
            if name != DOCUMENT and not NAME.fullmatch(name):
                raise FormatError(f"Expected members {DOCUMENT}, 0.npy, 1.json, …; got {shortened(repr(name))}.")
            if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size or info.flag_bits & 1:
                raise FormatError(f"Expected members stored as they are; {name} is compressed or encrypted.")
            sizes[name] = info.file_size
        if DOCUMENT not in sizes:
            raise FormatError(f"Expected a file of kernelopt, with a member {DOCUMENT}; there is none.")
        if sum(sizes.values()) > length:
            raise FormatError(f"Expected members of at most {length} bytes, the file's length; the file claims more.")
        needed = sum(size * (JSON_WEIGHT if name.endswith("json") else 1) for name, size in sizes.items())
        if needed > self._limit:
            raise FormatError(
                f"Expected contents of at most {self._limit} bytes in memory; these may take {needed}. If you trust "
                f"the file, write ko.load(path, max_bytes={needed})."
            )
        return sizes

    def document(self) -> Any:
        """The JSON document, decoded."""
        return self._text(DOCUMENT)

    def array(self, number: int) -> Array:
        """An array, bit for bit as it was saved."""
        name = f"{number}.npy"
        size = self._taken(name)
        with _as_format_errors(f"an array in {name}"), self._zip.open(name) as file:
            kind, item, order, dtype, shape, start = _header(file.read(10), file, name)
            if start + prod(shape) * item != size:
                raise FormatError(
                    f"Expected {start + prod(shape) * item} bytes in {name}, as its header says; got {size}."
                )
            # Read in place and in chunks: one read of all bytes would hold them twice.
            content = np.empty(size - start, dtype=np.uint8)
            view = content.data
            for at in range(0, len(content), CHUNK):
                view[at : at + CHUNK] = file.read(min(CHUNK, len(content) - at))
            array = content.view(dtype).reshape(shape, order=order)
            _check_items(content, kind, dtype, name)
            return array

    def strings(self, number: int) -> list[str]:
        """A list of strings."""
        name = f"{number}.json"
        self._taken(name)
        found = self._text(name)
        if not isinstance(found, list) or not all(isinstance(s, str) for s in found):
            raise FormatError(f"Expected a list of strings in {name}; got something else.")
        return found

    def require_all_read(self) -> None:
        """Raise FormatError where a member was not read, since the document does not refer to it."""
        left = [name for name in self._sizes if name != DOCUMENT]
        if left:
            raise FormatError(f"Expected members that {DOCUMENT} refers to; got {left[0]}, to which it does not.")

    def _taken(self, name: str) -> int:
        if name not in self._sizes:
            raise FormatError(f"Expected a member {shortened(name)}, referred to once; there is none, or it was read.")
        return self._sizes.pop(name)

    def _text(self, name: str) -> Any:
        with _as_format_errors(f"JSON in {name}"):
            with self._zip.open(name) as file:
                content = b"".join(iter(lambda: file.read(CHUNK), b""))
            return json.loads(content.decode(), object_pairs_hook=_object, parse_constant=_refuse_constant)


def _header(start: bytes, file: Any, name: str) -> tuple[str, int, Any, np.dtype[Any], tuple[int, ...], int]:
    """Kind, item size, order, dtype, shape, and the start of the data, of a header as numpy's format 1.0 writes it."""
    length = int.from_bytes(start[8:], "little")
    text = file.read(length) if start[:8] == b"\x93NUMPY\x01\x00" else b""
    found = HEADER.fullmatch(text)
    if found is None or len(text) != length:
        raise FormatError(f"Expected a .npy header of numbers or strings in {name}; got {shortened(start + text)}.")
    endian, kind, size = found[1].decode(), found[2].decode(), int(found[3])
    dtype = np.dtype(f"{endian}{kind}{size}")
    if size > LARGEST_ITEM.get(kind, size):
        raise FormatError(f"Expected numbers that all machines have in {name}; got {dtype}.")
    # Eighteen digits per dimension fit 64 bits; the product of all of them is compared with the member's size later.
    words = [word.strip() for word in found[5].decode().split(",")]
    if any(not word for word in words[:-1]) or any(len(word) > 18 or not word.isdigit() for word in words if word):
        raise FormatError(f"Expected a shape in the header of {name}; got {shortened(found[5])}.")
    shape = tuple(int(word) for word in words if word)
    if 0 in shape and max(shape) > MOST_OF_NOTHING:
        raise FormatError(
            f"Expected at most {MOST_OF_NOTHING} columns of an array without rows in {name}; got {shape}."
        )
    return kind, dtype.itemsize, "F" if found[4] == b"True" else "C", dtype, shape, 10 + length


def _check_items(content: Array, kind: str, dtype: np.dtype[Any], name: str) -> None:
    """Raise FormatError for truth values other than 0 and 1, and for numbers above the last code point of Unicode."""
    if kind == "b" and content.max(initial=0) > 1:
        raise FormatError(f"Expected truth values in {name}; got {content.max()}.")
    if kind == "U":
        points = content.view(np.dtype(np.uint32).newbyteorder(dtype.byteorder))
        if points.max(initial=0) > 0x10FFFF:
            raise FormatError(f"Expected characters in {name}; got the number {points.max()}.")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise FormatError("Expected each name once in a JSON object; got one twice.")
    return found


def _refuse_constant(name: str) -> Any:
    raise FormatError(f"Expected finite numbers in JSON; got {name}.")
