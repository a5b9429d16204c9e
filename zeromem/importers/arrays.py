"""The elements of a JSON array, one at a time, from a file of any size."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from typing import IO, Any, Final, NoReturn

from zeromem.errors import ImportFormatError

CHUNK: Final = 1 << 20
# Longest tail of a text that may be the beginning of a token other than a string: "-Infinity",
# a \u escape, a number's fraction. Errors and values that end earlier are what they seem.
_TAIL: Final = 16
_SPACE: Final = " \t\n\r"


def no_constant(name: str) -> NoReturn:
    """Refuse NaN and infinities, which Python's parser would read."""
    raise ValueError(f"{name} is not JSON; write null or a string")


def elements(file: IO[bytes], chunk: int = CHUNK) -> Iterator[tuple[str, Any]]:
    """Read the elements of the array that a file consists of.

    Parameters
    ----------
    file : binary file
        Standing before the array.
    chunk : int
        Bytes to read at a time; the element being read is held beside it.

    Yields
    ------
    where : str
        "record 1" and so on.
    element : object
        The parsed value.

    Raises
    ------
    ImportFormatError
        Naming the element at which the file is not JSON or not UTF-8.
    """
    reader = _Reader(file, chunk)
    number = 0
    try:
        reader.skip("[")
        while reader.peek() != "]" or number:
            yield f"record {number + 1}", reader.value()
            number += 1
            if reader.peek() != ",":
                break
            reader.skip(",")
        reader.skip("]")
        if reader.peek():
            raise ValueError("something follows the array")
    except RecursionError:
        raise ImportFormatError(f"record {number + 1}: not JSON: nested too deeply") from None
    except ValueError as error:
        raise ImportFormatError(f"record {number + 1}: not JSON: {error}") from None


class _Reader:
    """A window of text that moves over a file and grows to hold one value."""

    def __init__(self, file: IO[bytes], chunk: int) -> None:
        self._file = file
        self._chunk = chunk
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._parse = json.JSONDecoder(parse_constant=no_constant).raw_decode
        self._text = ""
        self._at = 0
        self._gone = 0
        self._ended = False

    def _more(self) -> None:
        """Read on; what is left doubles, so that a long value is tried a few times only."""
        left = self._text[self._at :]
        self._gone += self._at
        data = self._file.read(max(self._chunk, len(left)))
        self._ended = not data
        self._text = left + self._decode(data, self._ended)
        self._at = 0

    def peek(self) -> str:
        """Return the next character that is no space; "" at the end of the file."""
        while True:
            while self._at < len(self._text):
                if self._text[self._at] not in _SPACE:
                    return self._text[self._at]
                self._at += 1
            if self._ended:
                return ""
            self._more()

    def skip(self, expected: str) -> None:
        """Go past a character that has to come next."""
        if (found := self.peek()) != expected:
            raise ValueError(f"expected {expected!r}, found {found or 'the end of the file'!r}")
        self._at += 1

    def value(self) -> Any:
        """Read one value."""
        self.peek()
        while True:
            near_end = max(self._at, len(self._text) - _TAIL)
            try:
                found, end = self._parse(self._text, self._at)
            except json.JSONDecodeError as error:
                cut = error.pos >= near_end or error.msg.startswith("Unterminated string")
                if self._ended or not cut:
                    place = self._gone + error.pos
                    raise ValueError(f"{error.msg} (character {place} of the file)") from None
            else:
                if self._ended or end < near_end:
                    self._at = end
                    return found
            self._more()
