#include "hierarchy.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>

namespace zeromem {
namespace {

constexpr float kQuantum = 1 << 20;  // similarities are whole multiples of its inverse

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
    const double norms =
        std::sqrt(dot(a.data(), a.data(), a.size())) * std::sqrt(dot(b.data(), b.data(), b.size()));
    if (!(norms > 0.0)) return 0.0F;
    const double value = dot(a.data(), b.data(), a.size()) / norms;
    // An overflow of a hostile row would poison the session's mean; it counts as not encoded.
    if (!std::isfinite(value)) return 0.0F;
    return static_cast<float>(std::nearbyint(value * kQuantum) / kQuantum);
}

// Whether a turn that starts at `start` comes more than `gap_us` after the end of the one before.
bool silent(std::int64_t end, std::int64_t start, std::int64_t gap_us) {
    if (end == kNoTime || start == kNoTime || start <= end) return false;
    // Unsigned, since the difference of two times may not fit a signed number.
    return static_cast<std::uint64_t>(start) - static_cast<std::uint64_t>(end) >
           static_cast<std::uint64_t>(gap_us);
}

// Segments one session at a time; scratch buffers live as long as the segmenter. Positions are
// places within the session.
class Segmenter {
  public:
    Segmenter(const float* similarity, const std::int64_t* times, const EpisodeOptions& options)
        : similarity_(similarity), times_(times), options_(options) {}

    // The episodes of the session that has these rows, in order.
    const std::vector<Span>& operator()(const std::vector<std::int32_t>& rows) {
        spans_.clear();
        const auto n = static_cast<std::int64_t>(rows.size());
        if (n == 0) return spans_;
        min_turns_ = std::min(options_.min_turns, n + 1);
        split_silences(rows);
        depth_.assign(rows.size(), 0);
        for (const Span& piece : pieces_) measure(rows, piece);
        cut_deep_gaps(n);
        std::int64_t start = 0;
        for (std::int64_t i = 0; i < n; ++i) {
            if (cut_[at(i)] == 0) continue;
            halve(start, i + 1);
            start = i + 1;
        }
        return spans_;
    }

  private:
    // Gap i lies between positions i and i + 1; the last position of a piece has none.
    static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

    void split_silences(const std::vector<std::int32_t>& rows) {
        pieces_.clear();
        cut_.assign(rows.size(), 0);
        std::int32_t start = 0;
        for (std::size_t i = 0; i < rows.size(); ++i) {
            if (i + 1 < rows.size()) {
                const std::int64_t end = times_[2 * at(rows[i]) + 1];
                if (!silent(end, times_[2 * at(rows[i + 1])], options_.gap_us)) continue;
            }
            cut_[i] = 1;
            const auto stop = static_cast<std::int32_t>(i + 1);
            pieces_.push_back({start, stop});
            start = stop;
        }
    }

    // One of two values without a branch, which would be guessed wrongly half of the time.
    static std::int32_t chosen(bool first, std::int32_t a, std::int32_t b) {
        const std::int32_t mask = -static_cast<std::int32_t>(first);
        return (a & mask) | (b & ~mask);
    }

    // Depths in whole quanta, of which similarities are multiples.
    void measure(const std::vector<std::int32_t>& rows, const Span& piece) {
        const auto n = at(piece.stop - 1 - piece.start);
        if (n == 0) return;
        const std::int32_t* const row = rows.data() + piece.start;
        std::int32_t* const depth = depth_.data() + piece.start;
        quanta_.resize(n);
        for (std::size_t g = 0; g < n; ++g) {
            const float value = similarity_[at(row[g])];
            // What is no number and what is out of range has no place in an integer.
            const float cut = value >= -1.0F ? std::min(value, 1.0F) : -1.0F;
            quanta_[g] = static_cast<std::int32_t>(cut * kQuantum);
        }
        // The nearest peak continues the neighbour's climb for as long as similarity does not fall.
        std::int32_t peak = quanta_[0];
        for (std::size_t g = 1; g < n; ++g) {
            peak = chosen(quanta_[g - 1] < quanta_[g], quanta_[g], peak);
            depth[g] = peak - quanta_[g];
        }
        peak = quanta_[n - 1];
        for (std::size_t g = n - 1; g-- > 0;) {
            peak = chosen(quanta_[g + 1] < quanta_[g], quanta_[g], peak);
            depth[g] += peak - quanta_[g];
        }
    }

