# A conjugated torch tensor is saved without the conjugation
# At fault: safetensors 0.8.0. No right version known.
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
    print(f"DEFECT: {tensor.tolist()} reads back as {got.tolist()}, should be the same")
    sys.exit(1)
print("right")
