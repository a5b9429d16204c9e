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
    std::vector<std::int64_t> times(2 * static_cast<std::size_t>(n));
    for (std::int64_t& time : times) {
        const auto kind = random() % 4;
        time = kind == 0   ? zeromem::kNoTime
               : kind == 1 ? std::numeric_limits<std::int64_t>::max()
               : kind == 2 ? zeromem::kNoTime + 1
                           : static_cast<std::int64_t>(random());
    }
    const std::int64_t most = std::numeric_limits<std::int64_t>::max();
    for (const std::int64_t size : {std::int64_t{1}, std::int64_t{2}, std::int64_t{7}, most}) {
        const auto spans = zeromem::windows(sessions, size);
        require(static_cast<std::int64_t>(spans.size()) == n, "one window per position");
        for (std::int64_t i = 0; i < n; ++i) {
            const auto& span = spans[static_cast<std::size_t>(i)];
            require(span.start <= i && i < span.stop, "a window holds its position");
        }
        for (const std::int64_t gap : {std::int64_t{0}, std::int64_t{1000}, most}) {
            for (const double depth : {-5.0, 0.5, 9.0}) {
                const auto episodes = zeromem::episodes(
                    sessions, {vectors.data(), dim}, times.data(), {size, depth, size, size, gap});
                std::int64_t at = 0;
                for (const auto& span : episodes) {
                    require(span.start == at && span.stop > at, "episodes follow each other");
                    require(span.stop - span.start <= size, "no episode is longer than max_turns");
                    at = span.stop;
                }
                require(at == n, "episodes cover all");
            }
        }
        std::vector<std::int64_t> all(static_cast<std::size_t>(n));
        for (std::int64_t i = 0; i < n; ++i) all[static_cast<std::size_t>(i)] = i;
        const auto local = zeromem::local_spans(sessions, all.data(), all.size(), size);
        require(local.size() == all.size(), "one local span per position");
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
