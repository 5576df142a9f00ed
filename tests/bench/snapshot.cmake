# Orders of a snapshot's files: snapshot_orders.py counts what they would recompute.
add_executable(file_order_bench file_order_bench.cc)
target_link_libraries(file_order_bench PRIVATE deltafill_options deltafill_snapshot_tree)
