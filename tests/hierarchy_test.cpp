// Drives the hierarchy library with hostile sizes, to be built with the sanitizers. Exits with 0
// where every level covers what it claims.
#include "hierarchy.hpp"

#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

namespace {

void require(bool condition, const char* what) {
    if (condition) return;
    std::fprintf(stderr, "failed: %s\n", what);
    std::exit(1);
}

void check(std::mt19937& random, std::int64_t n_sessions, std::int64_t longest, std::size_t dim) {
    std::vector<std::int64_t> indptr{0};
    for (std::int64_t s = 0; s < n_sessions; ++s) {
        indptr.push_back(indptr.back() + static_cast<std::int64_t>(random() % (longest + 1)));
    }
    const zeromem::Sessions sessions{indptr.data(), indptr.size() - 1};
    const std::int64_t n = sessions.n_positions();
    // Exactly as many values as are needed, so that one read too many is seen.
    std::vector<float> vectors(static_cast<std::size_t>(n) * dim);
    for (float& value : vectors) value = static_cast<float>(random() % 200) - 100.0F;
    std::vector<float> weights(static_cast<std::size_t>(n));
    for (float& weight : weights) weight = static_cast<float>(random() % 50);
    std::vector<std::int64_t> times(2 * static_cast<std::size_t>(n));
    for (std::int64_t& time : times) {
        const auto kind = random() % 4;
        time = kind == 0   ? zeromem::kNoTime
               : kind == 1 ? std::numeric_limits<std::int64_t>::max()
               : kind == 2 ? zeromem::kNoTime + 1
                           : static_cast<std::int64_t>(random());
    }
    std::vector<std::int32_t> previous;
    std::vector<std::int32_t> last;
    std::vector<std::int32_t> length;
    for (std::size_t s = 0; s < sessions.n_sessions; ++s) {
        for (std::int64_t i = indptr[s]; i < indptr[s + 1]; ++i) {
            previous.push_back(i == indptr[s] ? -1 : static_cast<std::int32_t>(i - 1));
        }
        if (indptr[s] == indptr[s + 1]) continue;
        last.push_back(static_cast<std::int32_t>(indptr[s + 1] - 1));
        length.push_back(static_cast<std::int32_t>(indptr[s + 1] - indptr[s]));
    }
    const zeromem::Paths paths{previous.data(), last.data(), length.data(), last.size()};
    const auto rows = zeromem::paths(paths);
    require(static_cast<std::int64_t>(rows.size()) == n, "paths hold every row");
    for (std::int64_t i = 0; i < n; ++i) {
        require(rows[static_cast<std::size_t>(i)] == i, "oldest first, path after path");
    }
    const std::int64_t most = std::numeric_limits<std::int64_t>::max();
    const std::vector<std::int32_t> none;
    for (const std::int64_t size : {std::int64_t{1}, std::int64_t{2}, std::int64_t{7}, most}) {
        const auto spans = zeromem::windows(sessions, size);
        require(static_cast<std::int64_t>(spans.size()) == n, "one window per position");
        for (std::int64_t i = 0; i < n; ++i) {
            const auto& span = spans[static_cast<std::size_t>(i)];
            require(span.start <= i && i < span.stop, "a window holds its position");
        }
        const auto norms = zeromem::norms(spans, {vectors.data(), dim}, weights.data());
        require(norms.size() == spans.size(), "one norm per window");
        for (const std::int64_t gap : {std::int64_t{0}, std::int64_t{1000}, most}) {
            const auto alike = zeromem::similarities(sessions, {vectors.data(), dim},
                                                     weights.data(), times.data(), size, gap);
            require(static_cast<std::int64_t>(alike.size()) == n, "one similarity per position");
            for (const double depth : {-5.0, 0.5, 9.0}) {
                const auto found = zeromem::segment(paths, alike.data(), times.data(), none.data(),
                                                    0, {depth, size, size, gap});
                require(found.members == rows, "episodes follow each other and cover all");
                for (std::size_t e = 0; e < found.changed.size(); ++e) {
                    const std::int64_t held = found.indptr[e + 1] - found.indptr[e];
                    require(held >= 1 && held <= size, "no episode is longer than max_turns");
                }
                // Once more: nothing is new.
                std::vector<std::int32_t> episode_of(static_cast<std::size_t>(n));
                for (std::size_t i = 0; i < found.moved.size(); ++i) {
                    episode_of[static_cast<std::size_t>(found.moved[i])] = found.episode[i];
                }
                const auto again =
                    zeromem::segment(paths, alike.data(), times.data(), episode_of.data(),
                                     static_cast<std::int32_t>(n), {depth, size, size, gap});
                require(again.moved.empty() && again.changed.empty() && again.cleared.empty(),
                        "the same segmentation changes nothing");
            }
        }
    }
}

}  // namespace

int main() {
    std::mt19937 random(7);
    for (std::size_t dim = 0; dim < 6; ++dim) {
        for (const std::int64_t n_sessions : {0, 1, 2, 9}) {
            for (const std::int64_t longest : {0, 1, 2, 5, 60}) {
                check(random, n_sessions, longest, dim);
            }
        }
    }
    std::puts("ok");
    return 0;
}
