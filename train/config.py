"""The configurations that are trained here, and what follows from one: Engram's primes and multipliers, the layers' sources."""
import math
from dataclasses import dataclass

import numpy as np


def nano_text_config(vocab=4096, compressed=0):
    return finish_config(dict(
        model_type="deepseek_v41_text", vocab_size=vocab, hidden_size=256, moe_intermediate_size=128,
        num_hidden_layers=12, num_attention_heads=8, num_key_value_heads=1, head_dim=128, qk_rope_head_dim=32,
        q_lora_rank=128, o_lora_rank=128, o_groups=4, hidden_act="silu", swiglu_limit=10.0, rms_norm_eps=1e-20,
        attention_bias=False, attention_dropout=0.0, initializer_range=0.02, use_cache=True,
        tie_word_embeddings=False, max_position_embeddings=65536, rope_theta=10000,
        rope_scaling=dict(rope_type="yarn", factor=16, beta_fast=32, beta_slow=1,
                          original_max_position_embeddings=4096),
        n_routed_experts=12, n_shared_experts=1, num_experts_per_tok=3, scoring_func="sqrtsoftplus",
        topk_method="noaux_tc", norm_topk_prob=True, routed_scaling_factor=1.5, sliding_window=64,
        compress_ratios=[0, 0, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1], compress_rope_theta=160000,
        kv_source_layer_ids=[2, 4, 6], index_source_layer_ids=[2, 4, 6, 8, 10],
        index_n_heads=8, index_head_dim=64, index_topk=64,
        candidate_source_layer_id=6, candidate_topk_blocks=32, candidate_block_size=8,
        hc_mult=4, hc_sinkhorn_iters=20, hc_eps=1e-6,
        engram_layer_ids=[1, 4], engram_max_ngram_size=3, engram_vocab_size=4096, engram_n_heads=4,
        engram_head_dim=32, engram_pad_token_id=2), compressed)


def micro_text_config(vocab=512, compressed=0):
    """For tests: every kind of layer, tiny widths, an odd candidate block, Engram next to a KV source."""
    return finish_config(dict(
        nano_text_config(), vocab_size=vocab, hidden_size=64, moe_intermediate_size=64, num_hidden_layers=8,
        num_attention_heads=4, head_dim=64, qk_rope_head_dim=16, q_lora_rank=64, o_lora_rank=32, o_groups=2,
        n_routed_experts=8, sliding_window=16, compress_ratios=[0, 0, 2, 2, 1, 1, 1, 1],
        max_position_embeddings=4096, rope_scaling=dict(rope_type="yarn", factor=16, beta_fast=32, beta_slow=1,
                                                        original_max_position_embeddings=256),
        kv_source_layer_ids=[2, 4], index_source_layer_ids=[2, 4, 6], index_n_heads=4, index_head_dim=32,
        index_topk=8, candidate_source_layer_id=4, candidate_topk_blocks=4, candidate_block_size=4,
        engram_layer_ids=[1, 2], engram_vocab_size=300, engram_n_heads=2), compressed)


def finish_config(t, compressed=0):
    t = dict(t)
    t["engram_compressed_vocab_size"] = compressed
    t["engram_num_embeddings"] = [sum(sum(r) for r in layer) for layer in engram_primes(t)]
    t.update(num_nextn_predict_layers=0, dspark_block_size=0, dspark_noise_token_id=0, dspark_target_layer_ids=[],
             dspark_markov_rank=0, dspark_n_routed_experts=0, dspark_num_experts_per_tok=0)
    return t


