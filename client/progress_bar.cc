#include "client/progress_bar.h"

#include <unistd.h>

#include <cstdio>
#include <string>

#include "proto/prefill.pb.h"

namespace deltafill::client {

ProgressBar::ProgressBar() : is_terminal_(isatty(STDERR_FILENO) != 0) {}

ProgressBar::~ProgressBar() {
  if (shown_) std::fprintf(stderr, "\r\033[K");
}

void ProgressBar::Show(const v1::PrefillProgress& progress) {
  const uint64_t done = progress.tokens_done(), tokens = progress.tokens();
  if (!is_terminal_ || tokens == 0) return;
  constexpr int kWidth = 32;
  const int filled = static_cast<int>(kWidth * done / tokens);
  const std::string bar = std::string(filled, '#') + std::string(kWidth - filled, '.');
  const std::string again =
      progress.attempt() > 1
          ? ", attempt " + std::to_string(progress.attempt()) + ": a worker was lost"
          : "";
  std::fprintf(stderr, "\r\033[K[%s] %3llu %%  %llu/%llu tokens  %.0f tokens/s  %.0f s left%s",
               bar.c_str(), static_cast<unsigned long long>(100 * done / tokens),
               static_cast<unsigned long long>(done), static_cast<unsigned long long>(tokens),
               progress.tokens_per_second(), progress.eta_seconds(), again.c_str());
  std::fflush(stderr);
  shown_ = true;
}

}  // namespace deltafill::client
