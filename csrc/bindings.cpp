// Python bindings of the hierarchy: the only file that knows pybind11.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include "hierarchy.hpp"

namespace py = pybind11;

PYBIND11_MODULE(_hierarchy, m) { m.doc() = "Hierarchy spans (eq. 5)."; }
