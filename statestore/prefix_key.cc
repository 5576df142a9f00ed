#include "statestore/prefix_key.h"

#include <bit>

#include "statestore/sha256.h"

namespace deltafill {
namespace {

static_assert(std::endian::native == std::endian::little,
              "tokens are hashed as they lie in memory");

constexpr std::string_view kRootPrefix{"deltafill.root.1\0", 17};
constexpr size_t kStepBytes = 1 + 32 + kBlockTokenCount * sizeof(uint32_t);

// One message a step: 0x01, the key before, the block.
class ChainHasher {
 public:
  StateId Next(const StateId& previous, const uint32_t* block) {
    message_[0] = std::byte{1};
    std::memcpy(&message_[1], previous.bytes.data(), 32);
    std::memcpy(&message_[33], block, kBlockTokenCount * sizeof(uint32_t));
    hasher_.Update(message_);
    return StateId{hasher_.Finish()};
  }

 private:
  Sha256 hasher_;
  std::array<std::byte, kStepBytes> message_;
};

}  // namespace

NumericsId HashNumerics(std::string_view numerics) {
  Sha256 hasher;
  hasher.Update(numerics);
  return NumericsId{hasher.Finish()};
}

StateId RootKey(const ModelFingerprint& fingerprint, const NumericsId& numerics,
                const TenantSalt& salt) {
  Sha256 hasher;
  hasher.Update(kRootPrefix);
  hasher.Update(fingerprint.view());
  hasher.Update(numerics.view());
  hasher.Update(salt.view());
  return StateId{hasher.Finish()};
}

StateId NextKey(const StateId& previous, std::span<const uint32_t, kBlockTokenCount> block) {
  return ChainHasher().Next(previous, block.data());
}

std::vector<StateId> KeyChain(const StateId& from, std::span<const uint32_t> tokens) {
  const size_t block_count = tokens.size() / kBlockTokenCount;
  std::vector<StateId> chain(block_count);
  ChainHasher hasher;
  StateId previous = from;
  for (size_t block = 0; block < block_count; ++block) {
    previous = hasher.Next(previous, tokens.data() + block * kBlockTokenCount);
    chain[block] = previous;
  }
  return chain;
}

}  // namespace deltafill
