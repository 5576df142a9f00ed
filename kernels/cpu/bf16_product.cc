#include "kernels/cpu/bf16_product.h"

#include <oneapi/dnnl/dnnl.hpp>

#include <string>

#include "kernels/tensor.h"

namespace deltafill::kernels::cpu {
namespace {

using dnnl::memory;

// Never destroyed: oneDNN's own globals may go first.
const dnnl::engine& Engine() {
  static const auto* const engine = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *engine;
}

// Offsets of the indices of one dimension in a blocked layout. An index is split from the innermost
// block outwards; each piece adds its own stride, so dimensions add up independently.
std::vector<int64_t> DimensionOffsets(const dnnl_memory_desc_t& layout, int dimension,
                                      int64_t count) {
  const dnnl_blocking_desc_t& blocking = layout.format_desc.blocking;
  std::vector<int64_t> offsets(static_cast<size_t>(count));
  for (int64_t index = 0; index < count; ++index) {
    int64_t rest = index;
    int64_t stride = 1;
    int64_t offset = 0;
    for (int i = blocking.inner_nblks - 1; i >= 0; --i) {
      const int64_t size = blocking.inner_blks[i];
      if (blocking.inner_idxs[i] == dimension) {
        offset += (rest % size) * stride;
        rest /= size;
      }
      stride *= size;
    }
    offsets[static_cast<size_t>(index)] = offset + rest * blocking.strides[dimension];
  }
  return offsets;
}

}  // namespace

struct Bf16Product::Primitive {
  dnnl::matmul::primitive_desc description;
  dnnl::matmul matmul;
};

Bf16Product::Bf16Product() = default;
Bf16Product::~Bf16Product() = default;

Status Bf16Product::Create(int64_t in_features, int64_t width, std::unique_ptr<Bf16Product>* out) {
  try {
    using Type = memory::data_type;
    using Tag = memory::format_tag;
    const memory::desc a({kBlockTokens, in_features}, Type::bf16, Tag::ab);
    const memory::desc b({in_features, width}, Type::bf16, Tag::any);
    const memory::desc c({kBlockTokens, width}, Type::f32, Tag::ab);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    auto primitive = std::make_unique<Primitive>();
    primitive->description =
        dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, c), attributes, Engine());
    primitive->matmul = dnnl::matmul(primitive->description);

    const memory::desc tile = primitive->description.weights_desc();
    if (tile.data.format_kind != dnnl_blocked || tile.data.extra.flags != 0) {
      return {StatusCode::kUnsupported, "compute_dtype: oneDNN wants an opaque bf16 weight layout"};
    }
    std::unique_ptr<Bf16Product> product(new Bf16Product);
    product->tile_elements_ = static_cast<int64_t>(tile.get_size() / sizeof(uint16_t));
    product->row_offsets_ = DimensionOffsets(tile.data, 0, in_features);
    product->column_offsets_ = DimensionOffsets(tile.data, 1, width);
    product->primitive_ = std::move(primitive);
    *out = std::move(product);
    return {};
  } catch (const dnnl::error& error) {
    return {StatusCode::kUnsupported,
            std::string("compute_dtype: oneDNN has no bf16 product here: ") + error.what()};
  }
}

size_t Bf16Product::scratch_bytes() const {
  return primitive_->description.scratchpad_desc().get_size();
}

Status Bf16Product::Run(const uint16_t* a, const uint16_t* b, float* c, void* scratch) const {
  const auto view = [](const memory::desc& layout, const void* elements) {
    return memory(layout, Engine(), const_cast<void*>(elements));
  };
  try {
    const auto& description = primitive_->description;
    dnnl::stream stream(Engine());
    primitive_->matmul.execute(
        stream, {{DNNL_ARG_SRC, view(description.src_desc(), a)},
                 {DNNL_ARG_WEIGHTS, view(description.weights_desc(), b)},
                 {DNNL_ARG_DST, view(description.dst_desc(), c)},
                 {DNNL_ARG_SCRATCHPAD, view(description.scratchpad_desc(), scratch)}});
    stream.wait();
    return {};
  } catch (const dnnl::error& error) {
    return {StatusCode::kInternal, std::string("oneDNN bf16 product: ") + error.what()};
  }
}

}  // namespace deltafill::kernels::cpu
