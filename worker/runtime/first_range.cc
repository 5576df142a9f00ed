#include "worker/runtime/first_range.h"

#include <utility>
#include <vector>

#include "worker/model/status_steps.h"

namespace deltafill::worker {

absl::Status RunFirstRange(Model& model, Lane& lane, const PortLane& port_lane, int64_t token_count,
                           StateBufferRef outgoing, LatentCache& latents) {
  DELTAFILL_TRY(latents.Reserve(token_count + 1));
  const std::vector<uint32_t> tokens(static_cast<size_t>(token_count), 0);
  RangePass pass;
  pass.flag = std::make_shared<AttemptFlag>();
  pass.outgoing = std::move(outgoing);
  pass.latents = &latents;
  pass.token_count = tokens.size();
  RangePort port(port_lane, std::move(pass));
  const RangeWork work{tokens, {}, &port};
  absl::Status status = model.Prefill(lane, {&work, 1});
  status.Update(port.Finish());
  return status;
}

}  // namespace deltafill::worker
