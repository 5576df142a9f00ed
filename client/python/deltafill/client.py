"""One connection to a service, with a method a call."""
import dataclasses

import grpc
import numpy

from deltafill import prefill_pb2 as messages
from deltafill import prefill_pb2_grpc as services
from deltafill.errors import raising_errors
from deltafill.state import assemble

_MESSAGE_BYTES_MAX = 64 << 20


@dataclasses.dataclass(frozen=True)
class Prefill:
    """accepted, done: PrefillAccepted and PrefillDone; logits: [vocabulary] float32 or None."""

    accepted: object
    done: object
    logits: object


@dataclasses.dataclass(frozen=True)
class Generation:
    """ids and text (bytes) of the generated tokens; started, done: DecodeStarted and DecodeDone."""

    ids: list
    text: bytes
    started: object
    done: object


def _prompt(prompt):
    """str and bytes are text; anything else is a sequence of token ids."""
    if isinstance(prompt, str):
        return messages.Prompt(text=prompt.encode())
    if isinstance(prompt, (bytes, bytearray)):
        return messages.Prompt(text=bytes(prompt))
    return messages.Prompt(tokens=_tokens(prompt))


def _tokens(ids):
    """Tokens, without a Python integer for each of a million ids."""
    array = numpy.asarray(ids if hasattr(ids, "__len__") else list(ids))
    if array.size == 0:
        return messages.Tokens()
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise TypeError("token ids must be a sequence of integers")
    if array.min() < 0 or array.max() >= 1 << 32:
        raise ValueError("token ids must be in 0 to 2**32 - 1")
    # As the message is written: field 1, its bytes, and the ids at four bytes each.
    data = array.astype("<u4").tobytes()
    return messages.Tokens.FromString(b"\x0a" + _varint(len(data)) + data)


def _varint(number):
    written = bytearray()
    while number >= 0x80:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(written + bytes([number]))


class Client:
    """Thread-safe. Every call takes `timeout` in seconds (None: no limit) and raises Error.

    token: the caller's credential, for services started with --credentials. tenant: the name to go
    by, for services without (loopback only). tls_ca: a PEM file with the authority that signed the
    service's certificate; None: no TLS.
    """

    def __init__(self, address="127.0.0.1:7450", *, tenant=None, token=None, tls_ca=None):
        options = [("grpc.max_receive_message_length", _MESSAGE_BYTES_MAX)]
        if tls_ca is None:
            self._channel = grpc.insecure_channel(address, options=options)
        else:
            with open(tls_ca, "rb") as authorities:
                credentials = grpc.ssl_channel_credentials(authorities.read())
            self._channel = grpc.secure_channel(address, credentials, options=options)
        self._service = services.PrefillServiceStub(self._channel)
        self._metadata = []
        if tenant is not None:
            self._metadata.append(("deltafill-tenant", tenant))
        if token is not None:
            self._metadata.append(("authorization", f"Bearer {token}"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._channel.close()

    def prefill_events(self, prompt, *, model="", checkpoint_at=(), checkpoint_every=0, resume=True,
                       return_logits=False, exactness="exact", timeout=None):
        """Computes a prompt's prefix state; yields PrefillEvent as they come, `done` last. Closing
        the generator cancels the call; checkpoints that are durable stay."""
        request = messages.PrefillRequest(
            model=model, prompt=_prompt(prompt), checkpoint_at=checkpoint_at,
            checkpoint_every=checkpoint_every, no_resume=not resume, return_logits=return_logits,
            exactness=messages.Exactness.Value(f"EXACTNESS_{exactness.upper()}"))
        yield from self._stream(self._service.Prefill, request, timeout)

    def prefill(self, prompt, **options):
        """As prefill_events, to the end: a Prefill."""
        accepted = done = logits = None
        for event in self.prefill_events(prompt, **options):
            kind = event.WhichOneof("event")
            if kind == "accepted":
                accepted = event.accepted
            elif kind == "logits":
                logits = numpy.frombuffer(event.logits.values, "<f4")
            elif kind == "done":
                done = event.done
        return Prefill(accepted, done, logits)

    def lookup(self, prompt, *, model="", timeout=None):
        """The deepest stored boundary of a prompt: LookupResponse. Computes nothing."""
        return self._call(self._service.Lookup,
                          messages.LookupRequest(model=model, prompt=_prompt(prompt)), timeout)

    def fetch_state(self, handle, *, layout="canonical", at_end=False, layers=(), heads=(0, 0),
                    timeout=None):
        """A state's tensors as numpy arrays: a State. at_end: after the handle's tail, with the last
        token's logits, instead of at the stored block. layers: model layer indices, () for all;
        heads: [begin, end), (0, 0) for all."""
        request = messages.FetchStateRequest(
            state=handle, layout=layout, layers=layers, head_begin=heads[0], head_end=heads[1],
            position=messages.STATE_POSITION_END if at_end else messages.STATE_POSITION_BLOCK)
        return assemble(self._stream(self._service.FetchState, request, timeout))

    def decode_events(self, prompt=(), *, state="", model="", max_tokens=16, temperature=0.0,
                      top_p=1.0, seed=0, stop_ids=(), save_state=False, ignore_eos=False,
                      timeout=None):
        """Generates from a prompt, or from a state's handle and more tokens; yields DecodeEvent."""
        sampling = messages.Sampling(temperature=temperature, top_p=top_p, seed=seed)
        request = messages.DecodeRequest(
            model=model, state=state, prompt=_prompt(prompt), max_tokens=max_tokens,
            sampling=sampling, stop_ids=stop_ids, save_state=save_state, ignore_eos=ignore_eos)
        yield from self._stream(self._service.Decode, request, timeout)

    def generate(self, prompt=(), **options):
        """As decode_events, to the end: a Generation."""
        ids, text, started, done = [], b"", None, None
        for event in self.decode_events(prompt, **options):
            kind = event.WhichOneof("event")
            if kind == "started":
                started = event.started
            elif kind == "token":
                ids.append(event.token.id)
                text += event.token.text
            elif kind == "done":
                done = event.done
        return Generation(ids, text, started, done)

    def states(self, *, timeout=None):
        """Yields the StateDescription of every state of the tenant."""
        page = ""
        while True:
            response = self._call(self._service.ListStates,
                                  messages.ListStatesRequest(page=page, limit=1000), timeout)
            yield from response.states
            page = response.next_page
            if not page:
                return

    def describe(self, handle, *, verify=False, timeout=None):
        """StateDescription; verify: every part is read and its checksum compared."""
        return self._call(self._service.GetState,
                          messages.GetStateRequest(state=handle, verify=verify), timeout)

    def delete(self, handle, *, timeout=None):
        self._call(self._service.DeleteState, messages.StateRequest(state=handle), timeout)

    def pin(self, handle, *, pinned=True, timeout=None):
        """A pinned state is never evicted. StateDescription."""
        call = self._service.PinState if pinned else self._service.UnpinState
        return self._call(call, messages.StateRequest(state=handle), timeout)

    def server_info(self, *, timeout=None):
        return self._call(self._service.GetServerInfo, messages.GetServerInfoRequest(), timeout)

    def _call(self, method, request, timeout):
        with raising_errors():
            return method(request, timeout=timeout, metadata=self._metadata)

    def _stream(self, method, request, timeout):
        with raising_errors():
            call = method(request, timeout=timeout, metadata=self._metadata)
            try:
                yield from call
            finally:
                call.cancel()
