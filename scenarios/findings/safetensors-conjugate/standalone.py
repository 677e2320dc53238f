# save() stores a conjugated torch tensor without the conjugation
# Affected: safetensors 0.8.0. No fixed version known.
import sys

try:
    import torch
    from safetensors.torch import load, save
except (ImportError, AttributeError) as missing:
    print(f"CANNOT TELL: {missing}")
    sys.exit(2)

tensor = torch.tensor([1 + 2j]).conj()
got = load(save({"a": tensor}))["a"]
if not torch.equal(got, tensor):
    print(f"DEFECT: {tensor.tolist()} read back as {got.tolist()}, expected the same values")
    sys.exit(1)
print("OK")
