#include "hierarchy.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace zeromem {
namespace {

Span clipped(std::int64_t start, std::int64_t stop, std::int64_t low, std::int64_t high) {
    return {static_cast<std::int32_t>(std::max(start, low)),
            static_cast<std::int32_t>(std::min(stop, high))};
}

// Four partial sums: a fixed order that does not wait for each addition.
double dot(const float* a, const float* b, std::size_t dim) {
    double sums[4] = {0.0, 0.0, 0.0, 0.0};
    for (std::size_t j = 0; j < dim; ++j) {
        sums[j % 4] += static_cast<double>(a[j]) * static_cast<double>(b[j]);
    }
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

double cosine(const float* a, const float* b, std::size_t dim) {
    constexpr double kQuantum = 1 << 20;
    const double norms = std::sqrt(dot(a, a, dim)) * std::sqrt(dot(b, b, dim));
    if (!(norms > 0.0)) return 0.0;
    const double value = dot(a, b, dim) / norms;
    // An overflow of a hostile row would poison the session's mean; it counts as not encoded.
    return std::isfinite(value) ? std::nearbyint(value * kQuantum) / kQuantum : 0.0;
}

bool silent(const std::int64_t* times, std::int64_t i, std::int64_t gap_us) {
    const std::int64_t end = times[2 * i + 1];
    const std::int64_t start = times[2 * (i + 1)];
    if (end == kNoTime || start == kNoTime || start <= end) return false;
    // Unsigned, since the difference of two times may not fit a signed number.
    return static_cast<std::uint64_t>(start) - static_cast<std::uint64_t>(end) >
           static_cast<std::uint64_t>(gap_us);
}

// Segments one session at a time; scratch buffers live as long as the call.
class Segmenter {
  public:
    Segmenter(const Vectors& vectors, const std::int64_t* times, const EpisodeOptions& options)
        : vectors_(vectors), times_(times), options_(options) {}

    void session(std::int64_t low, std::int64_t high, std::vector<Span>& out) {
        if (low == high) return;
        low_ = low;
        const auto n = static_cast<std::size_t>(high - low);
        depth_.assign(n, 0.0);
        cut_.assign(n, false);
        blocked_.assign(n, false);
        std::vector<Span> pieces = split_silences(low, high);
        for (const Span& piece : pieces) measure(piece);
        cut_deep_gaps(pieces, high);
        std::int64_t start = low;
        for (std::int64_t i = low; i < high; ++i) {
            if (i + 1 == high || cut_[at(i)]) {
                halve(start, i + 1, out);
                start = i + 1;
            }
        }
    }

  private:
    // Gap i lies between positions i and i + 1; the last position of a piece has none.
    std::size_t at(std::int64_t i) const { return static_cast<std::size_t>(i - low_); }

    std::vector<Span> split_silences(std::int64_t low, std::int64_t high) {
        std::vector<Span> pieces;
        std::int64_t start = low;
        for (std::int64_t i = low; i < high; ++i) {
            if (i + 1 < high && !silent(times_, i, options_.gap_us)) continue;
            cut_[at(i)] = true;
            pieces.push_back({static_cast<std::int32_t>(start), static_cast<std::int32_t>(i + 1)});
            start = i + 1;
        }
        return pieces;
    }

    void measure(const Span& piece) {
        const std::int64_t first = piece.start;
        const std::int64_t last = piece.stop - 1;
        const auto n = static_cast<std::size_t>(last - first);
        if (n == 0) return;
        // Past twice the piece a window's size makes no difference, and i + size cannot overflow.
        const std::int64_t reach =
            std::min<std::int64_t>(options_.window, 2 * (piece.stop - first) + 1);
        similarity_.resize(n);
        for (std::size_t g = 0; g < n; ++g) {
            const std::int64_t i = first + static_cast<std::int64_t>(g);
            const std::int64_t left = std::max(i - reach / 2, first);
            const std::int64_t right = std::min(i + 1 + (reach - 1) / 2, last);
            similarity_[g] = cosine(vectors_.row(left), vectors_.row(right), vectors_.dim);
        }
        // The nearest peak continues the neighbour's climb for as long as similarity does not fall.
        double* depth = depth_.data() + at(first);
        double peak = similarity_[0];
        for (std::size_t g = 0; g < n; ++g) {
            if (g == 0 || similarity_[g - 1] < similarity_[g]) peak = similarity_[g];
            depth[g] = peak - similarity_[g];
        }
        for (std::size_t g = n; g-- > 0;) {
            if (g + 1 == n || similarity_[g + 1] < similarity_[g]) peak = similarity_[g];
            depth[g] += peak - similarity_[g];
        }
    }

    void cut_deep_gaps(const std::vector<Span>& pieces, std::int64_t high) {
        double sum = 0.0;
        std::size_t n = 0;
        for (std::int64_t i = low_; i < high; ++i) {
            if (cut_[at(i)]) continue;
            sum += depth_[at(i)];
            ++n;
        }
        if (n == 0) return;
        const double mean = sum / static_cast<double>(n);
        double squares = 0.0;
        for (std::int64_t i = low_; i < high; ++i) {
            if (cut_[at(i)]) continue;
            squares += (depth_[at(i)] - mean) * (depth_[at(i)] - mean);
        }
        const double threshold =
            mean + options_.depth * std::sqrt(squares / static_cast<double>(n));
        candidates_.clear();
        for (const Span& piece : pieces) {
            // Gap i leaves i + 1 - start positions before it and stop - (i + 1) after it.
            for (std::int64_t i = piece.start + options_.min_turns - 1;
                 i + 1 + options_.min_turns <= piece.stop; ++i) {
                if (depth_[at(i)] > threshold) candidates_.push_back(i);
            }
        }
        std::sort(candidates_.begin(), candidates_.end(), [this](std::int64_t a, std::int64_t b) {
            return depth_[at(a)] != depth_[at(b)] ? depth_[at(a)] > depth_[at(b)] : a < b;
        });
        for (const std::int64_t i : candidates_) {
            if (blocked_[at(i)]) continue;
            cut_[at(i)] = true;
            const std::int64_t from = std::max(i - options_.min_turns + 1, low_);
            const std::int64_t to = std::min(i + options_.min_turns, high);
            for (std::int64_t j = from; j < to; ++j) blocked_[at(j)] = true;
        }
    }

    void halve(std::int64_t start, std::int64_t stop, std::vector<Span>& out) const {
        const std::int64_t length = stop - start;
        if (length <= options_.max_turns) {
            out.push_back({static_cast<std::int32_t>(start), static_cast<std::int32_t>(stop)});
            return;
        }
        // The middle half, so that the recursion is logarithmic however the depths lie.
        const std::int64_t margin =
            std::max((length + 3) / 4, std::min(options_.min_turns, length / 2));
        std::int64_t best = start + margin;
        for (std::int64_t cut = best + 1; cut <= stop - margin; ++cut) {
            const double gain = depth_[at(cut - 1)] - depth_[at(best - 1)];
            const bool nearer =
                std::llabs(2 * cut - start - stop) < std::llabs(2 * best - start - stop);
            if (gain > 0.0 || (gain == 0.0 && nearer)) best = cut;
        }
        halve(start, best, out);
        halve(best, stop, out);
    }

    const Vectors& vectors_;
    const std::int64_t* times_;
    const EpisodeOptions& options_;
    std::int64_t low_ = 0;
    std::vector<double> similarity_;
    std::vector<double> depth_;
    std::vector<bool> cut_;
    std::vector<bool> blocked_;
    std::vector<std::int64_t> candidates_;
};

}  // namespace

std::vector<Span> windows(const Sessions& sessions, std::int64_t size) {
    std::vector<Span> spans;
    spans.reserve(static_cast<std::size_t>(sessions.n_positions()));
    const std::int64_t before = std::min((size - 1) / 2, sessions.n_positions());
    const std::int64_t after = std::min(size / 2, sessions.n_positions());
    for (std::size_t s = 0; s < sessions.n_sessions; ++s) {
        const std::int64_t low = sessions.indptr[s];
        const std::int64_t high = sessions.indptr[s + 1];
        for (std::int64_t i = low; i < high; ++i) {
            spans.push_back(clipped(i - before, i + after + 1, low, high));
        }
    }
    return spans;
}

std::vector<Span> episodes(const Sessions& sessions, const Vectors& vectors,
                           const std::int64_t* times, const EpisodeOptions& options) {
    std::vector<Span> spans;
    EpisodeOptions bounded = options;
    bounded.min_turns = std::min(options.min_turns, sessions.n_positions() + 1);
    Segmenter segmenter(vectors, times, bounded);
    for (std::size_t s = 0; s < sessions.n_sessions; ++s) {
        segmenter.session(sessions.indptr[s], sessions.indptr[s + 1], spans);
    }
    return spans;
}

std::vector<Span> local_spans(const Sessions& sessions, const std::int64_t* positions,
                              std::size_t n_positions, std::int64_t radius) {
    radius = std::min(radius, sessions.n_positions());
    const std::int64_t* const begin = sessions.indptr;
    const std::int64_t* const end = sessions.indptr + sessions.n_sessions + 1;
    std::vector<Span> spans;
    spans.reserve(n_positions);
    for (std::size_t i = 0; i < n_positions; ++i) {
        const std::int64_t p = positions[i];
        // The first border past p ends its session; empty sessions share their border and lose.
        const std::int64_t* const stop = std::upper_bound(begin, end, p);
        spans.push_back(clipped(p - radius, p + radius + 1, stop[-1], stop[0]));
    }
    return spans;
}

}  // namespace zeromem
