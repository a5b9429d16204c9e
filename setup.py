"""The parts of the build that pyproject.toml cannot say: the C++ extension and the mapping."""

from pybind11.setup_helpers import Pybind11Extension, build_ext
from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["zeromem", "zeromem.*"]), "zeromem.kernels"],
    package_dir={"zeromem": "zeromem", "zeromem.kernels": "kernels"},
    package_data={"zeromem": ["py.typed", "*.pyi", "**/*.txt", "**/*.json", "**/*.jsonl"]},
    ext_modules=[
        # No -march=native: a wheel runs on every machine of its platform.
        Pybind11Extension(
            "zeromem._hierarchy",
            sources=["csrc/bindings.cpp", "csrc/hierarchy.cpp"],
            depends=["csrc/hierarchy.hpp"],
            include_dirs=["csrc"],
            cxx_std=17,
            # The same spans on every processor: no fused multiply-add where the compiler likes.
            extra_compile_args=["-ffp-contract=off", "-Wall", "-Wextra"],
        ),
    ],
    cmdclass={"build_ext": build_ext},
)
