// A library without the CUDA backend's entry.
extern "C" int deltafill_cuda_nothing() { return 0; }
