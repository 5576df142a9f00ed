# deltafill_snapshot_tree: from a source tree to a snapshot's tokens; no gRPC.
add_library(deltafill_snapshot_tree STATIC
  snapshot/beneath.cc
  snapshot/composed_snapshot.cc
  snapshot/file_order.cc
  snapshot/git_tree.cc
  snapshot/ignore_rules.cc
  snapshot/order_choice.cc
  snapshot/rendering.cc
  snapshot/source_tree.cc
  snapshot/text_filter.cc
  snapshot/tree_watch.cc)
target_link_libraries(deltafill_snapshot_tree
  PUBLIC deltafill_identity absl::status absl::statusor
  PRIVATE deltafill_options deltafill_tokenizer absl::strings PkgConfig::LIBGIT2)
