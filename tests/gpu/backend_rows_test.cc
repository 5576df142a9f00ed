// Row operators and the delta rule through the operator interface: values against float64, bits of
// a row alone and among others.
#include <algorithm>

#include "tests/gpu/backend_fixture.h"
#include "tests/testing/delta_rule_reference.h"
#include "tests/testing/operator_reference.h"
#include "tests/testing/relative_error.h"

namespace deltafill::test {
namespace {

using kernels::DType;
using kernels::MutableRows;

MutableRows Rows(const BackendBuffer& buffer, int64_t stride) {
  return {buffer.as<void>(), DType::kBF16, stride};
}

class BackendRowsTest : public CudaBackendTest {};

TEST_F(BackendRowsTest, EmbeddingGathersRows) {
  Random random(1);
  const int64_t vocabulary = 1000, width = 264;
  const std::vector<float> table = Bf16Normal(&random, vocabulary * width);
  const auto weight = NewWeight(table, vocabulary, width);
  std::vector<uint32_t> tokens;
  for (int i = 0; i < 70000; ++i) {
    tokens.push_back(static_cast<uint32_t>(random.Integer(0, vocabulary - 1)));
  }
  const int64_t rows = static_cast<int64_t>(tokens.size());
  const BackendBuffer y(backend_, static_cast<size_t>(rows * width * 2));
  Must(lane_->Embedding({weight.get(), tokens, Rows(y, width)}));
  const std::vector<float> got = ReadBf16(y);
  for (int64_t row = 0; row < rows; ++row) {
    const auto from = table.begin() + tokens[static_cast<size_t>(row)] * width;
    ASSERT_TRUE(std::equal(from, from + width, got.begin() + row * width)) << row;
  }
  tokens[69999] = 1000;
  EXPECT_EQ(lane_->Embedding({weight.get(), tokens, Rows(y, width)}).code(),
            kernels::StatusCode::kInvalidArgument);
}

TEST_F(BackendRowsTest, SwiGlu) {
  Random random(2);
  for (const int64_t width : {8, 264, 5632}) {
    const int64_t rows = 61, stride = 2 * width;
    std::vector<float> gate_up = Bf16Normal(&random, rows * stride, 2.0);
    gate_up[0] = -300.0f;  // silu underflows
    gate_up[1] = 300.0f;
    std::vector<float> gate, up;
    for (int64_t row = 0; row < rows; ++row) {
      const auto begin = gate_up.begin() + row * stride;
      gate.insert(gate.end(), begin, begin + width);
      up.insert(up.end(), begin + width, begin + stride);
    }
    const BackendBuffer in = UploadBf16(gate_up), y(backend_, rows * width * 2);
    kernels::SwiGluParams params;
    params.gate = Rows(in, stride);
    params.up = {in.as<uint16_t>() + width, DType::kBF16, stride};
    params.y = Rows(y, width);
    params.rows = rows;
    params.width = width;
    Must(lane_->SwiGlu(params));
    const std::vector<double> expected = SwiGluReference(gate, up);
    EXPECT_LE(RelativeError(ReadBf16(y), expected), 3e-3) << width;
    const std::vector<float> apart = ReadBf16(y);
    params.y = {in.as<uint16_t>() + width, DType::kBF16, stride};  // over `up`
    Must(lane_->SwiGlu(params));
    const std::vector<float> over = ReadBf16(in);
    for (int64_t row = 0; row < rows; ++row) {
      EXPECT_TRUE(std::equal(apart.begin() + row * width, apart.begin() + (row + 1) * width,
                             over.begin() + row * stride + width));
    }
  }
}

// A row among others and alone has the same bits.
TEST_F(BackendRowsTest, RowInvariance) {
  Random random(3);
  const int64_t rows = 500, width = 2048;
  const BackendBuffer x = UploadBf16(Bf16Normal(&random, rows * width));
  const BackendBuffer gate = UploadBf16(Bf16Normal(&random, rows * width));
  const BackendBuffer weight = Upload(random.NormalVector(width, 0.2, 1.0));
  const auto at = [&](const BackendBuffer& buffer, int64_t row) {
    return MutableRows{buffer.as<uint16_t>() + row * width, DType::kBF16, width};
  };
  const auto norm = [&](int64_t first, int64_t count, int64_t groups) {
    const BackendBuffer y(backend_, count * width * 2);
    Must(lane_->RmsNorm({.x = at(x, first),
                         .weight = weight.as<float>(),
                         .gate = groups > 1 ? at(gate, first) : MutableRows{},
                         .y = Rows(y, width),
                         .rows = count,
                         .groups = groups,
                         .width = width / groups}));
    return ReadBf16(y);
  };
  const auto swiglu = [&](int64_t first, int64_t count, int64_t) {
    const BackendBuffer y(backend_, count * width * 2);
    Must(lane_->SwiGlu({at(gate, first), at(x, first), Rows(y, width), count, width}));
    return ReadBf16(y);
  };
  const auto check = [&](const auto& run, int64_t groups) {
    const std::vector<float> all = run(0, rows, groups);
    for (int64_t count : {1, 2, 31, 64, 65, 499}) {
      const int64_t first = (count * 37) % (rows - count + 1);
      const std::vector<float> some = run(first, count, groups);
      EXPECT_EQ(ByteDifference(some, std::span(all).subspan(first * width, count * width)), "");
    }
  };
  check(norm, 1);
  check(norm, 16);
  check(swiglu, 1);
}

// Convolution, rule and steps of two packed sequences, with states and tails in one buffer as a
// worker keeps them.
TEST_F(BackendRowsTest, ConvolutionTailsAndRule) {
  Random random(4);
  kernels::DeltaRuleShape shape;
  shape.heads = shape.value_heads = 2;
  shape.key_dim = shape.value_dim = 128;
  shape.gate = kernels::GateKind::kChannelSoftplus;
  const int64_t width = 256, rows = 300;
  const std::vector<int64_t> offsets = {0, 100, rows};
  DeltaRuleRows host;
  host.rows = rows;
  host.q = Bf16Normal(&random, rows * width);
  host.k = Bf16Normal(&random, rows * width);
  host.v = Bf16Normal(&random, rows * width);
  host.f = Bf16Normal(&random, rows * width);
  host.beta = Bf16Normal(&random, rows * 2);
  host.a_log = random.UniformVector(2, -2.0, -1.0);
  host.dt_bias = random.UniformVector(width, -0.5, 0.5);
  const BackendBuffer q = UploadBf16(host.q), k = UploadBf16(host.k), v = UploadBf16(host.v);
  const BackendBuffer f = UploadBf16(host.f), beta = UploadBf16(host.beta);
  const BackendBuffer a_log = Upload(host.a_log), dt_bias = Upload(host.dt_bias);
  const BackendBuffer o(backend_, rows * width * 2);
  const int64_t state_size = 2 * 128 * 128;
  const BackendBuffer states(backend_, 2 * state_size * 4);
  float* const finals[] = {states.as<float>(), states.as<float>() + state_size};
  kernels::DeltaRuleForwardParams params;
  params.shape = shape;
  params.in = {Rows(q, width), Rows(k, width),    Rows(v, width),     Rows(f, width),
               Rows(beta, 2),  a_log.as<float>(), dt_bias.as<float>()};
  params.offsets = offsets;
  params.o = Rows(o, width);
  params.final_states = finals;
  Must(lane_->DeltaRuleForward(params));
  const std::vector<float> got = ReadBf16(o), got_states = Read<float>(states);
  for (size_t s = 0; s < 2; ++s) {
    const auto cut = [&](const std::vector<float>& all, int64_t columns) {
      return std::vector<float>(all.begin() + offsets[s] * columns,
                                all.begin() + offsets[s + 1] * columns);
    };
    DeltaRuleRows part = {
        offsets[s + 1] - offsets[s], cut(host.q, width), cut(host.k, width), cut(host.v, width),
        cut(host.f, width),          cut(host.beta, 2),  host.a_log,         host.dt_bias};
    std::vector<double> state(state_size, 0.0);
    const std::vector<double> expected = ReferenceForward(shape, part, &state);
    EXPECT_LE(MaxHeadRelativeError(cut(got, width), expected, part.rows, 2, 128), 1e-2);
    const auto begin = got_states.begin() + static_cast<int64_t>(s) * state_size;
    EXPECT_LE(RelativeError(std::vector<float>(begin, begin + state_size), state), 1e-2);
  }

  const BackendBuffer conv_weight = Upload(random.NormalVector(width * 4, 0.5));
  const BackendBuffer tails(backend_, 2 * width * 3 * 4), convolved(backend_, rows * width * 2);
  float* const tails_out[] = {tails.as<float>(), tails.as<float>() + width * 3};
  Must(lane_->ShortConv({.x = Rows(q, width),
                         .weight = conv_weight.as<float>(),
                         .offsets = offsets,
                         .tails_out = tails_out,
                         .y = Rows(convolved, width),
                         .channels = width}));
  const BackendBuffer tail(backend_, width * 3 * 4);
  Must(lane_->ConvTail(
      {.x = Rows(q, width), .tokens = 100, .tail_out = tail.as<float>(), .channels = width}));
  const std::vector<float> both = Read<float>(tails);
  EXPECT_EQ(ByteDifference(Read<float>(tail), std::span(both).first(width * 3)), "");
  const std::vector<float> first(host.q.begin(), host.q.begin() + 100 * width);
  const std::vector<double> conv_expected =
      ShortConvReference(first, Read<float>(conv_weight), {}, 100, width);
  std::vector<float> conv_got = ReadBf16(convolved);
  conv_got.resize(100 * width);
  EXPECT_LE(RelativeError(conv_got, conv_expected), 3e-3);
}

// Convolutions of a row a sequence, as decoding has them, carry on where longer ones end, bit for
// bit; the first row has no tail before it, tails lie anywhere.
TEST_F(BackendRowsTest, ConvolutionsOfSingleRows) {
  Random random(5);
  const int64_t width = 264, rows = 7;
  const BackendBuffer x = UploadBf16(Bf16Normal(&random, 2 * rows * width));
  const BackendBuffer weight = Upload(random.NormalVector(width * 4, 0.5));
  for (const int64_t shift : {0, 1}) {  // floats from an aligned address
    const int64_t tail_floats = width * 3 + shift;
    const BackendBuffer tails(backend_, static_cast<size_t>(2 * tail_floats) * 4);
    float* const tail[] = {tails.as<float>() + shift, tails.as<float>() + tail_floats + shift};
    const BackendBuffer whole(backend_, 2 * rows * width * 2);
    const auto run = [&](const std::vector<int64_t>& offsets, int64_t first, bool starts,
                         const BackendBuffer& y) {
      Must(lane_->ShortConv({.x = {x.as<uint16_t>() + first * width, DType::kBF16, width * rows},
                             .weight = weight.as<float>(),
                             .offsets = offsets,
                             .tails_in = starts ? nullptr : tail,
                             .tails_out = tail,
                             .y = {y.as<uint16_t>() + first * width, DType::kBF16, width * rows},
                             .channels = width}));
    };
    // Sequence s is row s of each of `rows` calls.
    const BackendBuffer steps(backend_, 2 * rows * width * 2);
    for (int64_t row = 0; row < rows; ++row) run({0, 1, 2}, row, row == 0, steps);
    const std::vector<float> step_tails = Read<float>(tails);
    for (int64_t s = 0; s < 2; ++s) {
      const BackendBuffer tail_of_one(backend_, width * 3 * 4);
      float* const out[] = {tail_of_one.as<float>()};
      Must(lane_->ShortConv({.x = {x.as<uint16_t>() + s * rows * width, DType::kBF16, width},
                             .weight = weight.as<float>(),
                             .offsets = std::vector<int64_t>{0, rows},
                             .tails_out = out,
                             .y = {whole.as<uint16_t>() + s * rows * width, DType::kBF16, width},
                             .channels = width}));
      EXPECT_EQ(ByteDifference(Read<float>(tail_of_one),
                               std::span(step_tails)
                                   .subspan(static_cast<size_t>(s * tail_floats + shift),
                                            static_cast<size_t>(width * 3))),
                "");
    }
    EXPECT_EQ(Read<uint16_t>(steps), Read<uint16_t>(whole)) << shift;
  }
}

}  // namespace
}  // namespace deltafill::test
