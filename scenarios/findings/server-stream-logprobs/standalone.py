# mlx_lm.server omits the logprobs from a streamed response
import http.client
import json
import sys
import tempfile
import time
from pathlib import Path
from subprocess import Popen

try:
    from mlx_lm.models.llama import Model, ModelArgs
except ImportError as missing:
    print(f"CANNOT TELL: {missing}")
    sys.exit(2)

ARGS = ModelArgs("llama", 8, 1, 8, 2, 1e-5, 2)  # a tiny Llama
WORDS = {"type": "WordLevel", "vocab": {"a": 0, "b": 1}, "unk_token": "a"}


def answer(**request):
    try:
        server = http.client.HTTPConnection("127.0.0.1", 8123, timeout=60)
        server.request("POST", "/v1/completions", json.dumps({"logit_bias": {"0": 100}, **request}))
        return server.getresponse().read().decode()
    except OSError:
        return ""


with tempfile.TemporaryDirectory() as folder:
    Model(ARGS).save_weights(f"{folder}/model.safetensors")
    Path(folder, "config.json").write_text(json.dumps({k: v for k, v in vars(ARGS).items() if v}))
    Path(folder, "tokenizer_config.json").write_text('{"tokenizer_class": "TokenizersBackend"}')
    Path(folder, "tokenizer.json").write_text(json.dumps({"added_tokens": [], "model": WORDS}))
    running = Popen([sys.executable, *f"-m mlx_lm server --port 8123 --model {folder}".split()])
    while not answer(prompt="a") and running.poll() is None:
        time.sleep(1)
    whole, streamed = [answer(prompt="a", logprobs=True, stream=on) for on in (False, True)]
    running.kill()
if '"logprob"' not in whole:
    sys.exit(2)
if '"logprob"' not in streamed:
    sys.exit("DEFECT: the non-streamed response has logprobs, but the streamed response has none")
print("OK")
