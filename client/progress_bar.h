// A one-line progress bar on a terminal; nothing elsewhere.
#ifndef DELTAFILL_CLIENT_PROGRESS_BAR_H_
#define DELTAFILL_CLIENT_PROGRESS_BAR_H_

namespace deltafill::v1 {
class PrefillProgress;
}

namespace deltafill::client {

class ProgressBar {
 public:
  ProgressBar();
  ~ProgressBar();  // clears the line
  void Show(const v1::PrefillProgress& progress);

 private:
  bool is_terminal_;
  bool shown_ = false;
};

}  // namespace deltafill::client

#endif  // DELTAFILL_CLIENT_PROGRESS_BAR_H_
