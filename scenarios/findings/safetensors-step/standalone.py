# get_slice silently ignores the step of a slice
# Affected: safetensors 0.7.0. Not affected: 0.8.0.
import sys
import tempfile

try:
    import numpy as np
    from safetensors import safe_open
    from safetensors.numpy import save_file
except (ImportError, AttributeError) as missing:
    print(f"CANNOT TELL: {missing}")
    sys.exit(2)

array = np.arange(8, dtype=np.float32)
with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
    save_file({"a": array}, file.name)
    with safe_open(file.name, "numpy") as stored:
        got = stored.get_slice("a")[::2]
if got.tolist() != array[::2].tolist():
    print(f"DEFECT: [::2] returned {got.tolist()}, expected {array[::2].tolist()}")
    sys.exit(1)
print("OK")
