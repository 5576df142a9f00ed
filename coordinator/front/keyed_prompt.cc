#include "coordinator/front/keyed_prompt.h"

#include <utility>

#include "coordinator/front/handle.h"
#include "statestore/prefix_key.h"

namespace deltafill::coordinator {

std::vector<uint32_t> KeyedPrompt::TokensBetween(uint64_t begin, uint64_t end) const {
  return {tokens.begin() + static_cast<int64_t>(begin - base),
          tokens.begin() + static_cast<int64_t>(end - base)};
}

std::string KeyedPrompt::HandleAt(uint64_t boundary, uint64_t position) const {
  PrefixRef ref;
  ref.state = KeyAt(boundary);
  ref.zero = boundary == 0;
  ref.tail = TokensBetween(boundary, position);
  return EncodePrefixRef(ref);
}

KeyedPrompt KeyWholePrompt(std::string tenant, ServedModel model, const TenantSalt& salt,
                           std::vector<uint32_t> tokens) {
  KeyedPrompt prompt;
  prompt.tenant = std::move(tenant);
  prompt.salt = salt;
  prompt.root = RootKey(model.fingerprint, HashNumerics(model.numerics), salt);
  prompt.base_key = prompt.root;
  prompt.model = std::move(model);
  prompt.chain = KeyChain(prompt.root, tokens);
  prompt.tokens = std::move(tokens);
  return prompt;
}

KeyedPrompt KeyFromState(ServedModel model, const TenantSalt& salt, const Manifest& manifest,
                         std::vector<uint32_t> tokens) {
  KeyedPrompt prompt;
  prompt.tenant = manifest.tenant;
  prompt.model = std::move(model);
  prompt.salt = salt;
  prompt.root = manifest.root;
  prompt.base = manifest.boundary;
  prompt.base_key = manifest.state;
  prompt.chain = KeyChain(prompt.base_key, tokens);
  prompt.tokens = std::move(tokens);
  return prompt;
}

}  // namespace deltafill::coordinator
