// The hierarchy of one scope: which positions belong to which window and episode.
//
// Positions are turns laid out session after session; `session_indptr` holds the borders, so
// session s is the half-open range [session_indptr[s], session_indptr[s + 1]). A caller lays out
// the sessions that it asks about, or their last positions: nothing here looks beyond what it is
// given. This library knows nothing of Python and trusts its arguments; the bindings check them.
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

// One row of `dim` values per position: the turn's mean token state. A zero row stands for a turn
// that is not encoded.
struct Vectors {
    const float* data;
    std::size_t dim;

    const float* row(std::int64_t i) const { return data + static_cast<std::size_t>(i) * dim; }
};

struct EpisodeOptions {
    double depth;            // standard deviations above the mean depth at which an episode ends
    std::int64_t min_turns;  // yields only to `max_turns` and to silences
    std::int64_t max_turns;  // no episode is longer
    std::int64_t gap_us;     // a longer silence ends an episode
};

// Window i holds the positions at most (size - 1) / 2 before and size / 2 after position i, clipped
// to its session. One window per position.
std::vector<Span> windows(const Sessions& sessions, std::int64_t size);

// The norm of the sum of weight * row over each span, in float64 and in the order of the rows.
std::vector<double> norms(const std::vector<Span>& spans, const Vectors& vectors,
                          const float* weights);

// How alike the turns on the two sides of each gap are: at position i, of the gap between i and
// i + 1, the cosine of the window that ends at i and the window that starts at i + 1, where a
// window is the weighted sum of its turns. At a silence (start[i + 1] - end[i], both known, above
// `gap_us`) and at a session's last position it is 0. The centre of either window stays on its
// gap's side of a silence; a window itself reaches across one. Rounded to multiples of 2^-20, so
// windows that are equal but for rounding tie exactly, and a float holds it.
//
// It depends on the `window` positions before i and after i + 1 alone: where a session grows, only
// its last `window` gaps change.
std::vector<float> similarities(const Sessions& sessions, const Vectors& vectors,
                                const float* weights, const std::int64_t* times,
                                std::int64_t window, std::int64_t gap_us);

// Rows that are linked: path p leads to the row `last[p]` by `previous`, whose entries are earlier
// rows, and has at most `length[p]` rows. It begins where a row has no earlier one before it (-1).
struct Paths {
    const std::int32_t* previous;
    const std::int32_t* last;
    const std::int32_t* length;
    std::size_t n_paths;
};

// The rows of each path, oldest first, path after path.
std::vector<std::int32_t> paths(const Paths& wanted);

// What a new segmentation of some sessions changes, by row. An episode is named by its first row.
struct Changes {
    std::vector<std::int32_t> moved;    // rows whose episode is another than it was, or is new
    std::vector<std::int32_t> episode;  // the episode of each of them
    std::vector<std::int32_t> changed;  // episodes that got a row or lost one
    std::vector<std::int64_t> indptr;   // the range in `members` of each of them
    std::vector<std::int32_t> members;  // their rows, oldest first
    std::vector<std::int32_t> cleared;  // rows that begin no episode and are new or did before
};

// Partitions sessions into episodes.
//
// 1. A silence longer than `gap_us` always cuts. The rest happens within the pieces that this
//    leaves.
// 2. A gap's depth is how far `similarity` climbs from there to the nearest peak on the left plus
//    to the one on the right (TextTiling, Hearst 1997), in multiples of 2^-20.
// 3. Gaps deeper than mean + depth * std of the session's gaps cut, deepest first (ties: the
//    earlier), each at least `min_turns` away from every other cut or end of the piece.
// 4. What is longer than `max_turns` is halved at the deepest gap of its middle half (ties: the
//    nearest to the middle, then the earlier) until nothing is.
//
// A session is a path of all its rows. By row: `similarity` of the gap behind it, in [-1, 1];
// `times`, [start, end) in microseconds UTC; `episode_of`, its episode so far, for rows before
// `start`: others had none. Linear in the sessions but for the sorting of a session's deep gaps.
Changes segment(const Paths& sessions, const float* similarity, const std::int64_t* times,
                const std::int32_t* episode_of, std::int32_t start, const EpisodeOptions& options);

}  // namespace zeromem
