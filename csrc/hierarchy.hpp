// The hierarchy of one scope: which positions belong to which window, episode and local span.
//
// Positions are the scope's turns laid out session after session; `session_indptr` holds the
// borders, so session s is the half-open range [session_indptr[s], session_indptr[s + 1]).
// This library knows nothing of Python and trusts its arguments; the bindings check them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace zeromem {

// The time of a position whose time is not known.
inline constexpr std::int64_t kNoTime = std::numeric_limits<std::int64_t>::min();

// A half-open range of positions.
struct Span {
    std::int32_t start;
    std::int32_t stop;
};

// Session borders: `indptr` has n_sessions + 1 entries, starts with 0 and never decreases.
struct Sessions {
    const std::int64_t* indptr;
    std::size_t n_sessions;

    std::int64_t n_positions() const { return indptr[n_sessions]; }
};

// One row of `dim` values per position: the sum or mean of the window centred there. A zero row
// stands for a window that is not encoded; its similarity to anything is 0.
struct Vectors {
    const float* data;
    std::size_t dim;

    const float* row(std::int64_t i) const { return data + static_cast<std::size_t>(i) * dim; }
};

struct EpisodeOptions {
    std::int64_t window;     // turns per window of `Vectors`
    double depth;            // standard deviations above the mean depth at which an episode ends
    std::int64_t min_turns;  // yields only to `max_turns` and to silences
    std::int64_t max_turns;  // no episode is longer
    std::int64_t gap_us;     // a longer silence ends an episode
};

// Window i holds the positions at most (size - 1) / 2 before and size / 2 after position i, clipped
// to its session. One window per position.
std::vector<Span> windows(const Sessions& sessions, std::int64_t size);

// Partitions every session into episodes, in order; an empty session has none.
//
// 1. A silence (start[i + 1] - end[i], both known) longer than `gap_us` always cuts. The rest
//    happens within the pieces that this leaves.
// 2. The gap between i and i + 1 has as similarity the cosine of the window that ends at i and the
//    window that starts at i + 1, and as depth how far the similarity climbs from there to the
//    nearest peak on the left plus to the one on the right (TextTiling, Hearst 1997). Similarities
//    are rounded to multiples of 2^-20, so windows that are equal but for rounding tie exactly.
// 3. Gaps deeper than mean + depth * std of the session's gaps cut, deepest first (ties: the
//    earlier), each at least `min_turns` away from every other cut or end of the piece.
// 4. What is longer than `max_turns` is halved at the deepest gap of its middle half (ties: the
//    nearest to the middle, then the earlier) until nothing is.
//
// `times` holds [start, end) in microseconds UTC per position. Linear in the input but for the
// sorting of a session's gaps.
std::vector<Span> episodes(const Sessions& sessions, const Vectors& vectors,
                           const std::int64_t* times, const EpisodeOptions& options);

// The positions at most `radius` away from each of `positions`, clipped to its session.
std::vector<Span> local_spans(const Sessions& sessions, const std::int64_t* positions,
                              std::size_t n_positions, std::int64_t radius);

}  // namespace zeromem