    void cut_deep_gaps(std::int64_t n_positions) {
        const std::int64_t n = n_positions - static_cast<std::int64_t>(pieces_.size());
        if (n == 0) return;
        // Whole numbers, so that no order of adding matters; what is no gap has none.
        std::uint64_t sum = 0;
        std::uint64_t squares = 0;
        for (const std::int32_t depth : depth_) {
            const auto value = static_cast<std::uint64_t>(static_cast<std::uint32_t>(depth));
            sum += value;
            squares += value * value;
        }
        const double count = static_cast<double>(n);
        const double mean = static_cast<double>(sum) / count;
        const double variance = static_cast<double>(squares) / count - mean * mean;
        const double threshold = mean + options_.depth * std::sqrt(std::max(variance, 0.0));
        candidates_.clear();
        for (const Span& piece : pieces_) {
            // Gap i leaves i + 1 - start positions before it and stop - (i + 1) after it.
            for (std::int64_t i = piece.start + min_turns_ - 1; i + 1 + min_turns_ <= piece.stop;
                 ++i) {
                if (depth_[at(i)] > threshold) {
                    candidates_.push_back({depth_[at(i)], static_cast<std::int32_t>(i)});
                }
            }
        }
        sort_deepest_first();
        blocked_.assign(at(n_positions), 0);
        for (const Gap& gap : candidates_) {
            if (blocked_[at(gap.at)] != 0) continue;
            cut_[at(gap.at)] = 1;
            const std::int64_t from = std::max<std::int64_t>(gap.at - min_turns_ + 1, 0);
            const std::int64_t to = std::min(gap.at + min_turns_, n_positions);
            std::fill(blocked_.begin() + from, blocked_.begin() + to, char{1});
        }
    }

    // Stable, so that of equal depths the earlier gap stays first. A depth has at most 23 bits.
    void sort_deepest_first() {
        constexpr std::uint32_t kDigits = 1 << 12;
        sorted_.resize(candidates_.size());
        for (const int shift : {0, 12}) {
            const auto digit = [shift](const Gap& gap) {
                const auto depth = static_cast<std::uint32_t>(gap.depth);
                return kDigits - 1 - ((depth >> shift) & (kDigits - 1));
            };
            starts_.assign(kDigits + 1, 0);
            for (const Gap& gap : candidates_) ++starts_[digit(gap) + 1];
            std::partial_sum(starts_.begin(), starts_.end(), starts_.begin());
            for (const Gap& gap : candidates_) sorted_[starts_[digit(gap)]++] = gap;
            candidates_.swap(sorted_);
        }
    }

    void halve(std::int64_t start, std::int64_t stop) {
        const std::int64_t length = stop - start;
        if (length <= options_.max_turns) {
            spans_.push_back({static_cast<std::int32_t>(start), static_cast<std::int32_t>(stop)});
            return;
        }
        // The middle half, so that the recursion is logarithmic however the depths lie.
        const std::int64_t margin = std::max((length + 3) / 4, std::min(min_turns_, length / 2));
        std::int64_t best = start + margin;
        for (std::int64_t cut = best + 1; cut <= stop - margin; ++cut) {
            const std::int32_t gain = depth_[at(cut - 1)] - depth_[at(best - 1)];
            const bool nearer =
                std::llabs(2 * cut - start - stop) < std::llabs(2 * best - start - stop);
            if (gain > 0 || (gain == 0 && nearer)) best = cut;
        }
        halve(start, best);
        halve(best, stop);
    }

    struct Gap {
        std::int32_t depth;
        std::int32_t at;
    };

