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
double dot(const double* a, const double* b, std::size_t dim) {
    double sums[4] = {0.0, 0.0, 0.0, 0.0};
    for (std::size_t j = 0; j < dim; ++j) sums[j % 4] += a[j] * b[j];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

void pool(const Vectors& vectors, const float* weights, std::int64_t start, std::int64_t stop,
          std::vector<double>& sum) {
    sum.assign(vectors.dim, 0.0);
    for (std::int64_t i = start; i < stop; ++i) {
        const float* row = vectors.row(i);
        const double weight = weights[i];
        for (std::size_t j = 0; j < vectors.dim; ++j) {
            sum[j] += weight * static_cast<double>(row[j]);
        }
    }
}

float cosine(const std::vector<double>& a, const std::vector<double>& b) {
    constexpr double kQuantum = 1 << 20;
    const double norms =
        std::sqrt(dot(a.data(), a.data(), a.size())) * std::sqrt(dot(b.data(), b.data(), b.size()));
    if (!(norms > 0.0)) return 0.0F;
    const double value = dot(a.data(), b.data(), a.size()) / norms;
    // An overflow of a hostile row would poison the session's mean; it counts as not encoded.
    if (!std::isfinite(value)) return 0.0F;
    return static_cast<float>(std::nearbyint(value * kQuantum) / kQuantum);
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
    Segmenter(const float* similarity, const std::int64_t* times, const EpisodeOptions& options)
        : similarity_(similarity), times_(times), options_(options) {}

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
        const float* similarity = similarity_ + first;
        // The nearest peak continues the neighbour's climb for as long as similarity does not fall.
        double* depth = depth_.data() + at(first);
        double peak = similarity[0];
        for (std::size_t g = 0; g < n; ++g) {
            if (g == 0 || similarity[g - 1] < similarity[g]) peak = similarity[g];
            depth[g] = peak - similarity[g];
        }
        for (std::size_t g = n; g-- > 0;) {
            if (g + 1 == n || similarity[g + 1] < similarity[g]) peak = similarity[g];
            depth[g] += peak - similarity[g];
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

    const float* similarity_;
    const std::int64_t* times_;
    const EpisodeOptions& options_;
    std::int64_t low_ = 0;
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

std::vector<double> norms(const std::vector<Span>& spans, const Vectors& vectors,
                          const float* weights) {
    std::vector<double> found;
    found.reserve(spans.size());
    std::vector<double> sum;
    for (const Span& span : spans) {
        pool(vectors, weights, span.start, span.stop, sum);
        found.push_back(std::sqrt(dot(sum.data(), sum.data(), sum.size())));
    }
    return found;
}

std::vector<float> similarities(const Sessions& sessions, const Vectors& vectors,
                                const float* weights, const std::int64_t* times,
                                std::int64_t window, std::int64_t gap_us) {
    std::vector<float> found(static_cast<std::size_t>(sessions.n_positions()), 0.0F);
    window = std::min(window, 2 * sessions.n_positions() + 1);
    const std::int64_t before = (window - 1) / 2;
    const std::int64_t after = window / 2;
    std::vector<double> left;
    std::vector<double> right;
    for (std::size_t s = 0; s < sessions.n_sessions; ++s) {
        const std::int64_t low = sessions.indptr[s];
        const std::int64_t high = sessions.indptr[s + 1];
        for (std::int64_t i = low; i + 1 < high; ++i) {
            if (silent(times, i, gap_us)) continue;
            std::int64_t a = i;
            while (a > low && i - a < after && !silent(times, a - 1, gap_us)) --a;
            std::int64_t b = i + 1;
            while (b + 1 < high && b - i - 1 < before && !silent(times, b, gap_us)) ++b;
            const Span ending = clipped(a - before, a + after + 1, low, high);
            const Span starting = clipped(b - before, b + after + 1, low, high);
            pool(vectors, weights, ending.start, ending.stop, left);
            pool(vectors, weights, starting.start, starting.stop, right);
            found[static_cast<std::size_t>(i)] = cosine(left, right);
        }
    }
    return found;
}

std::vector<Span> episodes(const Sessions& sessions, const float* similarity,
                           const std::int64_t* times, const EpisodeOptions& options) {
    std::vector<Span> spans;
    EpisodeOptions bounded = options;
    bounded.min_turns = std::min(options.min_turns, sessions.n_positions() + 1);
    Segmenter segmenter(similarity, times, bounded);
    for (std::size_t s = 0; s < sessions.n_sessions; ++s) {
        segmenter.session(sessions.indptr[s], sessions.indptr[s + 1], spans);
    }
    return spans;
}

std::vector<std::int32_t> paths(const std::int32_t* previous, const std::int32_t* last,
                                const std::int32_t* length, std::size_t n_paths) {
    std::vector<std::int32_t> rows;
    for (std::size_t p = 0; p < n_paths; ++p) {
        const std::size_t start = rows.size();
        std::int32_t row = last[p];
        for (std::int32_t i = 0; i < length[p]; ++i) {
            rows.push_back(row);
            if (previous[row] < 0 || previous[row] >= row) break;
            row = previous[row];
        }
        std::reverse(rows.begin() + static_cast<std::ptrdiff_t>(start), rows.end());
    }
    return rows;
}

Changes segment(const Sessions& sessions, const std::int32_t* rows, const float* similarity,
                const std::int64_t* times, const std::int32_t* episode_of, std::int32_t start,
                const EpisodeOptions& options) {
    const auto n = static_cast<std::size_t>(sessions.n_positions());
    std::vector<float> alike(n);
    std::vector<std::int64_t> periods(2 * n);
    for (std::size_t i = 0; i < n; ++i) {
        const auto row = static_cast<std::size_t>(rows[i]);
        alike[i] = similarity[row];
        periods[2 * i] = times[2 * row];
        periods[2 * i + 1] = times[2 * row + 1];
    }
    const std::vector<Span> spans = episodes(sessions, alike.data(), periods.data(), options);
    Changes changes;
    std::vector<bool> touched(n, false);  // by the position of an episode's first row
    std::size_t session = 0;
    for (const Span& span : spans) {
        while (sessions.indptr[session + 1] <= span.start) ++session;
        const std::int32_t first = rows[span.start];
        for (std::int32_t i = span.start; i < span.stop; ++i) {
            const std::int32_t row = rows[i];
            const std::int32_t was = row < start ? episode_of[row] : -1;
            if (row != first && (row >= start || was == row)) changes.cleared.push_back(row);
            if (was == first) continue;
            changes.moved.push_back(row);
            changes.episode.push_back(first);
            touched[static_cast<std::size_t>(span.start)] = true;
            if (was < 0) continue;
            const std::int32_t* const low = rows + sessions.indptr[session];
            const std::int32_t* const high = rows + sessions.indptr[session + 1];
            const std::int32_t* const at = std::lower_bound(low, high, was);
            if (at < high) touched[static_cast<std::size_t>(at - rows)] = true;
        }
    }
    changes.indptr.push_back(0);
    for (const Span& span : spans) {
        if (!touched[static_cast<std::size_t>(span.start)]) continue;
        changes.changed.push_back(rows[span.start]);
        changes.members.insert(changes.members.end(), rows + span.start, rows + span.stop);
        changes.indptr.push_back(static_cast<std::int64_t>(changes.members.size()));
    }
    return changes;
}

}  // namespace zeromem
