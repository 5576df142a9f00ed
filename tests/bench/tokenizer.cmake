# Tokenizers: tokenizers_side_by_side.py compares it with the libraries on PyPI.
add_executable(tokenizer_bench tokenizer_bench.cc)
target_link_libraries(tokenizer_bench PRIVATE deltafill_options deltafill_tokenizer deltafill_model)
