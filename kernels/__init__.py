"""The hot array operations, one signature in all forms.

``<op>_ref`` is the NumPy float64 oracle, ``<op>_cpu`` Numba, ``<op>_gpu`` the device's form.
Nothing here knows about memories or devices.
"""
