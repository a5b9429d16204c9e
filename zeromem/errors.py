"""Exceptions. Each message names the argument, the value and the fix."""

from __future__ import annotations

import traceback


class ZeroMemError(Exception):
    """Base of every error that zeromem raises on purpose."""


class InvalidInputError(ZeroMemError, ValueError):
    """An argument has a value that cannot be used."""


class StoreError(ZeroMemError):
    """The store on disk cannot be opened, read or written."""


class CorruptStoreError(StoreError):
    """The file is not a zeromem store, or it is damaged."""


class StoreFullError(StoreError):
    """There is no room to write: the disk, a quota or a limit of file sizes is used up."""


class ReadOnlyStoreError(StoreError):
    """The store may only be read: its file, its folder, its disk, or the way it was opened."""


class SchemaTooNewError(StoreError):
    """The store was written by a newer zeromem than this one."""


class TraceNotFoundError(ZeroMemError, LookupError):
    """There is no trace with this id in the scope."""


class DuplicateIdError(ZeroMemError, ValueError):
    """A trace id is already taken by a trace with other content."""


class FingerprintMismatchError(ZeroMemError):
    """The memory was encoded by another model than the one it is opened with."""


class StaleReadError(StoreError):
    """The log changed between two steps of one read; refresh and retry."""


class ModelNotFoundError(ZeroMemError):
    """Model weights were found in no place; the message says what to install."""


class EncoderError(ZeroMemError):
    """An encoder failed, or returned something that is not a finite matrix of its size."""


class ReaderError(ZeroMemError):
    """A reader (the final-QA language model) failed or could not be reached."""


class DeviceError(ZeroMemError):
    """The requested device does not exist or cannot be used."""


class ImportFormatError(ZeroMemError, ValueError):
    """A file to import is malformed; the message names the record and the field."""


class MissingExtraError(ZeroMemError, ImportError):
    """A library that an optional part needs is not installed; the message names the extra."""


def where(error: BaseException) -> str:
    """Return where an error was raised, for a log; not its message, which may quote a user."""
    return "".join(traceback.format_tb(error.__traceback__))


def told(error: BaseException) -> str:
    """Return what a log may say of an error: others' messages may quote what a user said."""
    return str(error) if isinstance(error, ZeroMemError) else type(error).__name__