def engram_primes(t):
    """[layer][order][head]: smallest primes >= engram_vocab_size never handed out before."""
    lo = t["engram_vocab_size"]
    need = len(t["engram_layer_ids"]) * (t["engram_max_ngram_size"] - 1) * t["engram_n_heads"]
    hi = lo + 64 + int(need * 3 * math.log(lo + 64))
    sieve = np.ones(hi + 1, bool)
    sieve[:2] = False
    for p in range(2, int(hi ** .5) + 1):
        if sieve[p]:
            sieve[p * p::p] = False
    primes = [int(p) for p in np.flatnonzero(sieve) if p >= lo]
    assert len(primes) >= need
    it = iter(primes)                       # restarting the search only skips used ones, so this is the order
    return [[[next(it) for _ in range(t["engram_n_heads"])] for _ in range(t["engram_max_ngram_size"] - 1)]
            for _ in t["engram_layer_ids"]]


def engram_multipliers(t):
    bound = max(1, (2 ** 63 - 1) // t["engram_compressed_vocab_size"] // 2)
    return [np.random.default_rng(10007 * l).integers(0, bound, size=t["engram_max_ngram_size"], dtype=np.int64) * 2 + 1
            for l in t["engram_layer_ids"]]


def twin_text_config(vocab=4096, compressed=0, ratio=2):
    """A small one of the published architecture: 4 encoder layers (2 window-only), 4 decoder layers."""
    return finish_config(dict(
        nano_text_config(), vocab_size=vocab, hidden_size=128, moe_intermediate_size=64, num_hidden_layers=8,
        num_attention_heads=4, head_dim=64, qk_rope_head_dim=16, q_lora_rank=64, o_lora_rank=64, o_groups=2,
        n_routed_experts=8, num_experts_per_tok=2, compress_ratios=[0, 0, ratio, ratio, 1, 1, 1, 1],
        kv_source_layer_ids=[2, 4], index_source_layer_ids=[2, 4, 6], index_n_heads=4, index_head_dim=32,
        candidate_source_layer_id=4, engram_layer_ids=[1, 2], engram_vocab_size=1024), compressed)


def dense_config(vocab=4096, kv_heads=4):
    """The classical decoder: every layer attends to all earlier tokens through its own keys and values."""
    return dict(model_type="llama", architectures=["LlamaForCausalLM"], vocab_size=vocab, hidden_size=128, intermediate_size=256,
                num_hidden_layers=8, num_attention_heads=4, num_key_value_heads=kv_heads, head_dim=32, hidden_act="silu",
                rms_norm_eps=1e-6, rope_theta=10000.0, max_position_embeddings=16384, tie_word_embeddings=True,
                attention_bias=False, mlp_bias=False, initializer_range=0.02, bos_token_id=0, eos_token_id=1, pad_token_id=2)


# what --arch may name: the configuration, and whether the KV cache is on its storage grid while training
ARCHS = {
    "nano": (lambda c: nano_text_config(4096, c), True),
    "micro": (lambda c: micro_text_config(4096, c), True),
    "csa2": (lambda c: twin_text_config(4096, c), True),
    "csa2-r4": (lambda c: twin_text_config(4096, c, ratio=4), True),
    "csa2-plain": (lambda c: twin_text_config(4096, c), False),
    "mha": (lambda c: dense_config(4096, 4), False),
    "gqa": (lambda c: dense_config(4096, 2), False),
}


class Cfg:
    def __init__(self, text):
        self.text = text
        self.__dict__.update(text)
        self.ratio = list(self.compress_ratios)[:self.num_hidden_layers]
        self.kv_src, self.idx_src = list(self.kv_source_layer_ids), list(self.index_source_layer_ids)
        self.dec0 = self.kv_src[-1]                       # first decoder layer
        self.cols = (self.engram_max_ngram_size - 1) * self.engram_n_heads

    def src(self, l, which):
        return max(s for s in which if s <= l)


@dataclass
class Mode:
    dense: bool = False       # attend to every visible compressed entry, no selection
    quant: bool = False       # weights on their storage grids (the caller swaps them), and with kv:
    kv: bool = True           # KV caches and indexer on their storage grids
    main: str = "g16"         # storage of the main KV when quant: g16 | fp8 | bf16
    act_fp8: bool = False     # additionally E4M3 inputs of quantised linears (the published kernels do)
