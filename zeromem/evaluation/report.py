"""Where and with what a figure was made."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "zeromem", "numpy", "scipy", "numba", "torch", "transformers", "spacy", "bm25s",
    "PyStemmer", "FlagEmbedding", "cupy-cuda13x", "igraph", "openai", "llama-cpp-python",
)  # fmt: skip


def commit() -> str | None:
    """Return the repository's commit, marked where the tree differs from it; None outside git."""
    if not (ROOT / ".git").exists():
        return None  # an installed package may lie in somebody else's repository
    try:
        head = _git("rev-parse", "HEAD")
        return head + ("-dirty" if _git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True, timeout=30
    )
    return done.stdout.strip()


def versions() -> dict[str, str]:
    """Return Python's version and those of the packages that are installed."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def hardware(device: str) -> dict[str, Any]:
    """Describe the machine as far as timings depend on it."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count()
    return {
        "device": device,
        "gpu": _gpu(),
        "cpu": _cpu(),
        "cores": cores,
        "system": f"{platform.system()} {platform.machine()}",
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor() or "unknown"


def _gpu() -> str | None:
    torch = sys.modules.get("torch")  # never loaded for the report's sake
    if torch is None or not torch.cuda.is_available():
        return None
    return str(torch.cuda.get_device_name(0))
