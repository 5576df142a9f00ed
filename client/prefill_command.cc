#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "client/commands.h"
#include "client/connection.h"
#include "client/messages.h"
#include "client/progress_bar.h"
#include "client/prompt_source.h"
#include "client/prompt_upload.h"

namespace deltafill::client {
namespace {

// Without the prompt.
v1::PrefillRequest MakeRequest(const PrefillOptions& options) {
  v1::PrefillRequest request;
  request.set_model(options.model);
  request.mutable_checkpoint_at()->Add(options.checkpoint_at.begin(), options.checkpoint_at.end());
  request.set_checkpoint_every(options.checkpoint_every);
  request.set_no_resume(options.no_resume);
  request.set_return_logits(!options.logits_file.empty());
  request.set_exactness(options.exactness == "any" ? v1::EXACTNESS_ANY : v1::EXACTNESS_EXACT);
  if (options.schedule == "wavefront") request.set_schedule(v1::SCHEDULE_WAVEFRONT);
  return request;
}

bool WriteLogits(const std::string& path, const std::string& values) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(values.data(), static_cast<std::streamsize>(values.size()));
  file.close();
  if (file) return true;
  std::fprintf(stderr, "deltafill: --return-logits %s: cannot write\n", path.c_str());
  return false;
}

// A path that cannot be written shows before anything is computed.
bool CanWrite(const std::string& path) {
  if (path.empty()) return true;
  std::error_code error;  // a path that cannot be looked at cannot be written either
  const bool is_there = std::filesystem::exists(path, error);
  if (std::ofstream(path, std::ios::binary | std::ios::app)) {
    if (!is_there) std::filesystem::remove(path, error);
    return true;
  }
  std::fprintf(stderr, "deltafill: --return-logits %s: cannot write\n", path.c_str());
  return false;
}

// logits_s: until the last token's logits came; 0 if they were not asked for.
Json DoneJson(const v1::PrefillDone& done, double elapsed_s, double logits_s) {
  Json checkpoints = Json::array();
  for (const auto& checkpoint : done.checkpoints()) {
    checkpoints.push_back({{"boundary", checkpoint.boundary()},
                           {"state", checkpoint.state()},
                           {"bytes", checkpoint.bytes()},
                           {"already_stored", checkpoint.already_stored()}});
  }
  return {{"state", done.state()},
          {"boundary", done.boundary()},
          {"tokens", done.tokens()},
          {"cached_tokens", done.cached_tokens()},
          {"miss_reason", done.miss_reason()},
          {"schedule", done.schedule()},
          {"attempts", done.attempts()},
          {"elapsed_s", elapsed_s},
          {"logits_s", logits_s},
          {"checkpoints", std::move(checkpoints)},
          {"usage", ToJson(done.usage())},
          {"timings", ToJson(done.timings())}};
}

void PrintAccepted(const v1::PrefillAccepted& accepted) {
  std::fprintf(stderr, "%llu tokens, %llu cached%s%s; ",
               static_cast<unsigned long long>(accepted.tokens()),
               static_cast<unsigned long long>(accepted.cached_tokens()),
               accepted.miss_reason().empty() ? "" : ": ", accepted.miss_reason().c_str());
  const auto& plan = accepted.plan();
  if (plan.ranges() == 0) {
    std::fprintf(stderr, "nothing to compute\n");
  } else {
    std::fprintf(stderr, "%s: %u range(s) on %u worker(s)\n", plan.schedule().c_str(),
                 plan.ranges(), plan.workers());
  }
}

void PrintDone(const v1::PrefillDone& done, double elapsed_s) {
  std::printf("state     %s\nboundary  %llu of %llu tokens, %llu cached\n", done.state().c_str(),
              static_cast<unsigned long long>(done.boundary()),
              static_cast<unsigned long long>(done.tokens()),
              static_cast<unsigned long long>(done.cached_tokens()));
  for (const auto& checkpoint : done.checkpoints()) {
    std::printf("checkpoint %llu %s\n", static_cast<unsigned long long>(checkpoint.boundary()),
                checkpoint.state().c_str());
  }
  std::printf("elapsed   %.3f s, %.0f tokens/s", elapsed_s,
              static_cast<double>(done.usage().computed_tokens()) / elapsed_s);
  if (done.attempts() > 1) std::printf("; %u attempts: workers were lost", done.attempts());
  std::printf("\n");
}

}  // namespace

int RunPrefill(const PrefillOptions& options) {
  const std::optional<PromptContent> prompt = ReadPromptOrSay(options.prompt, true);
  if (!prompt || !CanWrite(options.logits_file)) return 2;
  Connection connection(options.server);
  grpc::ClientContext context;
  if (!connection.Prepare(&context)) return 2;
  connection.Connect();
  // Of the request alone: programs that ask more than once keep their connection.
  const auto started = std::chrono::steady_clock::now();
  const auto elapsed_s = [started] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  };
  const auto stream = connection.stub().PrefillInPieces(&context);
  SendInPieces(MakeRequest(options), *prompt,
               [&](const v1::PrefillRequest& piece) { return stream->Write(piece); });
  stream->WritesDone();
  v1::PrefillEvent event;
  v1::PrefillDone done;
  bool logits_written = true;
  double logits_s = 0;
  {
    ProgressBar bar;
    while (stream->Read(&event)) {
      if (event.has_accepted()) PrintAccepted(event.accepted());
      if (event.has_progress()) bar.Show(event.progress());
      if (event.has_logits()) {
        logits_s = elapsed_s();
        logits_written = WriteLogits(options.logits_file, event.logits().values());
      }
      if (event.has_done()) done = event.done();
    }
  }
  const grpc::Status status = stream->Finish();
  if (!status.ok()) return connection.Fail(status);
  if (options.server.json) {
    PrintJson(DoneJson(done, elapsed_s(), logits_s));
  } else {
    PrintDone(done, elapsed_s());
  }
  return logits_written ? 0 : 1;
}

}  // namespace deltafill::client
