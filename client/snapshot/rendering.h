// The text of a snapshot: a header that never changes, then each file between two fence lines.
//
//   ===== path
//   contents
//   ===== end
//
// A fence is at least five '=' and one more than any line of the contents begins with, so that
// contents cannot imitate it. A file's text depends on its path and contents alone.
#ifndef DELTAFILL_CLIENT_SNAPSHOT_RENDERING_H_
#define DELTAFILL_CLIENT_SNAPSHOT_RENDERING_H_

#include <string>
#include <string_view>

namespace deltafill::client {

std::string_view RenderedHeader();

// A path for people and records: itself, or, if it has quotes, backslashes, control characters or
// bytes that are no UTF-8, in double quotes with \ooo escapes (as git prints it). Different paths
// stay different.
std::string QuotePath(std::string_view path);

// quoted_path: from QuotePath. A newline is added to contents without one at the end.
std::string RenderFile(std::string_view quoted_path, std::string_view contents);

}  // namespace deltafill::client

#endif  // DELTAFILL_CLIENT_SNAPSHOT_RENDERING_H_
