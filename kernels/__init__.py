"""The hot array operations: ``<op>_ref`` (NumPy float64 oracle), ``<op>_cpu`` (Numba), ``<op>_gpu``.

Every operation has one signature in all its files. Nothing here knows about memories or devices.
"""
