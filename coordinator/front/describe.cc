#include "coordinator/front/describe.h"

#include "coordinator/front/handle.h"
#include "coordinator/front/publish.h"
#include "proto/prefill.pb.h"

namespace deltafill::coordinator {
void DescribeState(const Manifest& manifest, size_t tail_tokens,
                   v1::StateDescription* description) {
  description->set_state_id(EncodeStateName(manifest.state));
  description->set_boundary(manifest.boundary);
  description->set_tail_tokens(static_cast<uint32_t>(tail_tokens));
  description->set_model_fingerprint(manifest.fingerprint.ToHex());
  description->set_numerics(manifest.numerics);
  description->set_bytes(PartBytes(manifest.parts));
  description->set_created_unix_ms(manifest.created_unix_ms);
  description->set_pinned(manifest.pinned);
  description->set_damage(manifest.damage);
  for (const PartRef& part : manifest.parts) {
    v1::PartDescription* described = description->add_parts();
    described->set_id(part.id.ToHex());
    described->set_kind(PartKindName(part.kind));
    described->set_bytes(part.bytes);
  }
}

}  // namespace deltafill::coordinator
