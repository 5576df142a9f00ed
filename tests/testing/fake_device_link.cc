#include "tests/testing/fake_device_link.h"

#include <chrono>
#include <cstring>
#include <utility>

#include "tests/testing/fake_device.h"

namespace deltafill::test {

using kernels::Status;
using kernels::StatusCode;
using std::chrono::milliseconds;
using worker::DeviceLinkId;
using worker::LinkEnd;
using worker::StopAsked;
using Clock = std::chrono::steady_clock;

namespace {

constexpr milliseconds kPoll{2};

Status Failed(const std::string& why) { return {StatusCode::kInternal, why}; }

}  // namespace

class FakeLink final : public worker::DeviceLink {
 public:
  FakeLink(std::shared_ptr<CardSwitch> cards, std::string card, const DeviceLinkId& id, LinkEnd end)
      : cards_(std::move(cards)), card_(std::move(card)), id_(id), end_(end) {}

  ~FakeLink() override {
    std::lock_guard lock(cards_->mutex_);
    --cards_->links_alive_;
    if (end_ == LinkEnd::kSender) cards_->paths_[id_].sent.clear();
  }

  Status Send(const void* from, size_t bytes, const StopAsked&) override {
    std::lock_guard lock(cards_->mutex_);
    if (broken_ || cards_->CountDown(card_)) return Break("send failed");
    cards_->paths_[id_].sent.push_back({static_cast<const std::byte*>(from), bytes});
    cards_->changed_.notify_all();
    return {};
  }

  Status Receive(void* to, size_t bytes, const StopAsked& stop) override {
    std::unique_lock lock(cards_->mutex_);
    const auto start = Clock::now();
    for (;;) {
      const CardFaults& faults = cards_->faults_[card_];
      const auto waited = Clock::now() - start;
      std::deque<CardSwitch::Sent>& sent = cards_->paths_[id_].sent;
      if (!sent.empty() && !faults.receive_hangs && waited >= faults.receive_delay) break;
      if (waited >= faults.transfer_timeout) return Break("nothing came in time");
      lock.unlock();
      const bool stopped = stop && stop();  // may take locks of its own
      lock.lock();
      if (stopped) return Break("told to stop");
      cards_->changed_.wait_for(lock, kPoll);
    }
    if (broken_ || cards_->CountDown(card_)) return Break("receive failed");
    const CardSwitch::Sent sent = cards_->paths_[id_].sent.front();
    cards_->paths_[id_].sent.pop_front();
    if (sent.bytes != bytes) return Break("sent and received sizes differ");
    std::memcpy(BehindAddress(to), BehindAddress(sent.from),
                bytes);  // with the mutex: the sender cannot go meanwhile
    ++cards_->transfers_;
    return {};
  }

 private:
  Status Break(const std::string& why) {
    broken_ = true;
    return Failed(why);
  }

  const std::shared_ptr<CardSwitch> cards_;
  const std::string card_;
  const DeviceLinkId id_;
  const LinkEnd end_;
  bool broken_ = false;
};

class FakeTransport final : public worker::DeviceTransport {
 public:
  FakeTransport(std::shared_ptr<CardSwitch> cards, std::string card)
      : cards_(std::move(cards)), card_(std::move(card)) {}

  const std::string& card() const override { return card_; }
  const std::string& description() const override { return description_; }

  Status NewLinkId(DeviceLinkId* out) override {
    std::lock_guard lock(cards_->mutex_);
    const uint64_t id = ++cards_->ids_;
    out->fill(0);
    std::memcpy(out->data(), &id, sizeof(id));
    return {};
  }

  Status Open(const DeviceLinkId& id, LinkEnd end, milliseconds timeout, const StopAsked& stop,
              std::unique_ptr<worker::DeviceLink>* out) override {
    const auto deadline = Clock::now() + timeout;
    std::unique_lock lock(cards_->mutex_);
    if (cards_->faults_[card_].open_fails) return Failed("opening fails");
    cards_->paths_[id].opened[static_cast<int>(end)] = true;
    for (;;) {
      CardSwitch::Path& path = cards_->paths_[id];
      if (path.opened[0] && path.opened[1] && !cards_->faults_[card_].open_hangs) break;
      if (Clock::now() >= deadline) return Failed("opening was not done in time");
      lock.unlock();
      const bool stopped = stop && stop();
      lock.lock();
      if (stopped) return Failed("told to stop");
      cards_->changed_.wait_for(lock, kPoll);
    }
    cards_->changed_.notify_all();
    ++cards_->links_alive_;
    ++cards_->links_opened_;
    *out = std::make_unique<FakeLink>(cards_, card_, id, end);
    return {};
  }

 private:
  const std::shared_ptr<CardSwitch> cards_;
  const std::string card_;
  const std::string description_ = "fake cards";
};

std::shared_ptr<worker::DeviceTransport> CardSwitch::NewCard(const std::string& name) {
  return std::make_shared<FakeTransport>(shared_from_this(), name);
}

void CardSwitch::SetFaults(const std::string& card, const CardFaults& faults) {
  std::lock_guard lock(mutex_);
  faults_[card] = faults;
  changed_.notify_all();
}

bool CardSwitch::CountDown(const std::string& card) {
  if (faults_[card].transfers_fail) return true;
  int& left = faults_[card].transfers_until_failure;
  if (left < 0) return false;
  return left-- == 0;
}

int CardSwitch::links_alive() const {
  std::lock_guard lock(mutex_);
  return links_alive_;
}

int CardSwitch::links_opened() const {
  std::lock_guard lock(mutex_);
  return links_opened_;
}

int CardSwitch::ids_made() const {
  std::lock_guard lock(mutex_);
  return static_cast<int>(ids_);
}

int CardSwitch::transfers() const {
  std::lock_guard lock(mutex_);
  return transfers_;
}

}  // namespace deltafill::test
