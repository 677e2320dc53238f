"""The sweep of operators: cells of torch.distributed, DTensor, MLX and tensor files, each compared
with the same operation in one process.
"""
