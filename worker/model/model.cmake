# deltafill_latent_cache: needs a backend's memory only, like the lanes that fill it.
add_library(deltafill_latent_cache STATIC model/buffer_pool.cc model/latent_cache.cc)
target_link_libraries(deltafill_latent_cache
  PUBLIC deltafill_options deltafill_identity deltafill_kernels_interface absl::status
         absl::statusor
  PRIVATE absl::strings)

# deltafill_model: config, weights and layers of a model in a backend's memory.
add_library(deltafill_model STATIC
  model/checkpoint.cc
  model/checkpoint_reader.cc
  model/config.cc
  model/config_fla_kda.cc
  model/config_hybrid.cc
  model/config_kimi_linear.cc
  model/config_section.cc
  model/dense_mlp.cc
  model/fingerprint.cc
  model/hybrid_model.cc
  model/hybrid_model_load.cc
  model/init.cc
  model/init_config.cc
  model/init_presets.cc
  model/init_tensors.cc
  model/inspect.cc
  model/kda_mixer.cc
  model/lane.cc
  model/load_progress.cc
  model/mapped_file.cc
  model/mla_mixer.cc
  model/model.cc
  model/model_sizes.cc
  model/moe_mlp.cc
  model/parallel_steps.cc
  model/random_reader.cc
  model/safetensors.cc
  model/safetensors_writer.cc
  model/state_layout.cc
  model/step_recorder.cc
  model/strict_json.cc
  model/tokenizer_file.cc)
target_link_libraries(deltafill_model
  PUBLIC deltafill_options deltafill_latent_cache deltafill_kernels deltafill_identity absl::status absl::statusor
         absl::strings absl::str_format
  PRIVATE nlohmann_json::nlohmann_json)
