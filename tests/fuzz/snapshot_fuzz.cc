// What snapshots read that others wrote: records from the disk, ignore files, names and contents of
// hostile trees.
#include <xxhash.h>

#include <cstdlib>
#include <string>

#include "client/snapshot/ignore_rules.h"
#include "client/snapshot/rendering.h"
#include "client/snapshot/text_filter.h"
#include "statestore/records.h"
#include "statestore/snapshot_record_message.h"

namespace deltafill {
namespace {

void Check(bool holds) {
  if (!holds) std::abort();
}

void DecodeRecord(std::string_view encoded) {
  const absl::StatusOr<SnapshotRecord> record = DecodeSnapshotRecord(encoded);
  if (!record.ok()) {
    Check(absl::IsDataLoss(record.status()));
    return;
  }
  const absl::StatusOr<SnapshotRecord> again = DecodeSnapshotRecord(EncodeSnapshotRecord(*record));
  Check(again.ok() && again->name == record->name && again->holds == record->holds);
  Check(again->contents == record->contents && again->revision == record->revision);
}

// Rules and a path to try them on, a newline apart.
void MatchRules(std::string_view text) {
  const std::string_view path = text.substr(text.rfind('\n') + 1);
  client::IgnoreRules rules;
  rules.Add("", text);
  rules.Add("a/b", text);
  (void)rules.IsIgnoredWithParents(path);
  (void)rules.IsIgnoredWithParents("a/b/" + std::string(path));
}

void Render(std::string_view text) {
  const std::string quoted = client::QuotePath(text);
  Check(client::FindInvalidUtf8(quoted) == std::string::npos);
  Check(quoted.find('\n') == std::string::npos);
  // The closing fence begins a line nowhere but at the end.
  const std::string rendered = client::RenderFile("p", text);
  const std::string fence = rendered.substr(0, rendered.find(' '));
  const size_t first = rendered.find("\n" + fence);
  Check(first + fence.size() + 7 == rendered.size());
  (void)client::WhyLeftOut(quoted, text);
}

}  // namespace
}  // namespace deltafill

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  std::string text(reinterpret_cast<const char*>(bytes), size);
  deltafill::MatchRules(text);
  deltafill::Render(text);
  deltafill::DecodeRecord(text);
  text.insert(text.begin(), '\1');
  text += deltafill::EncodeScalar(uint64_t{XXH3_64bits(text.data(), text.size())});
  deltafill::DecodeRecord(text);
  return 0;
}
