// A prompt with the keys of its boundaries: whole, or the tokens after a state that somebody holds
// a handle of (whose own tokens nobody needs to know).
#ifndef DELTAFILL_COORDINATOR_FRONT_KEYED_PROMPT_H_
#define DELTAFILL_COORDINATOR_FRONT_KEYED_PROMPT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/prompt_engine.h"
#include "statestore/identity.h"
#include "statestore/store.h"

namespace deltafill::coordinator {

struct KeyedPrompt {
  std::string tenant;
  ServedModel model;
  TenantSalt salt;
  StateId root;                  // of the key chain
  uint64_t base = 0;             // tokens before `tokens`, a multiple of 64
  StateId base_key;              // of the state at `base`; the root at 0
  std::vector<uint32_t> tokens;  // after base; at least one
  std::vector<StateId> chain;    // chain[i]: the key at base + 64 * (i + 1)

  uint64_t TokenCount() const { return base + tokens.size(); }
  // boundary: a multiple of 64 in [base, base + 64 * chain.size()].
  const StateId& KeyAt(uint64_t boundary) const {
    return boundary == base ? base_key : chain[(boundary - base) / kBlockTokenCount - 1];
  }
  // Tokens at positions [begin, end), begin >= base.
  std::vector<uint32_t> TokensBetween(uint64_t begin, uint64_t end) const;
  // The handle of a position: the state at `boundary` and the tokens from there to `position`.
  std::string HandleAt(uint64_t boundary, uint64_t position) const;
};

// From the zero state.
KeyedPrompt KeyWholePrompt(std::string tenant, ServedModel model, const TenantSalt& salt,
                           std::vector<uint32_t> tokens);

// From the state of a manifest.
KeyedPrompt KeyFromState(ServedModel model, const TenantSalt& salt, const Manifest& manifest,
                         std::vector<uint32_t> tokens);

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_FRONT_KEYED_PROMPT_H_
