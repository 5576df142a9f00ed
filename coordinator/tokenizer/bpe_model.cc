#include "coordinator/tokenizer/bpe_model.h"

#include <algorithm>

namespace deltafill::coordinator {

bool BpeModel::AppendMerged(std::string_view piece, MergeScratch* scratch,
                            std::vector<uint32_t>* out) const {
  scratch->ids.resize(piece.size());
  std::transform(piece.begin(), piece.end(), scratch->ids.begin(),
                 [this](char byte) { return byte_tokens_[static_cast<uint8_t>(byte)]; });
  if (std::find(scratch->ids.begin(), scratch->ids.end(), kNoToken) != scratch->ids.end()) {
    return false;
  }
  MergePairs(pairs_, scratch, out);
  return true;
}

}  // namespace deltafill::coordinator
