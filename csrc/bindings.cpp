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

void check_rows(const py::array& array, const char* name, std::int64_t n, const char* of) {
    if (array.shape(0) == n) return;
    throw py::value_error(std::string(name) + " must have one row for each of the " +
                          std::to_string(n) + " " + of + ", got " + std::to_string(array.shape(0)));
}

void check_positions(const py::array& array, const char* name, std::int64_t n_positions) {
    check_rows(array, name, n_positions, "positions of session_indptr");
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

template <typename T>
py::array_t<T> to_vector(const std::vector<T>& values) {
    return py::array_t<T>(static_cast<py::ssize_t>(values.size()), values.data());
}

void check_periods(const py::array& times) {
    if (times.shape(1) == 2) return;
    throw py::value_error("times must have two columns, start and end, got " +
                          std::to_string(times.shape(1)));
}

void check_options(double depth, std::int64_t min_turns, std::int64_t max_turns,
                   std::int64_t gap_us) {
    if (!std::isfinite(depth)) {
        throw py::value_error("depth must be finite, got " + std::to_string(depth));
    }
    check_at_least(min_turns, 1, "min_turns");
    check_at_least(gap_us, 0, "gap_us");
    if (max_turns < min_turns) {
        throw py::value_error("max_turns must be at least min_turns = " +
                              std::to_string(min_turns) + ", got " + std::to_string(max_turns));
    }
}

py::array_t<double> norms(const py::object& spans, const py::object& vectors,
                          const py::object& weights) {
    const auto ranges = checked<std::int32_t>(spans, "spans", 2, "int32 (m, 2)");
    const auto rows = checked<float>(vectors, "vectors", 2, "float32 (n, dim)");
    const auto scale = checked<float>(weights, "weights", 1, "float32 (n,)");
    const std::int64_t n = rows.shape(0);
    check_rows(scale, "weights", n, "rows of vectors");
    if (ranges.shape(1) != 2) {
        throw py::value_error("spans must have two columns, start and stop, got " +
                              std::to_string(ranges.shape(1)));
    }
    std::vector<zeromem::Span> copied;
    copied.reserve(static_cast<std::size_t>(ranges.shape(0)));
    for (py::ssize_t i = 0; i < ranges.shape(0); ++i) {
        const zeromem::Span span{ranges.at(i, 0), ranges.at(i, 1)};
        if (span.start < 0 || span.stop < span.start || span.stop > n) {
            throw py::value_error("spans must lie within [0, " + std::to_string(n) + "), got [" +
                                  std::to_string(span.start) + ", " + std::to_string(span.stop) +
                                  ")");
        }
        copied.push_back(span);
    }
    const zeromem::Vectors held{rows.data(), static_cast<std::size_t>(rows.shape(1))};
    const float* const weight = scale.data();
    std::vector<double> found;
    {
        py::gil_scoped_release release;
        found = zeromem::norms(copied, held, weight);
    }
    return to_vector(found);
}

py::array_t<float> similarities(const py::object& session_indptr, const py::object& vectors,
                                const py::object& weights, const py::object& times,
                                std::int64_t window, std::int64_t gap_us) {
    const auto indptr = checked_indptr(session_indptr);
    const auto rows = checked<float>(vectors, "vectors", 2, "float32 (n_positions, dim)");
    const auto scale = checked<float>(weights, "weights", 1, "float32 (n_positions,)");
    const auto periods = checked<std::int64_t>(times, "times", 2, "int64 (n_positions, 2)");
    check_positions(rows, "vectors", indptr.back());
    check_positions(scale, "weights", indptr.back());
    check_positions(periods, "times", indptr.back());
    check_periods(periods);
    check_at_least(window, 1, "window");
    check_at_least(gap_us, 0, "gap_us");
    const zeromem::Vectors held{rows.data(), static_cast<std::size_t>(rows.shape(1))};
    const float* const weight = scale.data();
    const std::int64_t* const period = periods.data();
    std::vector<float> found;
    {
        py::gil_scoped_release release;
        found = zeromem::similarities(sessions_of(indptr), held, weight, period, window, gap_us);
    }
    return to_vector(found);
}

zeromem::Paths checked_paths(const py::array_t<std::int32_t>& previous,
                             const py::array_t<std::int32_t>& last,
                             const py::array_t<std::int32_t>& length) {
    check_rows(length, "length", last.shape(0), "paths of last");
    const py::ssize_t n = previous.shape(0);
    const std::int32_t* const end = last.data();
    for (py::ssize_t i = 0; i < last.shape(0); ++i) {
        if (end[i] >= 0 && end[i] < n) continue;
        throw py::value_error("last must be in [0, " + std::to_string(n) + "), got " +
                              std::to_string(end[i]));
    }
    return {previous.data(), end, length.data(), static_cast<std::size_t>(last.shape(0))};
}

py::tuple segment(const py::object& previous, const py::object& last, const py::object& length,
                  const py::object& similarity, const py::object& times,
                  const py::object& episode_of, double depth, std::int64_t min_turns,
                  std::int64_t max_turns, std::int64_t gap_us) {
    const auto links = checked<std::int32_t>(previous, "previous", 1, "int32 (n,)");
    const auto ends = checked<std::int32_t>(last, "last", 1, "int32 (k,)");
    const auto most = checked<std::int32_t>(length, "length", 1, "int32 (k,)");
    const auto alike = checked<float>(similarity, "similarity", 1, "float32 (n,)");
    const auto periods = checked<std::int64_t>(times, "times", 2, "int64 (n, 2)");
    const auto old = checked<std::int32_t>(episode_of, "episode_of", 1, "int32 (start,)");
    const zeromem::Paths sessions = checked_paths(links, ends, most);
    const std::int64_t n = links.shape(0);
    check_rows(alike, "similarity", n, "rows of previous");
    check_rows(periods, "times", n, "rows of previous");
    check_periods(periods);
    if (old.shape(0) > n) {
        throw py::value_error("episode_of must have at most the " + std::to_string(n) +
                              " rows of previous, got " + std::to_string(old.shape(0)));
    }
    check_options(depth, min_turns, max_turns, gap_us);
    zeromem::Changes changes;
    const float* const values = alike.data();
    const std::int64_t* const period = periods.data();
    const std::int32_t* const was = old.data();
    const auto start = static_cast<std::int32_t>(old.shape(0));
    {
        py::gil_scoped_release release;
        changes = zeromem::segment(sessions, values, period, was, start,
                                   {depth, min_turns, max_turns, gap_us});
    }
    return py::make_tuple(to_vector(changes.moved), to_vector(changes.episode),
                          to_vector(changes.changed), to_vector(changes.indptr),
                          to_vector(changes.members), to_vector(changes.cleared));
}

py::array_t<std::int32_t> paths(const py::object& previous, const py::object& last,
                                const py::object& length) {
    const auto links = checked<std::int32_t>(previous, "previous", 1, "int32 (n,)");
    const auto ends = checked<std::int32_t>(last, "last", 1, "int32 (k,)");
    const auto most = checked<std::int32_t>(length, "length", 1, "int32 (k,)");
    const zeromem::Paths wanted = checked_paths(links, ends, most);
    std::vector<std::int32_t> rows;
    {
        py::gil_scoped_release release;
        rows = zeromem::paths(wanted);
    }
    return to_vector(rows);
}

}  // namespace

PYBIND11_MODULE(_hierarchy, m) {
    m.doc() = "The hierarchy (eq. 5): windows and episodes.";
    m.def("windows", &windows, py::arg("session_indptr"), py::arg("size"),
          "One window per position, int32 (n, 2), half-open and clipped to its session.");
    m.def("norms", &norms, py::arg("spans"), py::arg("vectors"), py::arg("weights"),
          "Norms of the weighted sums of spans of rows, float64 (m,).");
    m.def("similarities", &similarities, py::arg("session_indptr"), py::arg("vectors"),
          py::arg("weights"), py::arg("times"), py::arg("window"), py::arg("gap_us"),
          "Cosine of the windows on either side of the gap behind each position, float32 (n,).");
    m.def("segment", &segment, py::arg("previous"), py::arg("last"), py::arg("length"),
          py::arg("similarity"), py::arg("times"), py::arg("episode_of"), py::arg("depth"),
          py::arg("min_turns"), py::arg("max_turns"), py::arg("gap_us"),
          "What a new partition of sessions into episodes changes, by row.");
    m.def("paths", &paths, py::arg("previous"), py::arg("last"), py::arg("length"),
          "Rows that lead to each of last by previous, oldest first, int32.");
}
