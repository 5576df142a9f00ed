// The wavefront's efficiency by prompt length and workers, from the planner's own model of the grid
// and layer times that were measured: nothing is run.
//
// Usage: wavefront_grid_bench MODEL_DIRECTORY TOKENS...
//        wavefront_grid_bench given LAYERS ATTENTION_LAYERS COSTS TOKENS...
// The first measures this machine's CPU, one thread, as a worker does at start. In the second:
//   ATTENTION_LAYERS  comma-separated indices, or "-"
//   COSTS             eleven seconds and fractions, comma-separated: layer_fixed, layer_token,
//                     range_fixed, handover_fraction, exchange; and of attention: fixed, token,
//                     pair, handover_fraction, row_exchange, key
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "coordinator/planner/plan.h"
#include "worker/exchange/worker_exchange.h"
#include "worker/runtime/cost_probe.h"
#include "worker/runtime/worker.h"

namespace deltafill::coordinator {
namespace {

std::vector<double> Numbers(const std::string& text) {
  std::vector<double> numbers;
  std::istringstream in(text);
  for (std::string item; std::getline(in, item, ',');) numbers.push_back(std::atof(item.c_str()));
  return numbers;
}

int Print(uint32_t layers, const std::vector<uint32_t>& attention, const WorkerCosts& costs,
          const std::vector<uint64_t>& lengths) {
  std::printf("| tokens | workers | range | predicted, s | one worker, s | efficiency |\n");
  std::printf("|---|---|---|---|---|---|\n");
  for (uint64_t tokens : lengths) {
    for (size_t workers : {2, 8, 16}) {
      PlanProblem problem;
      problem.end_token = tokens;
      problem.layers = layers;
      problem.attention_layers = attention;
      problem.wavefront_only = true;
      const std::vector<WorkerSlot> slots(workers, WorkerSlot{costs, 8192, 0.0});
      const auto plan = Plan(problem, slots, PlanOptions());
      if (!plan.ok()) {
        std::fprintf(stderr, "%s\n", plan.status().ToString().c_str());
        return 1;
      }
      const double alone_s = RangeSeconds(costs, {0, tokens}, LayerStack(layers, attention));
      std::printf("| %llu | %zu | %llu | %.4g | %.4g | %.3f |\n",
                  static_cast<unsigned long long>(tokens), workers,
                  static_cast<unsigned long long>(plan->range_tokens), plan->predicted_s, alone_s,
                  alone_s / (static_cast<double>(workers) * plan->predicted_s));
    }
  }
  return 0;
}

int Measure(const std::string& directory, const std::vector<uint64_t>& lengths) {
  std::unique_ptr<kernels::Backend> backend;
  if (const kernels::Status opened = kernels::NewCpuBackend({}, &backend); !opened.ok()) {
    std::fprintf(stderr, "%s\n", opened.message().c_str());
    return 1;
  }
  const auto loaded = worker::LoadModel(directory, std::move(backend));
  if (!loaded.ok()) {
    std::fprintf(stderr, "%s\n", loaded.status().ToString().c_str());
    return 1;
  }
  worker::Model& model = **loaded;
  worker::WorkerExchange exchange(std::make_shared<worker::Mailbox>(model.state_layout()), nullptr,
                                  worker::ExchangeLinkLimits(), nullptr);
  exchange.SetWorker(0);
  const auto c = worker::MeasureCosts(model, exchange, {0, ""}, {});
  if (!c.ok()) {
    std::fprintf(stderr, "%s\n", c.status().ToString().c_str());
    return 1;
  }
  const worker::AttentionCosts& a = c->attention;
  const WorkerCosts costs{
      c->layer_fixed_s,
      c->layer_token_s,
      c->range_fixed_s,
      c->handover_fraction,
      c->exchange_s,
      {a.fixed_s, a.token_s, a.pair_s, a.handover_fraction, a.row_exchange_s, a.key_s}};
  std::printf("costs %.3g,%.3g,%.3g,%.3g,%.3g,%.3g,%.3g,%.3g,%.3g,%.3g,%.3g\n\n",
              costs.layer_fixed_s, costs.layer_token_s, costs.range_fixed_s,
              costs.handover_fraction, costs.exchange_s, a.fixed_s, a.token_s, a.pair_s,
              a.handover_fraction, a.row_exchange_s, a.key_s);
  return Print(static_cast<uint32_t>(model.config().layers.size()),
               model.state_layout().latents.layers, costs, lengths);
}

int Main(const std::vector<std::string>& arguments) {
  const bool given = !arguments.empty() && arguments[0] == "given";
  const size_t first_length = given ? 4 : 1;
  std::vector<uint64_t> lengths;
  for (size_t i = first_length; i < arguments.size(); ++i) {
    lengths.push_back(std::strtoull(arguments[i].c_str(), nullptr, 10));
  }
  if (lengths.empty()) {
    std::fprintf(stderr, "usage: see the first lines of wavefront_grid_bench.cc\n");
    return 2;
  }
  if (!given) return Measure(arguments[0], lengths);
  const std::vector<double> c = Numbers(arguments[3]);
  if (c.size() != 11) {
    std::fprintf(stderr, "COSTS: %zu numbers, not 11\n", c.size());
    return 2;
  }
  std::vector<uint32_t> attention;
  if (arguments[2] != "-") {
    for (double layer : Numbers(arguments[2])) attention.push_back(static_cast<uint32_t>(layer));
  }
  const WorkerCosts costs{c[0], c[1], c[2], c[3], c[4], {c[5], c[6], c[7], c[8], c[9], c[10]}};
  return Print(static_cast<uint32_t>(std::atoi(arguments[1].c_str())), attention, costs, lengths);
}

}  // namespace
}  // namespace deltafill::coordinator

int main(int argc, char** argv) {
  return deltafill::coordinator::Main(std::vector<std::string>(argv + 1, argv + argc));
}
