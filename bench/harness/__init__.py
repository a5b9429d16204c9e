"""What the benchmarks share: data sets, metrics, methods and the report.

Scripts under ``bench/`` run as ``python bench/NAME.py``, which puts ``bench/`` and not the
repository root on ``sys.path``.
"""
