// What the CPU operators' benchmarks measure with: processor time of one thread, and sgemm's rate.
#ifndef DELTAFILL_TESTS_BENCH_CPU_RATE_H_
#define DELTAFILL_TESTS_BENCH_CPU_RATE_H_

#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "kernels/status.h"
#include "tests/testing/random.h"

namespace deltafill::test {

// Processor time of the calling thread, which does all the work here: others share the machine.
inline double ThreadSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The shortest of several runs.
template <typename Body>
double ShortestSeconds(Body&& body) {
  double shortest = 1e30;
  double total = 0.0;
  for (int run = 0; run < 50 && (run < 5 || total < 1.0); ++run) {
    const double start = ThreadSeconds();
    body();
    const double seconds = ThreadSeconds() - start;
    shortest = std::min(shortest, seconds);
    total += seconds;
  }
  return shortest;
}

inline void Check(const kernels::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.message().c_str());
  std::exit(1);
}

// GFLOP/s of [m, k] [k, n] in oneDNN, on the calling thread only.
inline double SgemmRate(int64_t m, int64_t n, int64_t k) {
  Random random(1);
  const std::vector<float> a = random.NormalVector(m * k);
  const std::vector<float> b = random.NormalVector(k * n);
  std::vector<float> c(static_cast<size_t>(m * n));
  const double seconds = ShortestSeconds([&] {
    if (dnnl_sgemm('N', 'N', m, n, k, 1.0f, a.data(), k, b.data(), n, 0.0f, c.data(), n) !=
        dnnl_success) {
      std::fprintf(stderr, "dnnl_sgemm failed\n");
      std::exit(1);
    }
  });
  return 2.0 * m * n * k / seconds * 1e-9;
}

}  // namespace deltafill::test

#endif  // DELTAFILL_TESTS_BENCH_CPU_RATE_H_
