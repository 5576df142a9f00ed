"""A fetched state: named tensors in the layout asked for."""
import dataclasses
import math

import numpy

# bf16 has no numpy type: its bits come as uint16, and State.dtypes says so.
_NUMPY_DTYPES = {"F32": numpy.float32, "F16": numpy.float16, "BF16": numpy.uint16}


@dataclasses.dataclass(frozen=True)
class State:
    """tensors: by name, in the order of the service; dtypes: "F32", "F16" or "BF16" by name."""

    description: object  # StateDescription
    metadata: dict
    tensors: dict
    dtypes: dict


def assemble(events):
    """The State that a stream of FetchStateEvent carries; ValueError if it ends early."""
    start = next(events).start
    buffer = bytearray(sum(tensor.bytes for tensor in start.tensors))
    received, ended = 0, False
    for event in events:
        if event.WhichOneof("event") == "chunk":
            buffer[received:received + len(event.chunk)] = event.chunk
            received += len(event.chunk)
        else:
            ended = event.end.bytes == received == len(buffer)
    if not ended:
        raise ValueError(f"the state's stream ended after {received} of {len(buffer)} bytes")
    tensors, offset = {}, 0
    for header in start.tensors:
        flat = numpy.frombuffer(buffer, _NUMPY_DTYPES[header.dtype], math.prod(header.shape), offset)
        tensors[header.name] = flat.reshape(tuple(header.shape))
        offset += header.bytes
    return State(start.state, dict(start.metadata), tensors,
                 {header.name: header.dtype for header in start.tensors})
