// The chain of prefix keys. DESIGN section 6:
//   root = SHA-256("deltafill.root.1" || 0x00 || fingerprint || numerics id || tenant salt)
//   h_i  = SHA-256(0x01 || h_(i-1) || 64 token ids as u32 little-endian)
// Keys exist at block ends only. The key of boundary 0 is the root: the zero state, never stored.
#ifndef DELTAFILL_STATESTORE_PREFIX_KEY_H_
#define DELTAFILL_STATESTORE_PREFIX_KEY_H_

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "statestore/identity.h"

namespace deltafill {

NumericsId HashNumerics(std::string_view numerics);

StateId RootKey(const ModelFingerprint& fingerprint, const NumericsId& numerics,
                const TenantSalt& salt);

// The key one block after `previous`; block has exactly 64 tokens.
StateId NextKey(const StateId& previous, std::span<const uint32_t, kBlockTokenCount> block);

// Keys of every whole block of tokens, in order: result[i] is the key at token 64 * (i + 1) after
// `from`. Tokens past the last whole block are ignored.
std::vector<StateId> KeyChain(const StateId& from, std::span<const uint32_t> tokens);

}  // namespace deltafill

#endif  // DELTAFILL_STATESTORE_PREFIX_KEY_H_
