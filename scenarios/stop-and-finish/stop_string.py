# mlx-lm's server misses a stop string that crosses a token boundary
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

ARGS = ModelArgs("llama", 8, 1, 8, 2, 1e-5, 3)  # a tiny Llama
WORDS = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}
TEXTS = {"added_tokens": [], "model": WORDS, "decoder": {"type": "Fuse"}}


def answer(**request):
    try:
        server = http.client.HTTPConnection("127.0.0.1", 8123, timeout=60)
        server.request("POST", "/v1/completions", json.dumps({"max_tokens": 6, **request}))
        return server.getresponse().read().decode()
    except OSError:
        return ""


with tempfile.TemporaryDirectory() as folder:
    Model(ARGS).save_weights(f"{folder}/model.safetensors")
    Path(folder, "config.json").write_text(json.dumps({k: v for k, v in vars(ARGS).items() if v}))
    Path(folder, "tokenizer_config.json").write_text('{"tokenizer_class": "TokenizersBackend"}')
    Path(folder, "tokenizer.json").write_text(json.dumps(TEXTS))
    running = Popen([sys.executable, *f"-m mlx_lm server --port 8123 --model {folder}".split()])
    while not answer(prompt="a") and running.poll() is None:
        time.sleep(1)
    found = answer(prompt="ab", stop="ba", logit_bias={"2": 100})  # generates "ab" repeatedly
    running.kill()
choice = json.loads(found)["choices"][0] if "choices" in found else sys.exit(2)
got = choice["text"], choice["finish_reason"]
if got != ("a", "stop"):
    sys.exit(f"DEFECT: text and finish_reason are {got}, expected ('a', 'stop')")
