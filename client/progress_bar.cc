#include "client/progress_bar.h"

#include <unistd.h>

#include <cstdio>
#include <string>

namespace deltafill::client {

ProgressBar::ProgressBar() : is_terminal_(isatty(STDERR_FILENO) != 0) {}

ProgressBar::~ProgressBar() {
  if (shown_) std::fprintf(stderr, "\r\033[K");
}

void ProgressBar::Show(uint64_t tokens_done, uint64_t tokens, double tokens_per_second,
                       double eta_s) {
  if (!is_terminal_ || tokens == 0) return;
  constexpr int kWidth = 32;
  const int filled = static_cast<int>(kWidth * tokens_done / tokens);
  const std::string bar = std::string(filled, '#') + std::string(kWidth - filled, '.');
  std::fprintf(stderr, "\r\033[K[%s] %3llu %%  %llu/%llu tokens  %.0f tokens/s  %.0f s left",
               bar.c_str(), static_cast<unsigned long long>(100 * tokens_done / tokens),
               static_cast<unsigned long long>(tokens_done),
               static_cast<unsigned long long>(tokens), tokens_per_second, eta_s);
  std::fflush(stderr);
  shown_ = true;
}

}  // namespace deltafill::client
