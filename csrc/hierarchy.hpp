// The hierarchy of one scope: which positions belong to which window, episode and local span.
//
// Positions are the scope's turns laid out session after session; `session_indptr` holds the
// borders, so session s is the half-open range [session_indptr[s], session_indptr[s + 1]).
// This library knows nothing of Python and trusts its arguments; the bindings check them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace zeromem {

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

// Window i holds the positions at most (size - 1) / 2 before and size / 2 after position i, clipped
// to its session. One window per position.
std::vector<Span> windows(const Sessions& sessions, std::int64_t size);

// The positions at most `radius` away from each of `positions`, clipped to its session.
std::vector<Span> local_spans(const Sessions& sessions, const std::int64_t* positions,
                              std::size_t n_positions, std::int64_t radius);

}  // namespace zeromem
