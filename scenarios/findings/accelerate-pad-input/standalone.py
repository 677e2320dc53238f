# pad_input_tensors adds rows of zeros to a batch that needs no padding
# Affected: accelerate 1.13.0, 1.15.0. No fixed version known.
import sys

try:
    import torch
    from accelerate.utils import pad_input_tensors
except (ImportError, AttributeError) as missing:
    print(f"CANNOT TELL: {missing}")
    sys.exit(2)

batch = torch.arange(1.0, 7.0)
got = pad_input_tensors(batch, batch_size=6, num_processes=2)
if not torch.equal(got, batch):
    print(f"DEFECT: 6 inputs for 2 processes became {got.tolist()}, expected no change")
    sys.exit(1)
print("OK")
