#include "hierarchy.hpp"

#include <algorithm>

namespace zeromem {
namespace {

Span clipped(std::int64_t start, std::int64_t stop, std::int64_t low, std::int64_t high) {
    return {static_cast<std::int32_t>(std::max(start, low)),
            static_cast<std::int32_t>(std::min(stop, high))};
}

}  // namespace

std::vector<Span> windows(const Sessions& sessions, std::int64_t size) {
    std::vector<Span> spans;
    spans.reserve(static_cast<std::size_t>(sessions.n_positions()));
    const std::int64_t before = (size - 1) / 2;
    const std::int64_t after = size / 2;
    for (std::size_t s = 0; s < sessions.n_sessions; ++s) {
        const std::int64_t low = sessions.indptr[s];
        const std::int64_t high = sessions.indptr[s + 1];
        for (std::int64_t i = low; i < high; ++i) {
            spans.push_back(clipped(i - before, i + after + 1, low, high));
        }
    }
    return spans;
}

std::vector<Span> local_spans(const Sessions& sessions, const std::int64_t* positions,
                              std::size_t n_positions, std::int64_t radius) {
    // One pass over the sessions names each position's owner, so any order of positions is linear.
    std::vector<std::int32_t> owner(static_cast<std::size_t>(sessions.n_positions()));
    for (std::size_t s = 0; s < sessions.n_sessions; ++s) {
        std::fill(owner.begin() + sessions.indptr[s], owner.begin() + sessions.indptr[s + 1],
                  static_cast<std::int32_t>(s));
    }
    std::vector<Span> spans;
    spans.reserve(n_positions);
    for (std::size_t i = 0; i < n_positions; ++i) {
        const std::int64_t p = positions[i];
        const auto s = static_cast<std::size_t>(owner[static_cast<std::size_t>(p)]);
        spans.push_back(
            clipped(p - radius, p + radius + 1, sessions.indptr[s], sessions.indptr[s + 1]));
    }
    return spans;
}

}  // namespace zeromem
