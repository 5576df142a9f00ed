// Calls into RocksDB that ThreadSanitizer must not judge.
#ifndef DELTAFILL_STATESTORE_UNWATCHED_CALL_H_
#define DELTAFILL_STATESTORE_UNWATCHED_CALL_H_

#ifdef __SANITIZE_THREAD__
extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace deltafill {

// RocksDB joins concurrent writes into one, under atomics of its own. It is not instrumented, but
// std::string, which it shares with us, is: its own strings would seem to race. Ignores what this
// thread reads and writes while it lives; nothing in other builds.
class UnwatchedCall {
 public:
#ifdef __SANITIZE_THREAD__
  UnwatchedCall() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~UnwatchedCall() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
#else
  UnwatchedCall() {}
  ~UnwatchedCall() {}
#endif
  UnwatchedCall(const UnwatchedCall&) = delete;
  UnwatchedCall& operator=(const UnwatchedCall&) = delete;
};

}  // namespace deltafill

#endif  // DELTAFILL_STATESTORE_UNWATCHED_CALL_H_
