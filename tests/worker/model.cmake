# Tests of worker/model.
