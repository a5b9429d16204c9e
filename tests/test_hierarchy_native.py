"""The C++ library by itself under the sanitizers, and the extension from several threads."""

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from zeromem import _hierarchy

ROOT = Path(__file__).resolve().parents[1]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


def compiler():
    found = shutil.which(os.environ.get("CXX", "c++")) or shutil.which("g++")
    if found is None:
        pytest.skip("no C++ compiler (set CXX)")
    return found


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)


def build(source, binary):
    """Compile ``source`` with the library under the sanitizers, or skip where they are missing."""
    cxx = compiler()
    probe = binary.with_name("probe.cpp")
    probe.write_text("int main() { return 0; }\n")
    found = run(cxx, *SANITIZERS, str(probe), "-o", str(probe.with_suffix("")))
    if found.returncode or run(str(probe.with_suffix(""))).returncode:
        pytest.skip(f"{cxx} has no working sanitizer runtime: {found.stderr.strip()[-200:]}")
    flags = ["-std=c++17", "-O1", "-g", "-Wall", "-Wextra", "-Werror", *SANITIZERS]
    library = ROOT / "csrc" / "hierarchy.cpp"
    include = f"-I{ROOT / 'csrc'}"
    built = run(cxx, *flags, include, str(source), str(library), "-o", str(binary))
    assert built.returncode == 0, built.stderr


def test_sanitizers_find_nothing(tmp_path):
    binary = tmp_path / "hierarchy_test"
    build(ROOT / "tests" / "hierarchy_test.cpp", binary)
    found = run(str(binary))
    assert found.returncode == 0, found.stderr
    assert found.stdout == "ok\n"


def test_sanitizers_find_a_read_past_the_end(tmp_path):
    source = tmp_path / "wrong.cpp"
    source.write_text(
        '#include "hierarchy.hpp"\n'
        "int main() {\n"
        "    const std::vector<std::int64_t> indptr{0, 8};\n"
        "    const std::vector<float> vectors(7 * 4, 1.0F);  // one row is missing\n"
        "    const std::vector<float> weights(8, 1.0F);\n"
        "    const std::vector<std::int64_t> times(16, zeromem::kNoTime);\n"
        "    zeromem::similarities({indptr.data(), 1}, {vectors.data(), 4}, weights.data(),\n"
        "                          times.data(), 3, 0);\n"
        "}\n"
    )
    binary = tmp_path / "wrong"
    build(source, binary)
    found = run(str(binary))
    assert found.returncode != 0
    assert "heap-buffer-overflow" in found.stderr


def test_threads_share_arrays(rng):
    rows = np.arange(6000, dtype=np.int32)
    previous = np.where(rows % 60 == 0, np.int32(-1), rows - np.int32(1))
    last, length = rows[59::60].copy(), np.full(100, 60, np.int32)
    similarity = rng.random(6000).astype(np.float32)
    times = np.full((6000, 2), np.iinfo(np.int64).min)
    arguments = (previous, last, length, similarity, times, rows[:0], 0.5, 3, 24, 10)
    expected = _hierarchy.segment(*arguments)
    assert len(expected[2]) > 100
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: _hierarchy.segment(*arguments), range(12)):
            for mine, theirs in zip(found, expected, strict=True):
                assert_array_equal(mine, theirs)
