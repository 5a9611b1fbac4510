"""Sends three requests at once to the encoder and prints the shapes of the answers."""

import sys

import numpy as np
import tritonclient.http as http


def main(url: str) -> None:
    client = http.InferenceServerClient(url, concurrency=3)
    values = np.random.default_rng(0).standard_normal((1, 197, 128)).astype(np.float16)
    image = http.InferInput("image", values.shape, "FP16")
    image.set_data_from_numpy(values)
    output = client.get_model_metadata("encoder")["outputs"][0]["name"]
    pending = [client.async_infer("encoder", [image]) for _ in range(3)]
    for request in pending:
        print(output, request.get_result().as_numpy(output).shape)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "localhost:8000")
