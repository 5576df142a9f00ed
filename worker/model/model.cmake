# deltafill_model: config, weights and layers of a model in a backend's memory.
add_library(deltafill_model INTERFACE)
target_link_libraries(deltafill_model INTERFACE deltafill_options deltafill_kernels)
