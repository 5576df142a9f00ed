"""What a call raises."""
import contextlib

import grpc


class Error(Exception):
    """A call that failed.

    code: the gRPC status code's name, for instance "NOT_FOUND"; proto/prefill.proto says which code
    means what. retry_delay_s: with RESOURCE_EXHAUSTED, when to try again; otherwise None.
    """

    def __init__(self, code, message, retry_delay_s=None):
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.retry_delay_s = retry_delay_s


@contextlib.contextmanager
def raising_errors():
    """Turns the errors of gRPC calls made inside into Error."""
    try:
        yield
    except grpc.RpcError as error:
        trailers = dict(error.trailing_metadata() or ())
        delay_ms = trailers.get("retry-delay-ms")
        raise Error(error.code().name, error.details(),
                    int(delay_ms) / 1000 if delay_ms else None) from error
