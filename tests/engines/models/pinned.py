"""The digests of the models that are made here: sha256 over their files, as an input of them is
named.
"""

DIGESTS = {
    "llama": "fe65cecb4c54c901a26d91c80517d92768fe7ec2ca89d378b2eb72a8b1374a5a",
    "llama-tied": "814d2bba9e29cb2994c7b73d72cbaea15364e809d5dff827eccb14c1a868085f",
    "llama-2-kv": "65c511fed9617db4b0d1664be88860cf279c0306091bd98ff250b2717704bf70",
    "gpt2": "ff8687c49c3eb632b693b2a66a48d19977f8fd3449dc8d285f2013abd43a627c",
    "qwen2": "49d329f2df877d5ca0ede1c9d140aabb10f40122e2fade0ae2ab0b23124e3ef8",
    "gemma2": "48783e160e04df27611045cf1104828dd5ae0691d1b0bb81a81f4148de37d5d8",
    "mixtral": "0441636503a0311bba37bb82cb63bd97058b57eec139899e6821ded57e38f365",
    "qwen3-moe": "49414aba02ac613d988dfab60c06268dd5d104753a3105a565c9dea35c5e017a",
    "minimax": "7ab8fa61ee72a38f04fd85b71b3e8d02092df296909ee0325826e16bab6403af",
    "ministral3": "b06e798c851f770e9fe61d121f30afd9a261bfefa267fa23c35e1e2327a85bcf",
    "ministral3-5-layers": "8a9111fbeb826fbcc1c2d4ba2d86f8de61b1606848be3e6d03a8675e0f45b268",
    "glm4-moe": "a7482f54c1cbb98ca693c0ee7beecc89c2d331adcfc6de63cdfc7bec492c74b6",
    "recall": "4ef53f0455db6e44c6a138801cdbdd87f22c2d9283223a8e5ac216253d37ed03",
}
