# NumPy arrays in Fortran order are saved with their values in the wrong order
# Affected: safetensors 0.8.0. Not affected: 0.7.0.
import sys

try:
    import numpy as np
    from safetensors.numpy import load, save
except (ImportError, AttributeError) as missing:
    print(f"CANNOT TELL: {missing}")
    sys.exit(2)

array = np.arange(6, dtype=np.float32).reshape(2, 3).T
got = load(save({"a": array}))["a"]
if not np.array_equal(got, array):
    print(f"DEFECT: {array.tolist()} read back as {got.tolist()}, expected the same values")
    sys.exit(1)
print("OK")
