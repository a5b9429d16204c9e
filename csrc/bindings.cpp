// Python bindings of the hierarchy: the only file that knows pybind11.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "hierarchy.hpp"

namespace py = pybind11;

namespace {

std::string described(const py::handle& value) {
    if (!py::isinstance<py::array>(value)) return py::str(py::type::handle_of(value));
    const auto array = py::reinterpret_borrow<py::array>(value);
    return std::string(py::str(array.dtype())) + " of shape " +
           std::string(py::str(py::handle(array.attr("shape")))) +
           (array.flags() & py::array::c_style ? "" : ", not C-contiguous");
}

// No silent conversion: a float array of positions is a caller's mistake.
template <typename T>
py::array_t<T> checked(const py::object& value, const char* name, py::ssize_t ndim,
                       const char* wanted) {
    if (py::isinstance<py::array_t<T, py::array::c_style>>(value)) {
        auto array = py::reinterpret_borrow<py::array_t<T>>(value);
        if (array.ndim() == ndim) return array;
    }
    throw py::value_error(std::string(name) + " must be a C-contiguous " + wanted + " array, got " +
                          described(value));
}

void check_at_least(std::int64_t value, std::int64_t low, const char* name) {
    if (value >= low) return;
    throw py::value_error(std::string(name) + " must be at least " + std::to_string(low) +
                          ", got " + std::to_string(value));
}

// A copy, so that nobody changes a checked border while the GIL is released.
std::vector<std::int64_t> checked_indptr(const py::object& value) {
    const auto array = checked<std::int64_t>(value, "session_indptr", 1, "int64 (n_sessions + 1,)");
    const std::vector<std::int64_t> indptr(array.data(), array.data() + array.size());
    if (indptr.empty() || indptr[0] != 0) {
        throw py::value_error("session_indptr must start with 0, got " +
                              (indptr.empty() ? "no entry" : std::to_string(indptr[0])));
    }
    for (std::size_t s = 1; s < indptr.size(); ++s) {
        if (indptr[s] >= indptr[s - 1]) continue;
        throw py::value_error("session_indptr must not decrease, got " +
                              std::to_string(indptr[s - 1]) + " followed by " +
                              std::to_string(indptr[s]) + " at entry " + std::to_string(s));
    }
    if (indptr.back() >= std::numeric_limits<std::int32_t>::max()) {
        throw py::value_error("session_indptr must end below 2**31 - 1, got " +
                              std::to_string(indptr.back()) + "; split the scope");
    }
    return indptr;
}

zeromem::Sessions sessions_of(const std::vector<std::int64_t>& indptr) {
    return {indptr.data(), indptr.size() - 1};
}

void check_rows(const py::array& array, const char* name, std::int64_t n_positions) {
    if (array.shape(0) == n_positions) return;
    throw py::value_error(std::string(name) + " must have one row for each of the " +
                          std::to_string(n_positions) + " positions of session_indptr, got " +
                          std::to_string(array.shape(0)));
}

py::array_t<std::int32_t> to_array(const std::vector<zeromem::Span>& spans) {
    static_assert(sizeof(zeromem::Span) == 2 * sizeof(std::int32_t), "spans are copied as rows");
    py::array_t<std::int32_t> array({static_cast<py::ssize_t>(spans.size()), py::ssize_t{2}});
    if (!spans.empty()) {
        std::memcpy(array.mutable_data(), spans.data(), spans.size() * sizeof(zeromem::Span));
    }
    return array;
}

py::array_t<std::int32_t> windows(const py::object& session_indptr, std::int64_t size) {
    const auto indptr = checked_indptr(session_indptr);
    check_at_least(size, 1, "size");
    std::vector<zeromem::Span> spans;
    {
        py::gil_scoped_release release;
        spans = zeromem::windows(sessions_of(indptr), size);
    }
    return to_array(spans);
}

py::array_t<std::int32_t> episodes(const py::object& session_indptr,
                                   const py::object& window_vectors, const py::object& times,
                                   double depth, std::int64_t min_turns, std::int64_t max_turns,
                                   std::int64_t gap_us, std::int64_t window) {
    const auto indptr = checked_indptr(session_indptr);
    const auto vectors =
        checked<float>(window_vectors, "window_vectors", 2, "float32 (n_positions, dim)");
    const auto periods = checked<std::int64_t>(times, "times", 2, "int64 (n_positions, 2)");
    check_rows(vectors, "window_vectors", indptr.back());
    check_rows(periods, "times", indptr.back());
    if (periods.shape(1) != 2) {
        throw py::value_error("times must have two columns, start and end, got " +
                              std::to_string(periods.shape(1)));
    }
    if (!std::isfinite(depth)) {
        throw py::value_error("depth must be finite, got " + std::to_string(depth));
    }
    check_at_least(min_turns, 1, "min_turns");
    check_at_least(gap_us, 0, "gap_us");
    check_at_least(window, 1, "window");
    if (max_turns < min_turns) {
        throw py::value_error("max_turns must be at least min_turns = " +
                              std::to_string(min_turns) + ", got " + std::to_string(max_turns));
    }
    std::vector<zeromem::Span> spans;
    const zeromem::Vectors rows{vectors.data(), static_cast<std::size_t>(vectors.shape(1))};
    const std::int64_t* const period = periods.data();
    {
        py::gil_scoped_release release;
        spans = zeromem::episodes(sessions_of(indptr), rows, period,
                                  {window, depth, min_turns, max_turns, gap_us});
    }
    return to_array(spans);
}

py::array_t<std::int32_t> local_spans(const py::object& session_indptr, const py::object& positions,
                                      std::int64_t radius) {
    const auto indptr = checked_indptr(session_indptr);
    const auto array = checked<std::int64_t>(positions, "positions", 1, "int64 (k,)");
    const std::vector<std::int64_t> centres(array.data(), array.data() + array.size());
    check_at_least(radius, 0, "radius");
    for (const std::int64_t p : centres) {
        if (p >= 0 && p < indptr.back()) continue;
        throw py::value_error("positions must be in [0, " + std::to_string(indptr.back()) +
                              "), got " + std::to_string(p));
    }
    std::vector<zeromem::Span> spans;
    {
        py::gil_scoped_release release;
        spans = zeromem::local_spans(sessions_of(indptr), centres.data(), centres.size(), radius);
    }
    return to_array(spans);
}

}  // namespace

PYBIND11_MODULE(_hierarchy, m) {
    m.doc() = "Hierarchy spans (eq. 5): windows, episodes and local spans over positions.";
    m.def("windows", &windows, py::arg("session_indptr"), py::arg("size"),
          "One window per position, int32 (n, 2), half-open and clipped to its session.");
    m.def("episodes", &episodes, py::arg("session_indptr"), py::arg("window_vectors"),
          py::arg("times"), py::arg("depth"), py::arg("min_turns"), py::arg("max_turns"),
          py::arg("gap_us"), py::arg("window") = 3,
          "A partition of every session into episodes, int32 (m, 2), half-open, in order.");
    m.def("local_spans", &local_spans, py::arg("session_indptr"), py::arg("positions"),
          py::arg("radius"), "The positions around each position, int32 (k, 2), half-open.");
}