    const float* similarity_;
    const std::int64_t* times_;
    const EpisodeOptions& options_;
    std::int64_t min_turns_ = 1;
    std::vector<Span> spans_;
    std::vector<Span> pieces_;
    std::vector<std::int32_t> quanta_;
    std::vector<std::int32_t> depth_;
    std::vector<char> cut_;
    std::vector<char> blocked_;
    std::vector<Gap> candidates_;
    std::vector<Gap> sorted_;
    std::vector<std::uint32_t> starts_;
};

// The rows that lead to `last` by `previous`, oldest first, at most `length` of them.
void walk(const std::int32_t* previous, std::int32_t last, std::int32_t length,
          std::vector<std::int32_t>& rows) {
    const auto start = static_cast<std::ptrdiff_t>(rows.size());
    rows.resize(rows.size() + static_cast<std::size_t>(std::max(length, 0)));
    std::int32_t* const first = rows.data() + start;
    std::int32_t left = std::max(length, 0);
    for (std::int32_t row = last; left > 0; row = previous[row]) {
        first[--left] = row;
        if (previous[row] < 0 || previous[row] >= row) break;
    }
    // A path that ends early leaves room before it.
    rows.erase(rows.begin() + start, rows.begin() + start + left);
}

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
    const auto quiet = [&](std::int64_t i) {
        return silent(times[2 * i + 1], times[2 * (i + 1)], gap_us);
    };
    std::vector<double> left;
    std::vector<double> right;
    for (std::size_t s = 0; s < sessions.n_sessions; ++s) {
        const std::int64_t low = sessions.indptr[s];
        const std::int64_t high = sessions.indptr[s + 1];
        for (std::int64_t i = low; i + 1 < high; ++i) {
            if (quiet(i)) continue;
            std::int64_t a = i;
            while (a > low && i - a < after && !quiet(a - 1)) --a;
            std::int64_t b = i + 1;
            while (b + 1 < high && b - i - 1 < before && !quiet(b)) ++b;
            const Span ending = clipped(a - before, a + after + 1, low, high);
            const Span starting = clipped(b - before, b + after + 1, low, high);
            pool(vectors, weights, ending.start, ending.stop, left);
            pool(vectors, weights, starting.start, starting.stop, right);
            found[static_cast<std::size_t>(i)] = cosine(left, right);
        }
    }
    return found;
}

Changes segment(const Paths& sessions, const float* similarity, const std::int64_t* times,
                const std::int32_t* episode_of, std::int32_t start, const EpisodeOptions& options) {
    Changes changes;
    changes.indptr.push_back(0);
    Segmenter segmenter(similarity, times, options);
    std::vector<std::int32_t> rows;
    std::vector<char> touched;  // by the position of an episode's first row
    for (std::size_t p = 0; p < sessions.n_paths; ++p) {
        rows.clear();
        walk(sessions.previous, sessions.last[p], sessions.length[p], rows);
        touched.assign(rows.size(), 0);
        const std::vector<Span>& spans = segmenter(rows);
        for (const Span& span : spans) {
            const std::int32_t first = rows[static_cast<std::size_t>(span.start)];
            for (auto i = static_cast<std::size_t>(span.start);
                 i < static_cast<std::size_t>(span.stop); ++i) {
                const std::int32_t row = rows[i];
                const std::int32_t was = row < start ? episode_of[row] : -1;
                if (row != first && (row >= start || was == row)) changes.cleared.push_back(row);
                if (was == first) continue;
                changes.moved.push_back(row);
                changes.episode.push_back(first);
                touched[static_cast<std::size_t>(span.start)] = 1;
                if (was < 0) continue;
                const auto left = std::lower_bound(rows.begin(), rows.end(), was);
                if (left != rows.end()) touched[static_cast<std::size_t>(left - rows.begin())] = 1;
            }
        }
        for (const Span& span : spans) {
            if (touched[static_cast<std::size_t>(span.start)] == 0) continue;
            changes.changed.push_back(rows[static_cast<std::size_t>(span.start)]);
            changes.members.insert(changes.members.end(), rows.begin() + span.start,
                                   rows.begin() + span.stop);
            changes.indptr.push_back(static_cast<std::int64_t>(changes.members.size()));
        }
    }
    return changes;
}

std::vector<std::int32_t> paths(const Paths& wanted) {
    std::vector<std::int32_t> rows;
    for (std::size_t p = 0; p < wanted.n_paths; ++p) {
        walk(wanted.previous, wanted.last[p], wanted.length[p], rows);
    }
    return rows;
}

}  // namespace zeromem
