"""Client of the deltafill prefill service.

    import deltafill
    with deltafill.Client("127.0.0.1:7450") as client:
        prompt = client.prefill(tokens, checkpoint_every=65536)
        state = client.fetch_state(prompt.done.state, layout="fla")
        answer = client.generate("What is this?", state=prompt.done.state, max_tokens=200)

Requests and events are the messages of proto/prefill.proto, which is the specification.
"""
from deltafill.client import Client, Generation, Prefill
from deltafill.errors import Error
from deltafill.state import State

__all__ = ["Client", "Error", "Generation", "Prefill", "State"]
