// A one-line progress bar on a terminal; nothing elsewhere.
#ifndef DELTAFILL_CLIENT_PROGRESS_BAR_H_
#define DELTAFILL_CLIENT_PROGRESS_BAR_H_

#include <cstdint>

namespace deltafill::client {

class ProgressBar {
 public:
  ProgressBar();
  ~ProgressBar();  // clears the line
  void Show(uint64_t tokens_done, uint64_t tokens, double tokens_per_second, double eta_s);

 private:
  bool is_terminal_;
  bool shown_ = false;
};

}  // namespace deltafill::client

#endif  // DELTAFILL_CLIENT_PROGRESS_BAR_H_
