# Fuzzers of the model's readers.
