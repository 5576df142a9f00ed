// A manifest as the API shows it.
#ifndef DELTAFILL_COORDINATOR_FRONT_DESCRIBE_H_
#define DELTAFILL_COORDINATOR_FRONT_DESCRIBE_H_

#include <cstddef>

#include "statestore/store.h"

namespace deltafill::v1 {
class StateDescription;
}  // namespace deltafill::v1

namespace deltafill::coordinator {

void DescribeState(const Manifest& manifest, size_t tail_tokens, v1::StateDescription* description);

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_FRONT_DESCRIBE_H_
