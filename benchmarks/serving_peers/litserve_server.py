"""An exported file under LitServe: `python litserve_server.py FILE PORT BATCH SECONDS`."""

import sys

import litserve
from answering import Answering


class Classifier(litserve.LitAPI):
    """Decodes when the batch is made, so that images of one batch are decoded side by side."""

    def setup(self, device: str) -> None:
        """Load the file in the worker."""
        self.answering = Answering(sys.argv[1])

    def decode_request(self, request):
        """The bytes of the one file of the form."""
        return request["image"].file.read()

    def batch(self, inputs):
        """Bytes stay a list."""
        return list(inputs)

    def predict(self, x):
        """Answers of a batch; LitServe hands single images on as they are."""
        return self.answering(x if isinstance(x, list) else [x])

    def unbatch(self, output):
        """One answer each."""
        return output

    def encode_response(self, output):
        """A dictionary, which becomes JSON."""
        return output[0] if isinstance(output, list) else output


if __name__ == "__main__":
    api = Classifier(max_batch_size=int(sys.argv[3]), batch_timeout=float(sys.argv[4]))
    server = litserve.LitServer(api, accelerator="cpu", devices=1, workers_per_device=1)
    server.run(
        host="127.0.0.1", port=int(sys.argv[2]), num_api_servers=1, generate_client_file=False, log_level="warning"
    )
