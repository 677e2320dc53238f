# A logit_bias for a token that does not exist crashes mlx_lm.server
import http.client
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

try:
    from mlx_lm.models.llama import Model, ModelArgs
except ImportError as missing:
    print(f"CANNOT TELL: {missing}")
    sys.exit(2)

ARGS = ModelArgs("llama", 8, 1, 8, 2, 1e-5, 2)  # a tiny Llama
WORDS = {"type": "WordLevel", "vocab": {"a": 0, "b": 1}, "unk_token": "a"}


def status_of(**request):
    try:
        server = http.client.HTTPConnection("127.0.0.1", 8123, timeout=60)
        server.request("POST", "/v1/completions", json.dumps({"prompt": "a", **request}))
        return server.getresponse().status
    except OSError:
        return 0


with tempfile.TemporaryDirectory() as folder:
    Model(ARGS).save_weights(f"{folder}/model.safetensors")
    Path(folder, "config.json").write_text(json.dumps({k: v for k, v in vars(ARGS).items() if v}))
    Path(folder, "tokenizer_config.json").write_text('{"tokenizer_class": "TokenizersBackend"}')
    Path(folder, "tokenizer.json").write_text(json.dumps({"added_tokens": [], "model": WORDS}))
    command = f"-m mlx_lm server --port 8123 --model {folder}".split()
    running = subprocess.Popen([sys.executable, *command])
    while status_of(logit_bias={}) != 200 and running.poll() is None:
        time.sleep(1)
    before, _, after = [status_of(logit_bias=bias) for bias in ({}, {"2000000000": 1.0}, {})]
    running.kill()
if after != 200:
    print(f"DEFECT: the next request got status {after} (0: no server), expected {before}")
sys.exit(2 if before != 200 else after != 200)
